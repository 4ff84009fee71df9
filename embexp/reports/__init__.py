"""What people look at after a run: pictures and tables."""
