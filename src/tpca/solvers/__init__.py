"""Solvers: the paper's algorithm, and the race."""
