"""Workers on several machines that share tables by rows: the strategy `multi_worker`."""
