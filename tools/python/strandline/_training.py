"""One training, as its trainer sees it: steps, phases, figures for its log, and the verdict at its end. What the callbacks share."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Sequence
from typing import Any, Callable, Literal, Optional, TypeVar

from . import _library, _loggers, _report
from ._phase import Phase
from ._region import torch_of_job

_T = TypeVar("_T")

OnGrowth = Literal["log", "save_and_stop"]
"""What to do when memory grows: write it to the trainer's log, or also save a checkpoint and end the training before the device is full."""

# The share of a training's time in which it may wait for the command to read its recording.
_SHARE = 0.01
_MIB = float(1 << 20)


class Training:
    """What a callback tells strandline, and what it is told.

    Nothing happens in a process that is not recorded. Nothing of it raises: where something fails, one line on stderr says so, and
    nothing more happens.
    """

    def __init__(self, on_growth: OnGrowth) -> None:
        if on_growth not in ("log", "save_and_stop"):
            raise _library.Error(f"on_growth is {on_growth!r}: it can be 'log' or 'save_and_stop'")
        self._on_growth = on_growth
        self._works = False
        self._phase: Optional[Phase] = None
        self._growth: dict[str, float] = {}
        self._next_look = 0.0
        self._last_look = 0.0
        self._is_urgent = self._is_imminent = False
        self._reason = self._said = ("", "")

    def begin(self) -> None:
        """The training begins."""
        self._works = True
        self._growth, self._next_look, self._last_look = {}, 0.0, time.monotonic()
        self._is_urgent = self._is_imminent = False
        self._said = ("", "")
        # Nothing of ours is loaded into a process that is not recorded.
        self._works = self._attempt(_library.is_loaded, False)

    def step(self, n: int) -> None:
        """Step `n`, from 1, has ended."""
        self._attempt(lambda: _library.step(n), False)

    def mark(self, name: str) -> None:
        """Something to be found again in the recording."""
        self._attempt(lambda: _library.mark(name), False)

    def phase(self, name: Optional[str]) -> None:
        """A phase other than training has begun; `None`: it has ended."""
        if name != (self._phase.name if self._phase else None):
            self._attempt(lambda: self._change(name), None)

    def _change(self, name: Optional[str]) -> None:
        if self._phase is not None:
            self._phase.__exit__(None, None, None)
        self._phase = Phase(name) if name is not None else None

    def log(self, send: Callable[[dict[str, float]], object], last: bool = False) -> None:
        """Gives `send` what the trainer's log is to have, in MiB and steps. `last`: the training has ended."""

        def log() -> None:
            figures = self._figures(last)
            if figures:
                send(figures)

        self._attempt(log, None)

    def should_stop(self) -> bool:
        """Whether to save and end: the same on all ranks, which all have to ask at the same steps."""
        if self._on_growth == "log":
            return False
        return self._on_any_rank()

    def alert(self, logger: _loggers.Logger) -> None:
        """Gives a logger the verdict of the last look, where the device will be full soon: once, until it changes."""
        if self._is_urgent and self._reason != self._said:
            self._said = self._reason
            self._attempt(lambda: logger.verdict(*self._reason), None)

    def end(self, loggers: Callable[[], Sequence[Optional[_loggers.Logger]]] = list, with_files: bool = True) -> None:
        """The training has ended: says the verdict on stderr, and gives it to loggers (`None` is left out), with the page and the snapshot."""
        self.phase(None)

        def end() -> None:
            path = _library.recording()
            if path is None:
                return
            sentence = self._verdict_of(path)
            print(sentence, file=sys.stderr)
            places = [logger for logger in loggers() if logger is not None]
            if places:
                _loggers.hand_over(places, path, _report.ask(path)["verdict"], sentence.partition(": ")[2], with_files)

        self._attempt(end, None)

    def _attempt(self, do: Callable[[], _T], otherwise: _T) -> _T:
        if not self._works:
            return otherwise
        try:
            return do()
        except Exception as e:
            self._works = False
            with contextlib.suppress(Exception):
                print(f"strandline: this training is no longer watched: {type(e).__name__}: {e}", file=sys.stderr)
            return otherwise

    def _figures(self, last: bool) -> dict[str, float]:
        torch, path = torch_of_job(), _library.recording()
        if torch is None or path is None or not torch.cuda.is_initialized():
            return {}
        self._look(path, last)

        def mib(of: Callable[[int], Any]) -> float:
            return sum(int(of(i)) for i in range(int(torch.cuda.device_count()))) / _MIB

        return {
            "strandline/allocated_mib": mib(torch.cuda.memory_allocated),
            "strandline/reserved_mib": mib(torch.cuda.memory_reserved),
            "strandline/peak_allocated_mib": mib(torch.cuda.max_memory_allocated),
            **self._growth,
        }

    def _look(self, path: str, last: bool) -> None:
        begun = time.monotonic()
        if begun < self._next_look and not last:
            return
        told = _report.ask(path)
        self._reason = (told["verdict"], told["reason"])
        found = told["processes"][0]["findings"]
        now = time.monotonic()
        self._next_look = now + (now - begun) / _SHARE
        grows = [f for f in found if f["certainty"] in ("leak", "growing") and f["withdrawn_step"] is None and not f["suppressed_by"]]
        self._growth = {"strandline/growth_mib_per_step": sum(f["bytes_per_step"] or 0 for f in grows) / _MIB}
        until_full = [f["steps_to_oom"]["mid"] for f in grows if f["steps_to_oom"] and f["steps_to_oom"]["mid"] is not None]
        if until_full:
            self._growth["strandline/steps_until_full"] = min(until_full)
        self._is_urgent = any(f["severity"] == "alert" for f in grows)
        # The device may be full before the next look but one.
        soon = 2 * (now - self._last_look)
        self._last_look = now

        def is_imminent(f: dict[str, Any]) -> bool:
            told: Optional[dict[str, Optional[float]]] = f["seconds_to_oom"]
            seconds = told["mid"] if told else None
            return bool(f["imminent"]) or (f["severity"] == "alert" and seconds is not None and seconds <= soon)

        self._is_imminent = any(map(is_imminent, grows))

    def _on_any_rank(self) -> bool:
        # Also where this process is not recorded, or we have failed: others wait for this rank.
        torch: Any = sys.modules["torch"]
        group = torch.distributed
        if not group.is_available() or not group.is_initialized() or group.get_world_size() == 1:
            return self._is_imminent
        device = "cpu" if group.get_backend() in ("gloo", "mpi", "undefined") else "cuda"
        urgent = torch.tensor([int(self._is_imminent)], device=device)
        group.all_reduce(urgent, op=group.ReduceOp.MAX)
        return bool(urgent.item())

    def _verdict_of(self, path: str) -> str:
        # The first sentence of the report, and the lines that it goes on in.
        said = re.match(r".*(?:\n {12}.*)*", _library.ask("report", path))
        return " ".join(said[0].split()) if said else ""
