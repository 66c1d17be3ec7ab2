"""What the jobs of tests/trainers.rs share: trainings that are compared, and a model that keeps memory."""

import contextlib
import hashlib
import io
import json
import os
import sys

import torch

MIB = 1 << 20
kept = []


def keep(mib):
    """Memory that nobody frees before `kept` is cleared."""
    if mib > 1:
        # A line of its own: of the other one blocks have been freed that were old.
        kept.append(torch.zeros(mib * MIB, dtype=torch.uint8, device="cuda"))
    else:
        kept.append(torch.zeros(mib * MIB, dtype=torch.uint8, device="cuda"))


def files(folder, unlike=()):
    """Path and digest of each file below a folder; of those whose name holds one of `unlike`, the path alone."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                digest = hashlib.sha256(file.read()).hexdigest()
            found[os.path.relpath(path, folder)] = None if any(part in name for part in unlike) else digest
    return found


def ours(row):
    """The figures of strandline in what was logged."""
    return {k.partition("strandline/")[2]: v for k, v in row.items() if "strandline/" in k}


def theirs(row):
    """What else was logged, without clocks."""
    return {k: v for k, v in row.items() if "strandline/" not in k and "runtime" not in k and "per_second" not in k}


def is_loaded():
    with open("/proc/self/maps") as maps:
        return any("libstrandline.so" in line for line in maps)


@contextlib.contextmanager
def stderr():
    """Our lines on stderr within a block."""
    lines = []
    text = io.StringIO()
    try:
        with contextlib.redirect_stderr(text):
            yield lines
    finally:
        sys.stderr.write(text.getvalue())
        lines += [line for line in text.getvalue().splitlines() if line.startswith("strandline: ")]


@contextlib.contextmanager
def broken():
    """In this block a step cannot be marked."""
    from strandline import _library

    step = _library.step

    def fails(n):
        raise KeyError("mine")

    _library.step = fails
    try:
        yield
    finally:
        _library.step = step


def always_look():
    """From now on what is known is as of each line of the log, however long it takes to ask."""
    from strandline import _training

    _training._SHARE = 1e9


def said(lines):
    [line] = lines
    return line


def done():
    print(json.dumps("done"))
