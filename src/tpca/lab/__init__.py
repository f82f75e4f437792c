"""Experiments about solvers: baselines, the exact-law simulation, studies, planning.  Only the command imports it."""
