import collections
import ctypes
import os

from . import memory_hook

# CuPy's own code is what calls the driver, as this library's path says.
_driver = ctypes.CDLL(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "chunk.so"))
_driver.chunk.restype = ctypes.c_uint64


class _Stream:
    ptr = 0


def get_current_stream():
    return _Stream


class Block:
    def __init__(self, pool, ptr, size):
        self.pool, self.ptr, self.size = pool, ptr, size

    def __del__(self):
        self.pool.free(self)


class Pool:
    """Takes chunks of 32 MiB of the driver, and gives nothing back."""

    def __init__(self):
        self.chunks, self.free_list = [], collections.defaultdict(list)

    def _take(self, size):
        if self.free_list[size]:
            return self.free_list[size].pop()
        if not self.chunks or self.chunks[-1][1] + size > 32 << 20:
            self.chunks.append([_driver.chunk(ctypes.c_size_t(32 << 20)), 0])
        chunk = self.chunks[-1]
        chunk[1] += size
        return chunk[0] + chunk[1] - size

    def malloc(self, size):
        rounded = -(-size // 512) * 512
        hooks = list(memory_hook.get_memory_hooks().values())
        for hook in hooks:
            hook.malloc_preprocess(device_id=0, size=size, mem_size=rounded)
        block = Block(self, self._take(rounded), rounded)
        for hook in hooks:
            hook.malloc_postprocess(device_id=0, size=size, mem_size=rounded, mem_ptr=block.ptr, pmem_id=id(block))
        return block

    def free(self, block):
        told = dict(device_id=0, mem_size=block.size, mem_ptr=block.ptr, pmem_id=id(block))
        hooks = list(memory_hook.get_memory_hooks().values())
        for hook in hooks:
            hook.free_preprocess(**told)
        self.free_list[block.size].append(block.ptr)
        for hook in hooks:
            hook.free_postprocess(**told)
