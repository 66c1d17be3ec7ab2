"""strandline from inside a Python program.

    import strandline
    strandline.use_allocator()      # before the first CUDA tensor: all of PyTorch's device memory comes through strandline

    pool = torch.cuda.MemPool(strandline.allocator().allocator())       # or only what one region allocates
    with torch.cuda.use_mem_pool(pool): ...

    strandline.start()              # a process that runs already (Jupyter, Ray actors, pytest): recorded from now on

    strandline.step(n); strandline.phase("eval"); strandline.mark("epoch 2"); strandline.snapshot("now.pickle")

`start` needs nothing before the job; `strandline run` in front of it sees more, and earlier. `use_allocator` works with and without `strandline run` (LD_PRELOAD) in front of the job. Nothing else of the job changes:
`torch.cuda.memory_*`, `empty_cache` and the out-of-memory error are as with PyTorch's own allocator.
"""

from ._allocator import allocator, use_allocator
from ._library import Error, library, library_path, mark, phase, snapshot, step, version
from ._start import start

__all__ = [
    "Error",
    "allocator",
    "library",
    "library_path",
    "mark",
    "phase",
    "snapshot",
    "start",
    "step",
    "use_allocator",
    "version",
]
