"""What a pair of alloc and free costs where the caches hold something else, as they do between two allocations of a real step.

    cold.py LIBSTRANDLINE [--trials 4000] [--depth 20] [--thrash-kib 4096] [--begin late|torch|nothing]

One process, before and after it is recorded (begun.py says why). Before each timed pair a chain of jumps runs through code of that size, a line each, and
data of that size is written: what lay in the caches of the core is gone, code and data alike. Lower quintiles, in ns: of the allocation, of the free.
"""

import argparse
import ctypes
import mmap
import random
import statistics
import time

from works import begin_late


def thrasher(kib):
    """A function that goes through so much code, a jump in each line, in an order that nothing foresees."""
    lines = kib << 4
    order = list(range(1, lines))
    random.Random(1).shuffle(order)
    order = [0, *order]
    code = bytearray(lines * 64)
    for here, to in zip(order, order[1:]):
        at = here * 64
        code[at] = 0xE9  # jmp
        code[at + 1:at + 5] = ((to - here) * 64 - 5).to_bytes(4, "little", signed=True)
    code[order[-1] * 64] = 0xC3  # ret
    memory = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(bytes(code))
    function = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    return function, memory


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("library")
    p.add_argument("--trials", type=int, default=4000)
    p.add_argument("--depth", type=int, default=20)
    p.add_argument("--thrash-kib", type=int, default=4096)
    p.add_argument("--begin", default="late", choices=["late", "torch", "nothing"])
    p.add_argument("--stacks", default="python")
    p.add_argument("--rounds", type=int, default=3)
    options = p.parse_args()
    import torch
    thrash, _keep = thrasher(options.thrash_kib)
    clock, empty, device = time.perf_counter_ns, torch.empty, torch.device("cuda")
    keep = empty(1024, device=device)

    def trials(n):
        allocs, frees = [], []
        for _ in range(n):
            thrash()
            a = clock()
            x = empty(1024, device=device)
            b = clock()
            thrash()
            c = clock()
            del x
            d = clock()
            allocs.append(b - a)
            frees.append(d - c)
        return allocs, frees

    def deep(depth):
        return trials(options.trials) if depth <= 0 else deep(depth - 1)

    deep(options.depth)
    told = []
    for phase in ("before", "after"):
        if phase == "after":
            if options.begin == "nothing":
                pass
            else:
                begin_late("torch" if options.begin == "torch" else options.library, "/tmp/cold.strand", options.stacks)
            trials(200)
        parts = [deep(options.depth) for _ in range(options.rounds)]
        told.append([statistics.quantiles((v for part in parts for v in part[i]), n=5)[0] for i in (0, 1)])
        print(f"{phase:8} alloc {told[-1][0]:8.0f}  free {told[-1][1]:8.0f}", flush=True)
    print(f"added    alloc {told[1][0] - told[0][0]:8.0f}  free {told[1][1] - told[0][1]:8.0f}  pair {sum(told[1]) - sum(told[0]):8.0f}")
    del keep


main()
