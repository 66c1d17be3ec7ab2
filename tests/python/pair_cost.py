"""Cost of an alloc/free pair of 4 KiB, cached, at a Python depth: nanoseconds, the minimum of many repetitions.

    pair_cost.py DEPTH PAIRS      prints JSON: {"plain": ns, "history": ns}; history = torch's own, stacks="python"
"""

import json
import sys
import time

import torch


def pairs(n):
    empty, device = torch.empty, torch.device("cuda")
    start = time.perf_counter_ns()
    for _ in range(n):
        empty(1024, device=device)
    return (time.perf_counter_ns() - start) / n


def at_depth(depth, n):
    return pairs(n) if depth <= 0 else at_depth(depth - 1, n)


def main():
    depth, n = int(sys.argv[1]), int(sys.argv[2])
    keep = torch.empty(1024, device="cuda")
    best = {"plain": float("inf"), "history": float("inf")}
    for _ in range(15):
        for mode in best:
            torch.cuda.memory._record_memory_history("all" if mode == "history" else None, stacks="python", max_entries=10_000)
            best[mode] = min(best[mode], at_depth(depth - 3, n))
    torch.cuda.memory._record_memory_history(None)
    print(json.dumps(best))
    del keep


main()
