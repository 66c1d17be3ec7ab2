"""One test of the pytest plugin, watched: nothing that goes wrong here is the test's to suffer."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator
from typing import Any, Optional

from . import _library, _size
from ._region import Left, Region, allocated, describe, torch_of_job

# Why nothing is said of a test that was to be judged.
_NO_GPU = (
    "PyTorch finds no GPU here: `strandline run --simulate 24GiB -- pytest …` runs PyTorch's allocator on a simulated GPU"
)
_FAILED = "the test did not pass"


class WatchedTest:
    """What a test may leave behind, and what it left."""

    def __init__(self, name: str, limit: Optional[int], warmup: int, most: Optional[int]) -> None:
        self.name, self.limit, self.warmup, self.most = name, limit, warmup, most
        self.has_passed = True
        self.is_begun = False
        # What is told in the test's failure.
        self.broken: list[str] = []
        self.left: Optional[Left] = None
        self.not_judged: Optional[str] = None
        self._region: Optional[Region] = None
        self._skips = 0
        # Bytes in use when the test's own part was last begun, and by how much all such parts have let them grow; `None`: unknown.
        self._since: Optional[int] = None
        self._grown: Optional[int] = 0

    @contextlib.contextmanager
    def _harmless(self) -> Generator[None, None, None]:
        try:
            yield
        except Exception as e:
            self.not_judged = self.not_judged or (str(e) if isinstance(e, _library.Error) else f"{type(e).__name__}: {e}")

    def begin(self) -> None:
        """Before the test's own fixtures are set up."""
        with self._harmless():
            self._region = Region()
            self._region.begin()
            self._since = allocated()
            self.is_begun = True

    def skip(self) -> None:
        """What is allocated from now on is not the test's, until `count` was called as often."""
        self._skips += 1
        if self._skips == 1 and self._region is not None:
            with self._harmless():
                self._add(self._since, allocated())
                self._region.skip()

    def count(self) -> None:
        """See `skip`."""
        self._skips -= 1
        if self._skips == 0 and self._region is not None:
            with self._harmless():
                self._region.count()
                self._since = allocated()

    def _add(self, since: Optional[int], now: Optional[int]) -> None:
        if self._grown is None or since is None or now is None:
            self._grown = None
        else:
            self._grown += now - since

    def drop(self) -> None:
        """It is not judged."""
        self.has_passed = False
        self._close()

    def _close(self) -> None:
        region, self._region = self._region, None
        if region is not None:
            region.close()

    def torn_down(self, let_go: Callable[[], None]) -> None:
        """The test's own fixtures are torn down, and others are not yet; `let_go` drops what pytest still has of the test."""
        with self._harmless():
            self._add(self._since, allocated())
            if not self._is_within():
                before = allocated()
                let_go()
                self._add(before, allocated())
            self._since = allocated()
        self.skip()

    def end(self) -> None:
        """The test is over."""
        with self._harmless():
            if not self.has_passed:
                self.not_judged = self.not_judged or _FAILED
            elif self._region is not None and self.not_judged is None:
                self._judge(self._region)
        self._close()

    def _judge(self, region: Region) -> None:
        if self._lacks_gpu():
            self.not_judged = _NO_GPU
            return
        if self.most is None and self._is_within():
            self.left = Left(0)
            return
        region.end()
        self.left = region.left(peak=self.most is not None)
        if self.limit is not None and self.left.bytes > self.limit:
            self.left = region.with_keepers(self.left)
            head = f"{_size.in_words(self.left.bytes)} left behind on the GPU, {_size.in_words(self.limit)} allowed"
            self.broken.append("\n".join([f"{head}: {self.name}", *describe(_near(self.left.lines))]))
        most = self.most
        for device, peak, lines in self.left.peaks:
            if most is not None and peak > most:
                head = f"{_size.in_words(peak)} in use on GPU {device}, {_size.in_words(most)} allowed"
                self.broken.append("\n".join([f"{head}: {self.name}", *describe(_near(lines), "held at the peak by")]))

    def _lacks_gpu(self) -> bool:
        """The test asks for a judgement, or could use a GPU, and there is none."""
        could = "torch" in sys.modules or self.limit is not None or self.most is not None
        return could and torch_of_job() is None and "cupy" not in sys.modules

    def _is_within(self) -> bool:
        """By PyTorch's own count no more than the limit has come to be in use: nobody needs to read the recording."""
        return self._grown is not None and self._grown <= (self.limit or 0)

    def told(self) -> dict[str, Any]:
        """What is known of it, as plain values."""
        left = self.left or Left(0)
        near = _near(left.lines)
        return {
            "test": self.name,
            "limit": self.limit,
            "bytes": left.bytes,
            "blocks": sum(line.blocks for line in left.lines),
            "line": str(near[0]) if near else None,
            "broken": len(self.broken),
            "not_judged": self.not_judged,
            "asked": self.limit is not None or self.most is not None,
        }


def _near(lines: Any) -> list[Any]:
    """With paths as pytest writes them: from the current folder."""
    import dataclasses

    here = os.getcwd() + os.sep

    def short(text: Optional[str]) -> Optional[str]:
        return text[len(here) :] if text is not None and text.startswith(here) else text

    names = ("file", "your_line", "kept_at", "modified_source")
    return [dataclasses.replace(line, **{name: short(getattr(line, name)) for name in names}) for line in lines]


def summary(told: list[dict[str, Any]], all_tests: bool) -> list[str]:
    """The table at the end of a run: tests that left something behind, the most first."""
    left = [t for t in told if t["bytes"] > 0 and (all_tests or t["broken"])]
    left.sort(key=lambda t: (-t["broken"], -t["bytes"], t["test"]))
    rows = [
        (
            "LEAK" if t["broken"] else "left",
            _size.in_words(t["bytes"]),
            _size.blocks(t["blocks"]),
            t["test"],
            f"allocated at {t['line']}",
        )
        for t in left
    ]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join([c.ljust(w) for c, w in zip(row[:4], widths)] + [row[4]]) for row in rows]
    reasons: dict[str, int] = {}
    for t in told:
        if t["not_judged"] is not None and t["not_judged"] != _FAILED and (t["asked"] or all_tests):
            reasons[t["not_judged"]] = reasons.get(t["not_judged"], 0) + 1
    lines += [f"not judged: {n} {'test' if n == 1 else 'tests'}: {why}" for why, n in reasons.items()]
    if all_tests and not left and not reasons:
        lines.append(f"nothing: {len(told)} tests")
    return lines
