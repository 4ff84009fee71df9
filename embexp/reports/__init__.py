"""Reports of a finished run: plots, and tables for the terminal."""
