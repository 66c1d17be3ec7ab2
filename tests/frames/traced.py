"""A tracer and a profiler that raise at code they do not know: Python takes one that raises off its thread.

    traced.py FOLDER_OF_TORCH_LIB held|released trace|profile
"""

import sys

from allocator import Allocator

folder, how, what = sys.argv[1:]


def tracer(frame, event, argument):
    file = frame.f_code.co_filename
    if "strandline" in file.rsplit("/", 1)[-1]:
        raise RuntimeError("unknown code")


take, put = (sys.getprofile, sys.setprofile) if what == "profile" else (sys.gettrace, sys.settrace)
put(tracer)
allocator = Allocator(folder, held=how == "held")
for _ in range(100_000):
    pass  # long enough for a pending call
allocator.delete(allocator.this, allocator.alloc(allocator.this, 1000))
print("still set:", take() is tracer)
