"""All studies by name, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Sequence

from tpca.errors import StudyError
from tpca.studies.convergence import Convergence
from tpca.studies.internet_scale import InternetScale
from tpca.studies.memory import Memory
from tpca.studies.noise import Noise
from tpca.studies.parameterisation import Parameterisation
from tpca.studies.race import Race
from tpca.studies.scaling import Symmetric, WorstCase
from tpca.studies.structure import Adaptivity, EmpiricalSchedule, Initialisation, Stages
from tpca.studies.study import Study

_ALL: tuple[Study, ...] = (
    WorstCase(),
    Symmetric(),
    Adaptivity(),
    Parameterisation(),
    Convergence(),
    Stages(),
    Initialisation(),
    Noise(),
    Race(),
    Memory(),
    EmpiricalSchedule(),
    InternetScale(),
)
STUDIES: dict[str, Study] = {study.name: study for study in _ALL}


def choose(names: Sequence[str]) -> list[Study]:
    """The studies with these names, all of them if there are none."""
    unknown = [name for name in names if name not in STUDIES]
    if unknown:
        raise StudyError(f"there is no study {unknown[0]!r}; the studies are: {', '.join(STUDIES)}.")
    return [STUDIES[name] for name in names] if names else list(_ALL)
