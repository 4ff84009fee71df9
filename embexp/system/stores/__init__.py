"""Files in object stores, and where they are on this machine."""
