"""Allocates from two threads and counts in shared memory until it is killed.

    killed.py COUNTS     COUNTS: a file of two 8-byte counters
"""

import ctypes
import mmap
import os
import signal
import sys
import threading
import time

import torch

with open(sys.argv[1], "r+b") as f:
    # One aligned store per number; struct.pack_into clears it first, and the kill may come in between.
    counts = (ctypes.c_int64 * 2).from_buffer(mmap.mmap(f.fileno(), 16))


def work(n):
    made = 0
    while made < 8000:  # fits into the ring, however late the drain comes
        torch.empty(512, device="cuda", dtype=torch.uint8)
        made += 1
        counts[n] = made


torch.empty(1, device="cuda")
for n in range(2):
    threading.Thread(target=work, args=(n,), daemon=True).start()
time.sleep(0.5)
while sum(counts) < 2000:  # a busy machine needs longer
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
