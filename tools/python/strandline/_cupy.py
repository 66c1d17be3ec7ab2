"""CuPy's pool, block by block: CuPy calls a memory hook for each block that its pool hands out and takes back.

CuPy keeps hooks by thread, so each thread that is begun from now on gets its own; threads that run already have none.
"""

import ctypes
import sys
import threading

from . import _library

# What the hooks call; empty as long as there are none.
_functions = []


def _look_up():
    # With the GIL held: who allocates is read from the thread's own Python frames.
    library = ctypes.PyDLL(_library.library_path())
    if not hasattr(library, "strandline_cupy"):
        raise _library.Error(f"{_library.library_path()} knows nothing of CuPy: install the command that belongs to this package")
    library.strandline_block.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64]
    library.strandline_block_gone.argtypes = [ctypes.c_int, ctypes.c_uint64]
    library.strandline_block.restype = library.strandline_block_gone.restype = None
    return library


def is_there():
    """Whether this program has imported CuPy, and it has memory hooks."""
    return "cupy.cuda.memory_hook" in sys.modules


def watch():
    """Puts the hook on this thread and on those that are begun from now on. Returns whether the pool is seen from now on."""
    if _functions:
        return True
    cupy, memory_hook = sys.modules["cupy"], sys.modules["cupy.cuda.memory_hook"]
    library = _look_up()
    if library.strandline_cupy() != 0:
        return False
    block, gone, current_stream = library.strandline_block, library.strandline_block_gone, cupy.cuda.get_current_stream
    _functions[:] = [block, gone, current_stream]

    class Hook(memory_hook.MemoryHook):
        name = "strandline"
        failed = False

        # Both at the moment when an address has one owner: after the pool has given it, before the pool has it back. What goes
        # wrong here is never the program's to hear.
        def malloc_postprocess(self, **told):
            try:
                if not self.failed:
                    block(told["device_id"], told["mem_ptr"], told["size"], current_stream().ptr)
            except Exception as e:
                self.failed = True
                print(f"strandline: CuPy's pool is not seen any more: {e!r}", file=sys.stderr)

        def free_preprocess(self, **told):
            try:
                gone(told["device_id"], told["mem_ptr"])
            except Exception:
                self.failed = True

    hook = Hook()

    def here():
        if hook.name not in memory_hook.get_memory_hooks():
            hook.__enter__()

    here()
    begin = getattr(threading.Thread, "_bootstrap_inner", None)
    if begin is not None:

        def _bootstrap_inner(self):
            here()
            begin(self)

        threading.Thread._bootstrap_inner = _bootstrap_inner
    return True
