"""Every error that tpca raises on purpose.

Each message names the value at fault, what was expected, and the way out.  All of them derive from
:class:`TpcaError`, so ``except tpca.TpcaError`` catches what the library refuses and nothing else.
"""


class TpcaError(Exception):
    """Root of all errors raised by tpca."""


class ModelError(TpcaError, ValueError):
    """The description of a spiked tensor is not one (strength, vectors, dims, correlation, noise law)."""


class PartitionError(TpcaError, ValueError):
    """The grouping of modes into blocks is not a partition of the modes."""


class SampleError(TpcaError, ValueError):
    """A sample or batch does not fit the stream: shape, dtype, NaN or Inf."""


class StreamError(TpcaError, ValueError):
    """A source cannot be read as a stream of samples."""


class ScheduleError(TpcaError, ValueError):
    """A schedule cannot be built: an order outside the theorem, or a missing or impossible number."""


class SolverError(TpcaError, ValueError):
    """A solver was given an option that it cannot work with."""


class OptionError(TpcaError, ValueError):
    """An option of the command was given where it means nothing."""


class MemoryBudgetError(SolverError):
    """The memory given is below the least that the solver needs."""


class CheckpointError(TpcaError, ValueError):
    """A checkpoint cannot be written, read, or does not belong to this run."""


class ClusterError(TpcaError, RuntimeError):
    """A cluster is lost, has no workers, or one of its workers failed."""


class StudyError(TpcaError, ValueError):
    """A study does not exist, or its store cannot be used."""


class OutputError(TpcaError, OSError):
    """A result cannot be written."""


class RunInterrupted(KeyboardInterrupt):
    """A run was stopped by the user after its round was finished and its checkpoint written."""
