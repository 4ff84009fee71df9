"""From files, or a synthetic log, to batches: reading, vocabularies, splits, the order of examples."""
