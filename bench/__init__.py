"""Benchmarks against peers. `python -m bench` runs all of them, `python -m bench.NAME` one."""
