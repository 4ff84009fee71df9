"""Pictures of the object graph in a checkpoint: what is drawn (tree), where (layout), and the file (picture)."""
