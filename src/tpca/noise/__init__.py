"""What is known of the noise: covariances of the modes, whitening of queries, how long neighbours are alike."""

from tpca.noise.checks import CENTRED, Check, doubts, noise_checks, steadiness, too_alike, too_few
from tpca.noise.clipping import Tails
from tpca.noise.model import NoiseModel, described, is_plain, learn, samples_wanted
from tpca.noise.pairs import ModeCovariances
from tpca.noise.serial import Contrasts, Dependence
from tpca.noise.sketch import QueryGradients, Sketch
from tpca.noise.tails import Clip, EntrySizes, clip_for, lopsided
from tpca.noise.whitening import Whitening

__all__ = [
    "CENTRED",
    "Check",
    "Clip",
    "Contrasts",
    "Dependence",
    "EntrySizes",
    "ModeCovariances",
    "NoiseModel",
    "QueryGradients",
    "Sketch",
    "Tails",
    "Whitening",
    "clip_for",
    "described",
    "doubts",
    "is_plain",
    "learn",
    "lopsided",
    "noise_checks",
    "samples_wanted",
    "steadiness",
    "too_alike",
    "too_few",
]
