"""CuPy's pool, block by block: CuPy calls a memory hook for each block that its pool hands out and takes back.

CuPy keeps hooks by thread, so each thread that is begun from now on gets its own; threads that run already have none.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

from . import _library

# What the hooks call; empty as long as there are none.
_functions: list[Any] = []


def _look_up() -> ctypes.PyDLL:
    # With the GIL held: who allocates is read from the thread's own Python frames.
    library = ctypes.PyDLL(_library.library_path())
    if not hasattr(library, "strandline_cupy"):
        raise _library.Error(f"{_library.library_path()} does not support CuPy: install the strandline command of the same version as this package")
    library.strandline_block.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64]
    library.strandline_block_gone.argtypes = [ctypes.c_int, ctypes.c_uint64]
    library.strandline_block.restype = library.strandline_block_gone.restype = None
    return library


def is_there() -> bool:
    """Whether this program has imported CuPy, and it has memory hooks."""
    return "cupy.cuda.memory_hook" in sys.modules


def watch() -> bool:
    """Puts the hook on this thread and on those that are begun from now on. Returns whether the pool is seen from now on."""
    if _functions:
        return True
    cupy: Any = sys.modules["cupy"]
    memory_hook: Any = sys.modules["cupy.cuda.memory_hook"]
    library = _look_up()
    if library.strandline_cupy() != 0:
        return False
    block, gone, current_stream = library.strandline_block, library.strandline_block_gone, cupy.cuda.get_current_stream
    _functions[:] = [block, gone, current_stream]

    base: Any = memory_hook.MemoryHook

    class Hook(base):  # type: ignore[misc]
        name = "strandline"
        failed = False

        # Both at the moment when an address has one owner: after the pool has given it, before the pool has it back. What goes
        # wrong here is never the program's to hear.
        def malloc_postprocess(self, **told: Any) -> None:
            try:
                if not self.failed:
                    block(told["device_id"], told["mem_ptr"], told["size"], current_stream().ptr)
            except Exception as e:
                self.failed = True
                print(f"strandline: CuPy's pool is no longer recorded: {e!r}", file=sys.stderr)

        def free_preprocess(self, **told: Any) -> None:
            try:
                gone(told["device_id"], told["mem_ptr"])
            except Exception:
                self.failed = True

    hook: Any = Hook()

    def here() -> None:
        if hook.name not in memory_hook.get_memory_hooks():
            hook.__enter__()

    here()
    begin = getattr(threading.Thread, "_bootstrap_inner", None)
    if begin is not None:

        def _bootstrap_inner(self: threading.Thread) -> None:
            here()
            begin(self)

        setattr(threading.Thread, "_bootstrap_inner", _bootstrap_inner)
    return True
