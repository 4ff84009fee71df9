"""Runtimes, which execute the step: one module each, with the same `start(blueprint) -> Execution`."""
