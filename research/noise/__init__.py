"""Claims, power and coverage where noise is not white: laws, trials, tables."""
