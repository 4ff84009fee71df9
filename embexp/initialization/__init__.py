"""How values get into tables: where rows come from, and one module per way in."""
