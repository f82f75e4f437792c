"""The race: search strategies on shared samples, each with a candidate that is tested on fresh ones."""
