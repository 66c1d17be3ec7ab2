"""What a region of the program leaves behind on the GPU: by line, from this process's own recording."""

from __future__ import annotations

import contextlib
import gc
import heapq
import itertools
import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Optional, Union

from . import _library, _size

# Lines that a message lists.
_LISTED = 5


@dataclass(frozen=True)
class Line:
    """Blocks that are still in use, and the line that allocated them."""

    file: Optional[str]
    """Path of the source file; `None` where no Python frame was seen."""
    line: Optional[int]
    """Number of the line, from 1."""
    function: Optional[str]
    """Qualified name of the function."""
    bytes: int
    """Bytes in use, as PyTorch rounds them."""
    blocks: int
    """Number of these blocks."""
    your_line: Optional[str] = None
    """The innermost line outside of installed packages, as `file:line function`, if it is a different line."""
    node: Optional[str] = None
    """The autograd node that allocated the memory, such as `MmBackward0`."""
    kept_by: Optional[str] = None
    """The objects that keep these blocks, the nearest name first: searched for only if a limit was exceeded."""
    without_tensor: Optional[tuple[int, int]] = None
    """Of these blocks, how many belong to no tensor of the program, although the others do, and their bytes. A library may keep them,
    such as cuBLAS its workspace, or an autograd graph."""
    kept_at: Optional[str] = None
    """The statement in your source that stores them, as `file:line: statement`, if exactly one was found."""
    modified_source: Optional[str] = None
    """A file that was not searched for that statement, because it was modified after the run began."""
    addresses: Sequence[tuple[int, int, int]] = field(default=(), repr=False, compare=False)
    """Device, address and bytes of the last of them."""

    def __str__(self) -> str:
        if self.file is None:
            return "an unknown line"
        text = f"{self.file}:{self.line} {self.function}"
        if self.node:
            text = f"{self.node} of the backward called at {text}"
        return f"{text}, called at {self.your_line}" if self.your_line else text


@dataclass(frozen=True)
class Left:
    """What a region left behind."""

    bytes: int
    """Bytes of blocks that were allocated in the region and are still in use at its end, minus older blocks that it freed."""
    lines: Sequence[Line] = ()
    """The lines that allocated them, the largest first."""
    peaks: Sequence[tuple[int, int, Sequence[Line]]] = ()
    """For each device: its index, the most bytes in use within the region, and the lines that held the most then."""

    def __str__(self) -> str:
        return "\n".join([f"{_size.in_words(self.bytes)} left behind on the GPU", *describe(self.lines)])


class Leaked(AssertionError):
    """A region left more behind than it may. `left` says what, and which line allocated it."""

    def __init__(self, message: str, left: Left) -> None:
        super().__init__(message)
        self.left = left


def describe(lines: Sequence[Line], what: str = "allocated at") -> list[str]:
    """A row of text for each line, as many as a person reads."""
    rows: list[str] = []
    for x in lines[:_LISTED]:
        rows.append(f"  {_size.in_words(x.bytes):>10}  {_size.blocks(x.blocks):<10}  {what} {x}")
        if x.kept_by is not None:
            rows.append(f"{'':>24}  held by {x.kept_by}")
        if x.without_tensor is not None:
            blocks, apart = x.without_tensor
            said = f"{_size.blocks(blocks)} of these ({_size.in_words(apart)}) belong{'s' if blocks == 1 else ''} to no tensor"
            rows.append(f"{'':>24}  {said}: a library's workspace, such as cuBLAS's, or kept by an autograd graph")
        if x.kept_at is not None:
            rows.append(f"{'':>24}  kept at {x.kept_at}")
        if x.modified_source is not None:
            said = f"unknown: {x.modified_source} was modified after the run began, so it was not searched"
            rows.append(f"{'':>24}  kept at {said}")
    return [*rows, f"  and {len(lines) - _LISTED} more lines"] if len(lines) > _LISTED else rows


def _line(told: dict[str, Any], less: int = 0) -> Line:
    yours = told.get("your_line") or told
    is_same = (yours["file"], yours["line"]) == (told["file"], told["line"])
    return Line(
        file=told["file"],
        line=told["line"],
        function=told["function"],
        bytes=told["bytes"] - less,
        blocks=told["blocks"],
        your_line=None if is_same else f"{yours['file']}:{yours['line']} {yours['function']}",
        node=told.get("node"),
        addresses=tuple((a[0], a[1], a[2]) for a in told.get("addresses", ())),
    )


def torch_of_job() -> Any:
    """PyTorch, where the program has imported it and can use a GPU."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_available() else None


def allocated() -> Optional[int]:
    """Bytes that PyTorch's allocator has handed out on all devices; `None` where that cannot be told."""
    torch = sys.modules.get("torch")
    if torch is None or "cupy" in sys.modules:
        return None
    if not torch.cuda.is_initialized():
        return 0
    return sum(int(torch.cuda.memory_allocated(i)) for i in range(int(torch.cuda.device_count())))


class Region:
    """The marks of a region: the command `strandline left` knows them."""

    _lock = threading.Lock()
    _free: list[int] = []
    _next = itertools.count()

    def __init__(self) -> None:
        # Numbers are used again: a recording keeps each name for good.
        with Region._lock:
            self._number: Optional[int] = heapq.heappop(Region._free) if Region._free else next(Region._next)
        self.name = f"strandline region {self._number}"
        self._was_recorded = False
        self._begun = False

    def begin(self) -> None:
        """The region begins, once the garbage collector has freed what is garbage. The process is recorded from now on, where it was not and PyTorch can use a GPU."""
        gc.collect()
        if _recording() is None and torch_of_job() is not None:
            from ._start import start

            start(quiet=True)
        self._was_recorded = _recording() is not None
        self._begun = self._mark("begin")

    def skip(self) -> None:
        """What is allocated from now on is not the region's."""
        self._mark("skip")

    def count(self) -> None:
        """What is allocated from now on is the region's again."""
        self._mark("count")

    def end(self) -> None:
        """The region ends, once the garbage collector has freed what is garbage."""
        gc.collect()
        self._mark("end")

    def close(self) -> None:
        """Nothing more is asked about it."""
        with Region._lock:
            if self._number is not None:
                heapq.heappush(Region._free, self._number)
            self._number = None

    def _mark(self, what: str) -> bool:
        return _recording() is not None and _library.mark(f"{self.name} {what}")

    def left(self, peak: bool = False) -> Left:
        """What it left behind. Raises `strandline.Error` where that cannot be told."""
        path = _recording()
        if path is None:
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                raise _library.Error(
                    "this process began to use the GPU in this region and is not recorded: "
                    "call strandline.start() before it, or start the program with `strandline run`"
                )
            return Left(0)
        told = self._ask(path, *(["--peak"] if peak else []))
        if not told["end_seen"] or told["begin_seen"] != self._begun or (self._was_recorded and not self._begun):
            raise _library.Error("the beginning and end of this region are not in the recording, so what it left behind is not known")
        if not told["complete"]:
            raise _library.Error("events of this region are missing in the recording, so what it left behind is not known")
        rows = [(row, row["bytes"] - row["freed_bytes"]) for row in told["lines"]]
        lines = [_line(row, row["freed_bytes"]) for row, more in rows if more > 0]
        peaks = [
            (d["index"], d["peak_allocated_bytes"], tuple(_line(row) for row in d["peak_lines"] or ())) for d in told["devices"]
        ]
        return Left(told["left_bytes"], tuple(lines) if told["left_bytes"] else (), tuple(peaks))

    def _ask(self, path: str, *words: str) -> Any:
        return json.loads(_library.ask("left", path, "--region", self.name, "--format", "json", *words))

    def with_keepers(self, left: Left) -> Left:
        """The same, with who keeps what the first lines allocated, and the statements that put it there."""
        from ._keeper import Keepers, in_words

        keepers = Keepers([line.addresses for line in left.lines[:_LISTED]])
        found = keepers.names
        asked = [
            {
                "file": left.lines[i].file,
                "line": left.lines[i].line,
                "node": left.lines[i].node,
                "scopes": [name.scope for name in names if name.scope is not None],
            }
            for i, names in found.items()
        ]
        path = _recording()
        rows: list[dict[str, Any]] = []
        if path is not None and asked:
            with contextlib.suppress(_library.Error):
                rows = self._ask(path, "--kept-by", json.dumps(asked))["lines"]
        told = {(x["file"], x["line"], x.get("node")): x for x in rows}

        def known(i: int, line: Line) -> Line:
            row = told.get((line.file, line.line, line.node), {})
            kept = row.get("kept_at")
            return replace(
                line,
                kept_by=in_words(found[i]) if found.get(i) else None,
                without_tensor=keepers.apart.get(i) if len(line.addresses) == line.blocks else None,
                kept_at=f"{kept['file']}:{kept['line']}: {kept['source']}" if kept else None,
                modified_source=row.get("modified_source"),
            )

        return replace(left, lines=tuple(known(i, line) for i, line in enumerate(left.lines)))


def _recording() -> Optional[str]:
    # Nothing of ours is loaded into a process that does not use a GPU.
    return _library.recording() if "torch" in sys.modules or "cupy" in sys.modules or _library.is_loaded() else None


def message(left: Left, limit: int) -> str:
    """What is said of a region that left more than `limit` bytes."""
    head = f"{_size.in_words(left.bytes)} left behind on the GPU, {_size.in_words(limit)} allowed"
    return "\n".join([head, *describe(left.lines)])


class watch_region:
    """What a block must not leave behind on the GPU.

        with strandline.watch_region(limit="1 MiB") as region:
            train_one_epoch()
        region.left.bytes, region.left.lines

    Memory counts that was allocated in the block, by any thread, and is still in use when the block has been left and the garbage
    collector has run, less what the block freed of older memory. More than `limit` (bytes, or `"1 MiB"`; `None`: any amount) raises
    `strandline.Leaked`, an `AssertionError`, with the lines that allocated it. An exception of the block's own passes unchanged,
    and nothing is judged. Where it cannot be told what is left, `strandline.Error` says why.

    A process that is not recorded is, from the block on (`strandline.start()`).
    """

    def __init__(self, limit: Union[int, str, None] = 0) -> None:
        self.limit = None if limit is None else _size.to_bytes(limit)
        # Whatever is left, and not only more than the limit, is said with who keeps it.
        self._names_keepers = False
        self._region: Optional[Region] = None
        self._left: Optional[Left] = None

    @property
    def left(self) -> Left:
        """What the block left behind; known once it has been left."""
        if self._left is None:
            raise _library.Error("what a region leaves behind is known only after its block has ended without an exception")
        return self._left

    def __enter__(self) -> watch_region:
        if self._region is not None:
            raise _library.Error("this region has already begun: create a new one for each `with` block")
        self._left = None
        region = Region()
        try:
            region.begin()
        except BaseException:
            region.close()
            raise
        self._region = region
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        region, self._region = self._region, None
        if region is None:
            return
        try:
            if raised is None:
                region.end()
                self._left = region.left()
                most = 0 if self._names_keepers else self.limit
                if most is not None and self._left.bytes > most:
                    self._left = region.with_keepers(self._left)
        finally:
            region.close()
        if self._left is not None and self.limit is not None and self._left.bytes > self.limit:
            raise Leaked(message(self._left, self.limit), self._left)
