"""strandline from inside a Python program.

    import strandline
    strandline.use_allocator()      # before the first CUDA tensor: all of PyTorch's device memory comes through strandline

    pool = torch.cuda.MemPool(strandline.allocator().allocator())       # or only what one region allocates
    with torch.cuda.use_mem_pool(pool): ...

    strandline.start()              # a process that runs already (Jupyter, Ray actors, pytest): recorded from now on

    strandline.stop()               # the recording is complete; the process goes on without it

    strandline.step(n); strandline.phase("eval"); strandline.mark("epoch 2"); strandline.snapshot("now.pickle")

    print(strandline.report())      # what can be said of this process up to now

    with strandline.watch_region(limit="1 MiB"): ...    # what this block must not leave behind on the GPU

`start` needs nothing before the job; `strandline run` in front of it sees more, and earlier. `use_allocator` works with and without `strandline run` (LD_PRELOAD) in front of the job. Nothing else of the job changes:
`torch.cuda.memory_*`, `empty_cache` and the out-of-memory error are as with PyTorch's own allocator.

docs/python-api.md has it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._allocator import allocator, use_allocator
    from ._library import Error, command, library, library_path, mark, recording, snapshot, step, version
    from ._loop import Log, log_to
    from ._phase import Phase, phase
    from ._region import Leaked, Left, Line, watch_region
    from ._report import Finding, Report, report
    from ._start import start, stop

__all__ = [
    "Error",
    "Finding",
    "Leaked",
    "Left",
    "Line",
    "Log",
    "Phase",
    "Report",
    "allocator",
    "command",
    "library",
    "library_path",
    "log_to",
    "mark",
    "phase",
    "recording",
    "report",
    "snapshot",
    "start",
    "step",
    "stop",
    "use_allocator",
    "version",
    "watch_region",
]

# Where each name is: a program that imports this package, as pytest does for the plugin, pays for what it uses.
_PLACES = {
    "_allocator": ("allocator", "use_allocator"),
    "_library": ("Error", "command", "library", "library_path", "mark", "recording", "snapshot", "step", "version"),
    "_loop": ("Log", "log_to"),
    "_phase": ("Phase", "phase"),
    "_region": ("Leaked", "Left", "Line", "watch_region"),
    "_report": ("Finding", "Report", "report"),
    "_start": ("start", "stop"),
}


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            import importlib

            value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext strandline`: gives notebooks the cell magic `%%strandline`."""
    from ._magic import load

    load(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
