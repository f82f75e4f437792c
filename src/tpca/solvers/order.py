"""The order of the samples: neighbours that are alike must stay neighbours, or nobody can tell that they are."""

from __future__ import annotations

from tpca.engines import Engine, LocalEngine, StreamEngine
from tpca.errors import StreamError
from tpca.noise import QueryGradients, Sketch, samples_wanted
from tpca.randomness import generator
from tpca.streams.stored import StoredStream
from tpca.tensors import Together


def refuse_torn(engine: Engine, groups: int | None) -> None:
    """Refuse samples that are read in random order, if their own order matters.

    Random order makes neighbours look independent, but the samples are as dependent as before, and every test that
    counts them one by one errs.
    """
    stream = engine.stream if isinstance(engine, StreamEngine) else None
    if not isinstance(stream, StoredStream) or stream.shuffle is None:
        return
    if groups is not None and groups > 1:
        raise StreamError(
            f"groups={groups} are samples that follow each other, and shuffle=True tears them apart; "
            "read them in their order."
        )
    time = _correlation_time(stream.in_order()) if groups is None else 1.0
    if time > 1:
        raise StreamError(
            f"shuffle=True hides that samples depend on their neighbours, over about {time:.3g} samples: what is read "
            "in random order looks independent, and is not; read them in their order, or say groups=1 if they are."
        )


def _correlation_time(stream: StoredStream) -> float:
    """That of the first samples, in their order."""
    engine, sketch = LocalEngine(stream), Sketch(stream.dims, generator(0, "order"), modes=False)
    while (wanted := samples_wanted(sketch) - sketch.n) > 0:
        part = engine.reduce(Together(sketch.blanks()), wanted)
        (gradients,) = part.parts
        assert isinstance(gradients, QueryGradients)
        sketch.take(gradients)
        if part.n < wanted:
            break
    dependence = sketch.contrasts.dependence()
    return dependence.time if dependence.present else 1.0
