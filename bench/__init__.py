"""Benchmarks of embexp and other libraries. `python -m bench` runs all of them, and `python -m bench.NAME` runs one."""
