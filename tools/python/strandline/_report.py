"""What the command says of this process, as an object."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from . import _library

# How often a recording is looked at in which nothing is to be seen yet, and the seconds between two looks.
_LOOKS = 10
_INTERVAL = 0.05


@dataclass(frozen=True)
class Finding:
    """Something that was found (docs/findings.md)."""

    kind: str
    """The kind of finding, such as `step-growth`."""
    certainty: str
    """How certain the finding is: `leak`, `growing`, `bounded`, `in_use` or `note`."""
    severity: Optional[str]
    """How urgent the finding is: `alert`, `warning` or `info`."""
    bytes_per_step: Optional[float]
    """Bytes that every step leaves behind."""
    line: Optional[str]
    """The line that allocates the memory, as `file:line function`."""
    kept_at: Optional[str]
    """The statement that keeps the memory, as `file:line: source`, if known."""
    json: Mapping[str, Any] = field(repr=False, compare=False)
    """All of it, as `strandline report --format json` has it."""


@dataclass(frozen=True)
class Report:
    """What can be said of this process up to now."""

    verdict: str
    """`leak`, `growing`, `oom`, `clean` or `unknown` (docs/verdicts.md)."""
    reason: str
    """Why, in a sentence."""
    findings: Sequence[Finding]
    """The findings, the most severe first."""
    anatomy: Mapping[int, Mapping[str, Any]]
    """For each device: what fills its memory, in bytes; a device is left out if this is not known."""
    text: str
    """The report for people."""
    json: Mapping[str, Any] = field(repr=False, compare=False)
    """All of it, as `strandline report --format json` has it."""

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def _place(frame: Optional[Mapping[str, Any]]) -> Optional[str]:
    return f"{frame['file']}:{frame['line']} {frame['function']}" if frame else None


def _finding(told: Mapping[str, Any]) -> Finding:
    sites: list[dict[str, Any]] = told.get("sites") or [{}]
    first = sites[0]
    frames: list[Optional[dict[str, Any]]] = first.get("frames") or [None]
    kept = told.get("kept_at")
    return Finding(
        kind=told["kind"],
        certainty=told["certainty"],
        severity=told.get("severity"),
        bytes_per_step=told.get("bytes_per_step"),
        line=_place(first.get("your_line") or frames[0]),
        kept_at=f"{kept['file']}:{kept['line']}: {kept['source']}" if kept else None,
        json=told,
    )


def ask(path: str) -> dict[str, Any]:
    """What the command says of a recording of this process up to now."""
    # What keeps a new recording's buffers open looks for them ten times a second; until then only its file can be read.
    looks = 0
    while True:
        told: dict[str, Any] = json.loads(_library.ask("report", path, "--format", "json"))
        looks += 1
        if told["processes"][0]["coverage"]["level"] != "none" or looks == _LOOKS:
            return told
        time.sleep(_INTERVAL)


def report() -> Report:
    """What can be said of this process up to now: the command reads its recording, and the program goes on when it has.

    Raises `strandline.Error` where this process is not recorded, or the command is not found.
    """
    path = _library.recording()
    if path is None:
        raise _library.Error("this process is not recorded: call strandline.start(), or start the program with `strandline run`")
    told = ask(path)
    process = told["processes"][0]
    return Report(
        verdict=told["verdict"],
        reason=told["reason"],
        findings=tuple(_finding(f) for f in process["findings"]),
        anatomy={d["index"]: d["anatomy"] for d in process["devices"] if d.get("anatomy")},
        text=_library.ask("report", path),
        json=told,
    )
