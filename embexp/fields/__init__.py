"""Fields of use: tables of columns, recommendation, graphs and texts, each a package behind one record."""
