"""Amounts of memory, as people write them."""

from __future__ import annotations

import re
from typing import Union

from ._library import Error

_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip


def to_bytes(size: Union[int, str]) -> int:
    """`"1 MiB"` (1,048,576), `"1 MB"` (1,000,000), `"512"` or a number of bytes. Raises `strandline.Error` for anything else."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", size.lower()) if isinstance(size, str) else None
    if found is None or found[2] not in _UNITS:
        raise Error(f"limit={size!r} is not an amount of memory: write e.g. \"1 MiB\", \"2 GB\" or a number of bytes")
    return int(float(found[1]) * _UNITS[found[2]])


def in_words(size: int) -> str:
    """`8.0 MiB`."""
    amount = float(size)
    for unit in ("byte" if size == 1 else "bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{size} {unit}" if unit.startswith("byte") else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def blocks(count: int) -> str:
    """`1 block`, `3 blocks`."""
    return f"{count} block" if count == 1 else f"{count} blocks"
