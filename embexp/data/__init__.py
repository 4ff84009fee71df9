"""From files, or a synthetic log, to batches: sources, vocabularies, splits, the order of examples."""
