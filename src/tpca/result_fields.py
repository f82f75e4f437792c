"""What the fields of ``recovery.json`` and ``run.json`` must be."""

from __future__ import annotations

import math
from typing import Any

from tpca.fields import COUNT, FLAG, LENGTH, NUMBER, POSITIVE, SHARE, TEXT, Field, fits, maybe, named, pair
from tpca.solvers.recovery import StopReason

_SOURCE = Field("a path or a list of paths", lambda value: fits(value, TEXT) or (fits(value, [TEXT]) and value != []))
_DIMS = Field(
    "the lengths of two modes or more",
    lambda value: fits(value, [LENGTH]) and len(value) > 1 and fits(float(min(math.prod(value), 2**999)), NUMBER),
)
_CLIP = Field("a bound", lambda value: value is None or fits(value, POSITIVE) or fits(value, TEXT))
_SETTINGS = {"solver?": TEXT, "solver_reason?": TEXT, "confidence?": SHARE, "clip?": _CLIP}

RESULT: dict[str, Any] = {
    "source": _SOURCE,
    "settings?": _SETTINGS,
    "found": FLAG,
    "stop_reason": Field("a stop reason", lambda value: value in StopReason.__members__),
    "vectors_sha256?": TEXT,
    "advice": TEXT,
    "dims": _DIMS,
    "labels?": maybe({}),
    "n_samples": COUNT,
    "n_skipped": COUNT,
    "components": Field("a list of at least one", lambda value: isinstance(value, list) and value != []),
}

# NaN and infinity were written as null.
_RECORD = {
    "samples?": COUNT,
    "component?": COUNT,
    "pass?": COUNT,
    "candidate?": TEXT,
    "found?": FLAG,
    "attempt?": COUNT,
    "evidence?": named(maybe(NUMBER)),
    "noise_fits?": [NUMBER],
    "log_evidence?": maybe(NUMBER),
    "needed?": maybe(NUMBER),
    "p_value?": maybe(NUMBER),
    "strength?": maybe(NUMBER),
    "strength_error?": maybe(NUMBER),
    "error?": maybe(NUMBER),
    "fit?": maybe(NUMBER),
    "reward?": maybe(NUMBER),
}

_STATE = Field("a state of a check", lambda value: value in ("good", "handled", "bad", "open"))
_EVIDENCE = {"kind": TEXT, "value": maybe(NUMBER), "needed": maybe(NUMBER), "noise": [maybe(NUMBER)]}

STREAM: dict[str, Any] = {
    "solver": TEXT,
    "noise_level": maybe(POSITIVE),
    "checks": [{"name": TEXT, "state": _STATE, "measured": TEXT, "meaning": TEXT}],
    "withdrawn": [TEXT],
    "n_passes": COUNT,
    "state_bytes": COUNT,
    "buffer_bytes": COUNT,
    "components": [
        {
            "strength": maybe(NUMBER),
            "strength_interval": maybe(pair(maybe(NUMBER))),
            "error": maybe([maybe(POSITIVE)]),
            "p_value": maybe(POSITIVE),
            "evidence": maybe(_EVIDENCE),
            "effect?": TEXT,
            "label_amplitudes?": named(maybe(NUMBER)),
            "variance?": POSITIVE,
            "variance_ratio?": POSITIVE,
        }
    ],
    "history?": [_RECORD],
}

VIEWS: dict[str, Any] = {
    "settings?": {"clip?": maybe(POSITIVE)},
    "components": [{name: maybe(NUMBER) for name in ("correlation", "correlation_error", "p_value", "moment")}],
}

RUN: dict[str, Any] = {
    "seconds?": maybe(POSITIVE),
    "trace?": maybe([pair(POSITIVE)]),
    "made_with?": maybe({}),
    "data?": maybe([TEXT]),
    "identity?": maybe(TEXT),
}
