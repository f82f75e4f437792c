"""The mean of all samples: its best rank-one fit, and a test of it."""
