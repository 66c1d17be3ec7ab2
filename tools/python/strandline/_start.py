"""The late door: a Python that runs already is recorded from now on."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from typing import Any, Optional, Union

from . import _cupy, _library

# What strandline_start is told where there is no PyTorch to attach to.
_NO_TORCH = -2
# What strandline_start says where it does not record, and where it did until `stop`.
_DOES_NOT = 1
_WAS_STOPPED = 3
# What strandline_stop says where the last pages were not written.
_NOT_WRITTEN = 2


def _tell_devices(torch: Any) -> int:
    """What the program knows of its devices already; its own query was before us. Returns the current one, or -1."""
    if not torch.cuda.is_initialized():
        return -1
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        _library.library().strandline_device(index, properties.name.encode(), properties.total_memory)
    return int(torch.cuda.current_device())


def start(
    out: Union[str, os.PathLike[str], None] = None,
    *,
    stacks: Optional[str] = None,
    steps: Optional[str] = None,
    max_size: Union[int, str, None] = None,
    quiet: Optional[bool] = None,
) -> Optional[str]:
    """Records this process from now on, and returns the recording's path.

    `out`: the folder (or the `.strand` file) that the recording goes to. `stacks`, `steps`, `max_size` (bytes, or `"1GiB"`) and `quiet`
    are as the variables STRANDLINE_STACKS and so on have them. Blocks, steps and verdicts are from now on; memory that is allocated
    already is known as a sum. Where the process is recorded already, nothing happens.

    Where CuPy is imported already, its pool is seen block by block from now on, by CuPy's own memory hooks; without PyTorch too.

    Raises `strandline.Error` where the library is not found, or says on stderr why it does not record.
    """
    asked = {
        "STRANDLINE_OUT": None if out is None else os.fspath(out),
        "STRANDLINE_STACKS": stacks,
        "STRANDLINE_STEPS": steps,
        "STRANDLINE_MAX_SIZE": None if max_size is None else str(max_size),
        "STRANDLINE_QUIET": None if quiet is None else str(int(quiet)),
    }
    os.environ.update({name: value for name, value in asked.items() if value is not None})
    if steps is not None and steps.startswith("nvtx:"):
        os.environ.setdefault("NVTX_INJECTION64_PATH", _library.library_path())
    device = _NO_TORCH
    if "torch" in sys.modules or not _cupy.is_there():
        torch: Any = importlib.import_module("torch")
        if torch.version.cuda is None:
            raise _library.Error(f"torch {torch.__version__} of {sys.executable} is built without CUDA: nothing to record")
        device = _tell_devices(torch)
    # With the GIL held, unlike other calls: the hooks on torch's optimizers are put there at once.
    started = ctypes.PyDLL(_library.library_path()).strandline_start(device)
    if started == _WAS_STOPPED:
        raise _library.Error("this process is not recorded again: strandline.stop() has ended its recording; start a new process")
    if started == _DOES_NOT:
        disabled = os.environ.get("STRANDLINE_DISABLE") == "1"
        why = "STRANDLINE_DISABLE=1 is set" if disabled else "see strandline's line on stderr"
        raise _library.Error(f"this process is not recorded: {why}")
    # Beside PyTorch's own allocator what CuPy takes is a library's.
    if "torch" not in sys.modules and _cupy.is_there():
        _cupy.watch()
    return _library.recording()


def stop() -> Optional[str]:
    """Ends the recording of this process, and returns its path; `None`: this process is not recorded.

    The recording is complete then, and `strandline.report()` still reads it. The process goes on as before: what was hooked stays hooked,
    and only forwards. It is not recorded again; `strandline.start()` raises `strandline.Error` from then on.

    Raises `strandline.Error` where the last pages cannot be written within ten seconds, or at all.
    """
    # Without the GIL, unlike `start`: it waits for the thread that writes.
    stopped = _library.library().strandline_stop() if _library.is_loaded() else None
    if stopped == _NOT_WRITTEN:
        raise _library.Error("the end of the recording could not be written: see strandline's line on stderr")
    return _library.recording() if stopped == 0 else None
