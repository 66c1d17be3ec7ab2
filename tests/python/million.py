"""A job with a million events of the allocator, to measure what a snapshot of it costs.

    strandline run -o million -- python tests/python/million.py
    /usr/bin/time -v strandline snapshot million -o million.pickle
    python tests/python/million.py FILE     torch's own snapshot of the same, and what it costs
"""

import os
import resource
import sys
import time

import torch

EVENTS = 1_000_000


def one(size):
    return torch.empty(size, device="cuda", dtype=torch.uint8)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if len(sys.argv) > 1:
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=2 * EVENTS)
kept = []
# A block is three events: allocated, its free requested, and completed.
for i in range(EVENTS // 3):
    block = one(512 * (1 + i % 31))
    if i % 997 == 0:
        kept.append(block)
print(len(kept), "blocks kept")
if len(sys.argv) > 1:
    before, wall, cpu = peak(), time.perf_counter(), time.process_time()
    torch.cuda.memory._dump_snapshot(sys.argv[1])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{wall:.2f} s, {cpu:.2f} s of a processor, {before} MiB before, {peak()} MiB after", flush=True)
    os._exit(0)
