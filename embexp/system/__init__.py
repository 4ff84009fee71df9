"""Arrays and their alignment, the cache, digests, files written whole, processes, signals and memory."""
