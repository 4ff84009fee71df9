"""What a run leaves on disk, and what others read of it without running anything: folder, manifest, `run_id`."""
