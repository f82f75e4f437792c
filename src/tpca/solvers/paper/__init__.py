"""The paper's three-phase stochastic gradient ascent, and its schedules."""
