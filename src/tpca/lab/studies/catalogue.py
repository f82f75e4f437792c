"""All studies by name, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Sequence

from tpca.errors import StudyError
from tpca.lab.studies.convergence import Convergence
from tpca.lab.studies.internet_scale import InternetScale
from tpca.lab.studies.memory import Memory
from tpca.lab.studies.noise import Noise
from tpca.lab.studies.parameterisation import Parameterisation
from tpca.lab.studies.race import Race
from tpca.lab.studies.scaling import Symmetric, WorstCase
from tpca.lab.studies.structure import Adaptivity, EmpiricalSchedule, Initialisation, Stages
from tpca.lab.studies.study import Study

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
