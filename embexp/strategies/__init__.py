"""Strategies: where a run lives and how its replicas share a batch; one module each, behind one protocol."""
