"""Reading files whose rows are examples."""
