"""Asks for a snapshot of itself, waits until somebody else has written it, and goes on until it is told to end.

    snapshot_live.py DIR RECORDINGS

What it asks for is written below RECORDINGS, wherever it is itself.
"""

import ctypes
import os
import sys
import time

import torch

DIR, RECORDINGS = sys.argv[1:]
STRANDLINE = ctypes.CDLL(None)
PATIENCE = 240  # seconds, for a machine with much else to do


def wait_for(name):
    until = time.monotonic() + PATIENCE
    while not os.path.exists(os.path.join(DIR, name)):
        assert time.monotonic() < until, f"nobody wrote {name}"
        time.sleep(0.05)


os.chdir(DIR)
before = [torch.empty(3 << 20, device="cuda", dtype=torch.uint8) for _ in range(4)]
freed = torch.empty(5 << 20, device="cuda", dtype=torch.uint8)
assert STRANDLINE.strandline_snapshot(b"asked.pickle") == 0
del freed
after = [torch.empty(7 << 20, device="cuda", dtype=torch.uint8) for _ in range(2)]
wait_for(os.path.join(RECORDINGS, "asked.pickle"))
with open("pid.part", "w") as f:
    f.write(str(os.getpid()))
os.rename("pid.part", "pid")
wait_for("go")
assert STRANDLINE.strandline_snapshot(b"late.pickle") == 0  # and away: the watcher is not late
print("done")
