"""Studies: experiments that can be run again with one command."""
