"""One training, as its trainer sees it: steps, phases, figures for its log, and the verdict at its end. What the callbacks share."""

from __future__ import annotations

import contextlib
import math
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
# It waits all the same where a device has become this much fuller: this share is left of what was free at the last look.
_LEFT_FREE = 2 / 3
# Steps between two checks whether to save and stop.
_CHECKED_EVERY = 10
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
        # As of the last look: bytes of each device that PyTorch can use, how many of the fullest had never been in use, and the step at which one is full.
        self._sizes: dict[int, int] = {}
        self._free = 0
        self._full_at = math.inf
        self._next_look = 0.0
        self._step = 0
        self._is_urgent = self._is_imminent = False
        self._reason = self._said = ("", "")

    def begin(self) -> None:
        """The training begins."""
        self._works = True
        self._growth, self._sizes, self._full_at = {}, {}, math.inf
        self._next_look, self._step = 0.0, 0
        self._is_urgent = self._is_imminent = False
        self._said = ("", "")
        # Nothing of ours is loaded into a process that is not recorded.
        self._works = self._attempt(_library.is_loaded, False)

    def step(self, n: int) -> None:
        """Step `n`, from 1, has ended."""
        self._step = n
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

    def should_stop(self, before: int) -> bool:
        """Whether to save and end after this step, the next one after `before`: the same on all ranks, which all have to ask after the same steps."""
        if self._on_growth == "log" or self._step // _CHECKED_EVERY == before // _CHECKED_EVERY:
            return False
        # A device may be full at the next check but one.
        is_near = self._full_at <= self._step + 2 * _CHECKED_EVERY
        self._attempt(lambda: self._look(at_once=is_near), None)
        return self._on_any_rank()

    def alert(self, logger: _loggers.Logger) -> None:
        """Gives a logger the verdict of the last look, where the device will be full soon: once, until it changes."""
        if self._is_urgent and self._reason != self._said:
            self._said = self._reason
            self._attempt(lambda: logger.verdict(self._reason[0], self._sentence()), None)

    def end(self, loggers: Callable[[], Sequence[Optional[_loggers.Logger]]] = list, with_files: bool = True) -> None:
        """The training has ended: says the verdict on stderr, and gives it to loggers (`None` is left out), with the page and the snapshot."""
        self.phase(None)

        def end() -> None:
            path = _library.recording()
            if path is None:
                return
            sentence = self._sentence()
            print(f"strandline: {sentence}", file=sys.stderr)
            places = [logger for logger in loggers() if logger is not None]
            if places:
                _loggers.hand_over(places, path, _report.ask(path)["verdict"], sentence, with_files)

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
        torch = self._look(at_once=last)
        if torch is None:
            return {}

        def mib(of: Callable[[int], Any]) -> float:
            return sum(int(of(i)) for i in range(int(torch.cuda.device_count()))) / _MIB

        return {
            "strandline/allocated_mib": mib(torch.cuda.memory_allocated),
            "strandline/reserved_mib": mib(torch.cuda.memory_reserved),
            "strandline/peak_allocated_mib": mib(torch.cuda.max_memory_allocated),
            **self._growth,
        }

    def _least_free(self, torch: Any) -> int:
        """Bytes of the fullest device that were never in use, where its size is known."""
        return min((size - int(torch.cuda.max_memory_allocated(i)) for i, size in self._sizes.items()), default=0)

    def _look(self, at_once: bool) -> Any:
        """Reads the recording, where it is time to; PyTorch, where there is anything to say of it."""
        torch, path = torch_of_job(), _library.recording()
        if torch is None or path is None or not torch.cuda.is_initialized():
            return None
        begun = time.monotonic()
        if begun < self._next_look and not at_once and self._least_free(torch) >= _LEFT_FREE * self._free:
            return torch
        told = _report.ask(path)
        self._reason = (told["verdict"], told["reason"])
        devices = told["processes"][0]["devices"]
        sizes = {d["index"]: d["limit_bytes"] or d["capacity_bytes"] for d in devices}
        self._sizes = {i: size for i, size in sizes.items() if size is not None}
        self._free = self._least_free(torch)
        found = told["processes"][0]["findings"]
        now = time.monotonic()
        self._next_look = now + (now - begun) / _SHARE
        grows = [f for f in found if f["certainty"] in ("leak", "growing") and f["withdrawn_step"] is None and not f["suppressed_by"]]
        self._growth = {"strandline/growth_mib_per_step": sum(f["bytes_per_step"] or 0 for f in grows) / _MIB}
        until_full = [f["steps_to_oom"]["mid"] for f in grows if f["steps_to_oom"] and f["steps_to_oom"]["mid"] is not None]
        if until_full:
            self._growth["strandline/steps_until_full"] = min(until_full)
        self._full_at = self._step + min(until_full, default=math.inf)
        self._is_urgent = any(f["severity"] == "alert" for f in grows)
        self._is_imminent = any(f["imminent"] for f in grows)
        return torch

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

    def _sentence(self) -> str:
        """The first sentence of the report, and the lines that it goes on in."""
        said = re.match(r"strandline: (.*(?:\n {12}.*)*)", _library.ask("report", _library.recording() or ""))
        return " ".join(said[1].split()) if said else ""
