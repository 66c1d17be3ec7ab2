"""`%load_ext strandline`, then `%%strandline` before a cell: what the cell leaves behind on the GPU."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from . import _library, _size
from ._region import watch_region


class _Failed(Exception):
    """The cell raised, and IPython has shown what."""


def _needs_loop_in_use(shell: Any, cell: str) -> bool:
    """Whether the cell awaits something at its top level, in a kernel whose event loop runs this very magic."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return bool(shell.should_run_async(cell, transformed_cell=shell.transform_cell(cell)))


def _run(shell: Any, limit: str, cell: str) -> None:
    if _needs_loop_in_use(shell, cell):
        raise _library.Error(
            "a cell that uses `await` outside of a function cannot be run by %%strandline here: write its lines into "
            "`with strandline.watch_region(limit=None) as region:`, and `print(region.left)` after it"
        )
    region = watch_region(limit=_size.to_bytes(limit) if limit.strip() else None)
    region._names_keepers = True
    try:
        with region:
            if not shell.run_cell(cell, store_history=False).success:
                raise _Failed
    except _Failed:
        return
    left = region.left
    print(left if left.bytes > 0 else "nothing left behind on the GPU")


def load(shell: Any) -> None:
    """Gives a shell of IPython's the magic."""

    def strandline(line: str, cell: str) -> None:
        """%%strandline [LIMIT]: what this cell leaves behind on the GPU, by line; more than LIMIT raises `strandline.Leaked`."""
        try:
            _run(shell, line, cell)
        except _library.Error as e:
            print(f"strandline: {e}", file=sys.stderr)

    shell.register_magic_function(strandline, "cell", "strandline")
