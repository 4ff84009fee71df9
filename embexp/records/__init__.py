"""The files of a run, read without running anything: folder, manifest, inventory, `run_id`."""
