"""Where data comes from: files with columns, texts, knowledge graphs, and a synthetic log."""
