"""Vocabularies: which row of a table stands for which value."""
