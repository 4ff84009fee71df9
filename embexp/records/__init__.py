"""The files of a run, read without running anything: folder, manifest, `run_id`."""
