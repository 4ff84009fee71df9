"""A run: prepared, executed, evaluated and summarised; and finished runs, loaded again."""
