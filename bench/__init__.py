"""Benchmarks of embexp and other libraries. `python -m bench` runs all, `python -m bench.NAME` one of them."""
