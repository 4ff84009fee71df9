"""Arrays and their alignment, the cache, digests, files written whole, processes and memory."""
