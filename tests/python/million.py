"""A job with a million events of the allocator, to measure what a snapshot of it costs.

    strandline run -o million -- python tests/python/million.py
    /usr/bin/time -v strandline snapshot million -o million.pickle
"""

import torch

EVENTS = 1_000_000


def one(size):
    return torch.empty(size, device="cuda", dtype=torch.uint8)


kept = []
# A block is three events: allocated, its free requested, and completed.
for i in range(EVENTS // 3):
    block = one(512 * (1 + i % 31))
    if i % 997 == 0:
        kept.append(block)
print(len(kept), "blocks kept")
