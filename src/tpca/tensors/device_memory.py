"""A device that runs out of memory: an error that says how many samples a batch may have."""

from __future__ import annotations

import math
from typing import Any

from tpca.errors import DeviceMemoryError, one_line
from tpca.tensors.device import DeviceBatch
from tpca.tensors.namespaces import bytes_of

SIGNS = ("out of memory", "resource_exhausted", "outofmemory")  # of such an error, in whatever library
SUMS = 2  # arrays of the size of a sample that are held beside the samples: a sum, and what is added to it


def refuse_beyond_memory(cause: BaseException, batch: Any) -> None:
    """Say what would fit, if ``cause`` is that the device of a batch has no more memory."""
    told = f"{type(cause).__name__} {cause}".lower()
    if not isinstance(batch, DeviceBatch) or not any(sign in told for sign in SIGNS):
        return
    size = max(1, bytes_of(batch._samples) // max(1, int(batch._samples.shape[0])))
    free = free_bytes(batch._samples)
    fits = len(batch) // 2 if free is None else min(len(batch) // 2, free // size - SUMS)
    raise DeviceMemoryError(
        f"{batch.home} ran out of memory with {len(batch)} samples of {size:,} bytes at a time ({one_line(cause)}); "
        f"give batches of at most {max(1, fits)} samples, or free memory there."
    ) from cause


def free_bytes(array: Any) -> int | None:
    """Bytes that are free on the device of an array; ``None`` where its library does not tell."""
    device = array.device
    if getattr(device, "type", None) == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    if hasattr(device, "mem_info"):  # CuPy
        return int(device.mem_info[0])
    stats = device.memory_stats() if hasattr(device, "memory_stats") else None  # JAX
    if not stats or not math.isfinite(stats.get("bytes_limit", math.inf)):
        return None
    return int(stats["bytes_limit"] - stats["bytes_in_use"])
