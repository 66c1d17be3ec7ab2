"""The pluggable door: PyTorch's device memory through strandline's allocator."""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any, Callable

from . import _library

# PyTorch's setters and our functions for them. All are optional: an older PyTorch has fewer.
_SETTERS = {
    "set_record_stream_fn": "strandline_record_stream",
    "set_reset_fn": "strandline_empty_cache",
    "set_memory_fraction_fn": "strandline_set_memory_fraction",
    "set_begin_allocate_to_pool": "strandline_begin_pool",
    "set_end_allocate_to_pool_fn": "strandline_end_pool",
    "set_release_pool": "strandline_release_pool",
}

# strandline_memory_stats, in its order.
_METRICS = ("allocation", "allocated_bytes", "requested_bytes")
_POOLS = ("all", "small_pool", "large_pool")
_FIELDS = ("current", "peak", "allocated", "freed")
_WORDS = 44


def _nothing() -> dict[str, int]:
    return dict.fromkeys(_FIELDS, 0)


def _statistics(device: int) -> dict[str, Any]:
    """What torch._C._cuda_memoryStats returns, from the door's own numbers."""
    words = (ctypes.c_uint64 * _WORDS)()
    count = _library.library().strandline_memory_stats(device, words, _WORDS)
    if count != _WORDS:
        raise _library.Error(
            f"{_library.library_path()} has {count} numbers and this package knows {_WORDS}: "
            "install the package that belongs to it"
        )
    numbers = iter(words)
    stats: dict[str, Any] = {
        metric: {pool: {field: next(numbers) for field in _FIELDS} for pool in _POOLS} for metric in _METRICS
    }
    reserved = {field: next(numbers) for field in _FIELDS}
    retries, ooms, grown, shrunk = numbers
    # A block is active as long as it is handed out; the driver's pool shows no segments and splits nothing.
    stats["active"] = stats["allocation"]
    stats["active_bytes"] = stats["allocated_bytes"]
    stats["reserved_bytes"] = {"all": reserved, "small_pool": _nothing(), "large_pool": dict(reserved)}
    for metric in ("segment", "inactive_split", "inactive_split_bytes"):
        stats[metric] = {pool: _nothing() for pool in _POOLS}
    stats["oversize_allocations"] = _nothing()
    stats["oversize_segments"] = _nothing()
    stats["max_split_size"] = -1
    stats["num_alloc_retries"] = retries
    stats["num_ooms"] = ooms
    stats["num_sync_all_streams"] = 0
    stats["num_device_alloc"] = grown
    stats["num_device_free"] = shrunk
    return stats


def _restore_statistics(torch: Any) -> None:
    """torch.cuda.memory asks torch._C, which knows nothing of an allocator that is not PyTorch's own: answer there."""
    reset = _library.library().strandline_reset_memory_stats

    def reset_peak(device: int) -> None:
        reset(device, 0)

    def reset_accumulated(device: int) -> None:
        reset(device, 1)

    def fraction(device: int) -> float:
        return float(_library.library().strandline_memory_fraction(device))

    answers: dict[str, Callable[..., Any]] = {
        "_cuda_memoryStats": _statistics,
        "_cuda_resetPeakMemoryStats": reset_peak,
        "_cuda_resetAccumulatedMemoryStats": reset_accumulated,
        "_cuda_getMemoryFraction": fraction,
        "_accelerator_isAllocatorInitialized": torch.cuda.is_initialized,
        "_accelerator_getDeviceStats": _statistics,
        "_accelerator_resetPeakStats": reset_peak,
        "_accelerator_resetAccumulatedStats": reset_accumulated,
    }
    for name, answer in answers.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, answer)


@functools.lru_cache(maxsize=None)
def allocator() -> Any:
    """strandline's allocator as a `torch.cuda.memory.CUDAPluggableAllocator`, for `torch.cuda.MemPool` say."""
    torch: Any = importlib.import_module("torch")
    made: Any = torch.cuda.memory.CUDAPluggableAllocator(
        _library.library()._name, "strandline_malloc", "strandline_free"
    )
    for setter, function in _SETTERS.items():
        if hasattr(made.allocator(), setter):
            address = ctypes.cast(getattr(_library.library(), function), ctypes.c_void_p).value
            getattr(made.allocator(), setter)(address)
    return made


def use_allocator() -> Any:
    """All of PyTorch's device memory comes through strandline from now on. To be called before the first CUDA tensor.

    Returns the `CUDAPluggableAllocator`. Raises `strandline.Error` where it is too late, or the library is not found.
    """
    torch: Any = importlib.import_module("torch")
    if torch.cuda.is_initialized():
        raise _library.Error(
            "PyTorch uses its own allocator already: call strandline.use_allocator() before the first CUDA tensor, "
            "or start the job with `strandline run`, which works with PyTorch's own allocator"
        )
    made = allocator()
    torch.cuda.memory.change_current_allocator(made)
    _restore_statistics(torch)
    return made
