"""The race: search strategies on shared samples, a candidate tested on fresh ones."""
