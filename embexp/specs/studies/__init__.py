"""Studies: experiments of several runs."""
