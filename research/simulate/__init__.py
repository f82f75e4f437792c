"""The law of the iterates, exactly, at a cost per step that does not depend on the dimension.

The batch law, where the mean of any number of samples is one draw, is an engine: :class:`research.law.LawEngine`.
"""

from research.simulate.chain import advance, simulate_online
from research.simulate.paper import SimulatedRun, simulate_empirical

__all__ = ["SimulatedRun", "advance", "simulate_empirical", "simulate_online"]
