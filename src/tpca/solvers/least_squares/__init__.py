"""Least squares: the mean or an effect from sums of units, tested by flips of these."""
