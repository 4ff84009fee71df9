"""A checkpoint for another vocabulary: rows and slots by token, new rows filled, nothing in memory whole."""
