"""Whether to clip: what a run knows of the tails of the noise, and the samples that it sees clipped from then on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tpca.checkpoint import kept
from tpca.noise.tails import GAIN, LOOKED, Clip, EntrySizes, clip_for
from tpca.tensors import Accumulator, Clipped, Together

ENOUGH, SEVERAL = 2**20, 4  # entries and samples after which no more are looked at
HEAVY = 4.0  # kurtosis (Gaussian: 3) of differences of samples, below which tails are not heavy
MANY, PLAINLY = 2**14, 1.2  # entries, and times GAIN and HEAVY, for a decision before the usual number of samples

A = TypeVar("A", bound=Accumulator)


@kept
class Tails:
    """What a run knows of the tails: sizes of entries, until it is decided where to clip, if anywhere.

    ``asked`` is ``"auto"``, a bound in standard deviations, or ``None``: never.  ``beyond`` counts entries that were
    clipped above and below.
    """

    def __init__(self, asked: str | float | None) -> None:
        self.asked = asked
        self.clip: Clip | None = None
        self.beyond = (0, 0)
        self.on_trial = False  # whether it may still turn out that a signal is too strong for a bound
        self._sizes = None if asked is None else EntrySizes()

    @property
    def share(self) -> float:
        """What a signal is seen times."""
        return 1.0 if self.clip is None else self.clip.share

    @property
    def _looking(self) -> bool:
        sizes = self._sizes
        return sizes is not None and (sizes.entries < ENOUGH or sizes.n < SEVERAL)

    def blanks(self, later: bool = False, glanced: int = LOOKED) -> tuple[Accumulator, ...]:
        """What is to be kept of the next samples, while nothing is decided and too little is known.

        Of a large sample ``glanced`` entries are looked at.  With ``later`` that may be in :meth:`decide`, or
        :meth:`settle`, which must follow before the next.
        """
        return (EntrySizes(later, glanced),) if self._looking else ()

    def take(self, parts: Sequence[Any]) -> Sequence[Any]:
        """Take what was kept, as long as there is something the last of ``parts``; returns the others."""
        if self._sizes is None or not self._looking:
            return parts
        *others, own = parts
        assert isinstance(own, EntrySizes)
        self._sizes.merge(own)
        return others

    def settle(self) -> None:
        """Look at all samples that were taken."""
        if self._sizes is not None:
            self._sizes.settle()

    def decide_early(self, left: float, kurtosis: float) -> bool:
        """Whether it is plain, before there are as many samples as a decision should have, that they must be clipped.

        Entries enough tell tails that are not even from such that are; every sample that is added as it is, is lost.
        """
        sizes = self._sizes
        if sizes is None or not isinstance(self.asked, str) or sizes.entries < MANY or not kurtosis > PLAINLY * HEAVY:
            return False
        clip = clip_for(sizes)
        return clip is not None and clip.gain > PLAINLY * GAIN and self.decide(left, kurtosis)

    def decide(self, left: float, kurtosis: float) -> bool:
        """Whether to clip from now on, when the samples so far are thrown away and a share of ``left`` remains.

        ``kurtosis`` is that of entries of differences of neighbouring samples: a strong signal has large entries, too,
        but they cancel there.
        """
        if self._sizes is not None:
            bound = None if isinstance(self.asked, str) else self.asked
            clip = clip_for(self._sizes, bound) if bound is not None or kurtosis > HEAVY else None
            if clip is not None and (bound is not None or clip.gain * left > 1):
                self.clip, self.on_trial = clip, bound is None
            self._sizes = None
        return self.clip is not None

    def decline(self) -> None:
        """Do not clip after all."""
        self.clip, self.beyond, self.on_trial = None, (0, 0), False

    def together(self, first: A, *others: Accumulator) -> A | Together:
        """What is to be kept of the next samples as one accumulator: of clipped samples, if they are."""
        if self.clip is not None:
            return Clipped([first, *others], self.clip.scales)
        return Together([first, *others]) if others else first

    def parts(self, filled: Accumulator) -> tuple[Accumulator, ...]:
        """The parts of such an accumulator once it is filled."""
        if isinstance(filled, Clipped):
            above, below = self.beyond
            self.beyond = above + int(filled.beyond[0]), below + int(filled.beyond[1])
        return filled.parts if isinstance(filled, Together) else (filled,)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        own = 0 if self._sizes is None else self._sizes.nbytes
        return own + (0 if self.clip is None else sum(scale.nbytes for scale in self.clip.scales))
