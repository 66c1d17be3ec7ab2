"""What the recorder does between two allocations, on threads that have never allocated before and on ones that have.

    windows.py FOLDER_OF_TORCH_LIB LIBRARY_OF_COUNTERS
    windows.py FOLDER_OF_TORCH_LIB traced
"""

import ctypes
import json
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "frames"))
from allocator import Allocator  # noqa: E402

folder, counters = sys.argv[1:]
A = Allocator(folder)
SIZE = 4096
NEXT = list(range(8))


def address(function):
    return ctypes.cast(function, ctypes.c_void_p)


def window(pairs):
    """One line for all windows: the stack of an allocation is where its thread called us, and it shall be the same."""
    C.counted_window(address(A.alloc), address(A.delete), ctypes.c_void_p(A.this), ctypes.c_size_t(SIZE), pairs)
    calls = {C.counted_name(i).decode(): C.counted_hits(i) for i in range(imports) if C.counted_hits(i)}
    return {"calls": calls, "system_call": C.counted_refused()}


def unseen(n, depth):
    """A window at the end of functions that did not exist before: in files and by names of every width of character."""
    letter = "aé函𠀀"[n % 4]
    space = {"window": window}
    for d in range(depth):
        inner = f"f{letter.replace('𠀀', '𐌰')}{d - 1}()" if d else "window(1)"
        source = "\n" * n + f"def f{letter.replace('𠀀', '𐌰')}{d}():\n    return {inner}\n"
        exec(compile(source, f"<{letter} {n} {d}>", "exec"), space)
    return space[f"f{letter.replace('𠀀', '𐌰')}{depth - 1}"]()


def thread(name):
    said = []

    def work():
        for pairs in (1, 1000):
            said.append(window(pairs))
        said.extend(unseen(NEXT.pop(), depth) for depth in (1, 3, 30, 300))
        done.set()
        threading.Event().wait()  # it stays: the next one gets a place that nobody had

    done = threading.Event()
    threading.Thread(target=work, daemon=True).start()
    done.wait()
    for which, row in zip(("first", "later", "unseen", "unseen", "unseen", "unseen"), said):
        print(json.dumps({"thread": name, "window": which, **row}))


A.delete(A.this, A.alloc(A.this, SIZE))  # the segment
if counters == "traced":
    for _ in range(200):
        A.delete(A.this, A.alloc(A.this, SIZE))
    os._exit(0)
C = ctypes.CDLL(counters)
C.counted_name.restype = ctypes.c_char_p
C.counted_hits.restype = ctypes.c_uint64
C.counted_refused.restype = C.counted_self_test.restype = ctypes.c_long
imports = C.counted_begin()
print(json.dumps({"imports": imports, "self_test": C.counted_self_test()}))
thread("one that is the first in its stack")
thread("another")
