"""Schedules: the paper's step sizes and durations, pure functions of the problem's numbers."""

from tpca.solvers.paper.schedules.constants import PRESETS, Constants, preset_constants
from tpca.solvers.paper.schedules.empirical import empirical_schedule, search_steps
from tpca.solvers.paper.schedules.plan import Leg, Schedule, decay_length
from tpca.solvers.paper.schedules.theorem import gauged_schedule, stage_bounds, theorem_schedule

__all__ = [
    "PRESETS",
    "Constants",
    "Leg",
    "Schedule",
    "decay_length",
    "empirical_schedule",
    "gauged_schedule",
    "preset_constants",
    "search_steps",
    "stage_bounds",
    "theorem_schedule",
]
