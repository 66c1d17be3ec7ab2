"""Stands in for CuPy where there is no device that its own runtime would take: a pool, and the hooks that CuPy calls for its
blocks, by CuPy's names and in CuPy's order (cupy/cuda/memory.pyx, memory_hook.pyx of 14.2)."""

from . import cuda
from .cuda import memory_hook

pool = cuda.Pool()


def empty(size):
    return pool.malloc(size)
