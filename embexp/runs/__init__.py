"""A run: prepared once, then executed, evaluated and summarised; and what it leaves in its folder."""
