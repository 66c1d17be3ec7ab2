"""Frames of a job's own of which an interpreter says odd things, below those that the recorder makes for its check.

    below.py FOLDER_OF_TORCH_LIB held|released WAY
"""

import sys

from allocator import Allocator

folder, how, way = sys.argv[1:]


def settle():
    for _ in range(100_000):
        pass  # long enough for a pending call


def begin():
    allocator = Allocator(folder, held=how == "held")
    settle()
    allocator.delete(allocator.this, allocator.alloc(allocator.this, 1000))
    print("allocated")


def traced():
    """The tracer is gone, its mark on this frame is not: up to 3.9 the frame's line stays the one that was traced last."""
    sys.settrace(lambda frame, event, argument: None)
    frame = sys._getframe()
    frame.f_trace = lambda frame, event, argument: None
    sys.settrace(None)

    begin()


def named():
    """A name that ends for C before it ends for Python."""
    go.__code__ = begin.__code__.replace(co_filename="a\0b", co_name="c\0d")
    go()


def go():
    pass


{"traced": traced, "named": named}[way]()
