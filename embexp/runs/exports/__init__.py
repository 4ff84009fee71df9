"""Exports of a finished run: a SavedModel that serves, and its tables in files of other programs."""
