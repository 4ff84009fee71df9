"""Checks what was composed: types, rules, resources, and the code that configs name."""
