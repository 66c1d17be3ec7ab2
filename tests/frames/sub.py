"""Allocates in sub-interpreters, beside them and after them; says what each stack was by the word of the interpreter it was in.

    sub.py FOLDER_OF_TORCH_LIB held
"""

import ctypes
import json
import sys
import threading

from allocator import Allocator

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

A = Allocator(sys.argv[1])
ADDRESSES = {name: ctypes.cast(getattr(A, name), ctypes.c_void_p).value for name in ("alloc", "delete")}
SOURCE = """
import ctypes, json, sys
word = ctypes.c_void_p
this = {this}
delete = ctypes.CFUNCTYPE(None, word, word)({delete})
alloc = [t(word, word, ctypes.c_size_t)({alloc}) for t in (ctypes.CFUNCTYPE, ctypes.PYFUNCTYPE)]
first = {first}

def note(size, block, frame):
    delete(this, block)
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append([code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)])
        frame = frame.f_back
    print(json.dumps({{"case": {case!r}, "size": size, "frames": frames}}), flush=True)

def take(n):
    size = first + n
    note(size, alloc[n % 2](this, size), sys._getframe())

def deep(left, n):
    return deep(left - 1, n) if left else take(n)

[deep(n, n) for n in range(20)]
def generated():
    for n in range(20, 24):
        yield take(n)
list(generated())
"""
first = 1000


def source(case):
    global first
    first += 1000
    return SOURCE.format(this=A.this, first=first, case=case, **ADDRESSES)


def here(case):
    exec(compile(source(case), "<here>", "exec"), {})


def create(isolated):
    if not isolated:
        for words in (("legacy",), ()):
            try:
                return interpreters.create(*words) if words else interpreters.create(isolated=False)
            except TypeError:
                continue
    return interpreters.create()


def run(sub, case):
    """Where ctypes cannot be imported there, nothing is allocated."""
    try:
        failed = interpreters.run_string(sub, source(case))
    except Exception as e:
        failed = e
    if failed is not None and "ctypes" not in str(failed):
        raise SystemExit(f"{case}: {failed}")


here("before")
for isolated in (False, True):
    sub = create(isolated)
    run(sub, f"in a sub-interpreter, isolated: {isolated}")
    here("beside it")
    worker = threading.Thread(target=lambda: (run(sub, f"in a thread, isolated: {isolated}"), here("beside it, in a thread")))
    worker.start()
    worker.join()
    interpreters.destroy(sub)
here("after")
