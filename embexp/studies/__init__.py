"""Studies: several runs, each an ordinary one, and what they come to beside each other."""
