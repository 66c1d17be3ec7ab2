"""Instructions that recording adds to an alloc/free pair, and cache lines that it touches, counted by callgrind: what no other load of
the machine changes.

    instructions.py --library LIBSTRANDLINE --python PYTHON [--pairs 2000]

PYTHON has torch, whose allocator library alone is loaded (`strandline simulate --python`). Needs valgrind and cc. A pair is a
`raw_alloc` and a `raw_delete` of 4 KiB from C, called at Python depths 5, 23 and 100. Every mode is a process of its own; what is
said is the mode's count per pair less that of `nothing`, which has no recorder, and its share that is the recorder's own code. Lines are
counted as misses of simulated caches that are emptied before each pair: every line that a pair touches is missed once.

    instructions.py --worker FOLDER_OF_TORCH_LIB LIBRARY_OF_PAIRS PAIRS     the process that is counted
"""

import argparse
import ctypes
import glob
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DEPTHS = [5, 23, 100]
MODES = ["nothing", "none", "python", "native", "both"]
# Two functions, since what is collected is named by function: the first calls see what is new and are not counted.
SOURCE = """
#include <stddef.h>
typedef void *(*alloc_t)(void *, size_t);
typedef void (*delete_t)(void *, void *);
__attribute__((noinline)) void counted_pairs(alloc_t alloc, delete_t del, void *self, int n) {
    for (int i = 0; i < n; i++)
        del(self, alloc(self, 4096));
}
__attribute__((noinline)) void first_pairs(alloc_t alloc, delete_t del, void *self, int n) {
    for (int i = 0; i < n; i++)
        del(self, alloc(self, 4096));
}
#ifdef COLD
#include <stdint.h>
static volatile uint8_t filler[8 << 20];
/* 64 KiB of code that does nothing, then 8 MiB of data: nothing of a pair is left in a cache. */
__attribute__((noinline)) static void evict(void) {
    __asm__ volatile(".rept 65536; nop; .endr");
    for (size_t i = 0; i < sizeof filler; i += 64)
        (void)filler[i];
}
__attribute__((noinline)) void all_counted(void) { __asm__ volatile(""); }
void pairs(alloc_t alloc, delete_t del, void *self, int n) {
    void (*volatile which)(alloc_t, delete_t, void *, int) = first_pairs;
    for (int i = 0; i <= n; i++) {
        which(alloc, del, self, i == 0 ? 100 : 1);
        evict();
        which = counted_pairs;
    }
    all_counted();
}
#else
__attribute__((noinline)) void all_counted(void) { __asm__ volatile(""); }
/* One place for both, so that the second is called from a stack that the first has seen; but for this frame's own callee. */
void pairs(alloc_t alloc, delete_t del, void *self, int n) {
    void (*volatile which)(alloc_t, delete_t, void *, int) = first_pairs;
    for (int i = 0; i < 2; i++) {
        which(alloc, del, self, n);
        which = counted_pairs;
    }
    all_counted();
}
#endif
"""


def worker(folder, library, n):
    sys.path.insert(0, os.path.join(HERE, "../frames"))
    from allocator import Allocator
    a = Allocator(folder)
    keep = a.alloc(a.this, 4096)
    pairs = ctypes.CDLL(library).pairs
    address = [ctypes.cast(f, ctypes.c_void_p) for f in (a.alloc, a.delete)]

    def at_depth(left):
        if left > 0:
            return at_depth(left - 1)
        pairs(*address, ctypes.c_void_p(a.this), int(n))

    for depth in DEPTHS:
        at_depth(depth - 3)  # the module, this function and the innermost call are frames, too
    a.delete(a.this, keep)
    os._exit(0)


CACHES = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=49152,12,64", "--LL=2097152,16,64"]


def counted(options, mode, folder, library, torch, columns=("Ir",), pairs=None, more=()):
    """What a pair counts in these columns at each depth: all of it, and that in the recorder's own code."""
    pairs = pairs or options.pairs
    out = os.path.join(folder, f"{mode}.out")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_") or "_SIM_" in k}
    if mode != "nothing":
        environment.update(LD_PRELOAD=os.path.abspath(options.library), STRANDLINE_STACKS=mode, STRANDLINE_QUIET="1",
                           STRANDLINE_OUT=os.path.join(folder, f"{mode}.strand"))
    command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", "--toggle-collect=counted_pairs",
               "--dump-after=all_counted", "--compress-strings=no", "--compress-pos=no", *more, options.python, __file__, "--worker", torch,
               library, str(pairs)]
    subprocess.run(command, env=environment, check=True)
    rows = []
    for i in range(len(DEPTHS)):
        own = total = 0
        object_, calls, at = "", False, []
        for line in open(f"{out}.{i + 1}", errors="replace"):
            if line.startswith("events:"):
                at = [i for i, e in enumerate(line.split()) if e in columns]
            elif line.startswith("ob="):
                object_ = line[3:].strip()
            elif line.startswith("calls="):
                calls = True
            elif re.match(r"[0-9*+-]", line):
                if not calls:
                    words = line.split()
                    cost = sum(int(words[i]) for i in at if i < len(words))
                    total += cost
                    own += cost if "libstrandline.so" in object_ else 0
                calls = False
        rows.append((total / pairs, own / pairs))
    return rows


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(*sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", required=True, help="libstrandline.so")
    p.add_argument("--python", required=True, help="a Python that has torch")
    p.add_argument("--pairs", type=int, default=2000)
    p.add_argument("--modes", default=",".join(MODES[1:]))
    options = p.parse_args()
    find = "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))"
    torch = subprocess.run([options.python, "-c", find], stdout=subprocess.PIPE, text=True, check=True).stdout.strip() + "/lib"
    with tempfile.TemporaryDirectory() as folder:
        for what, flag, arguments in (
                ("instructions of an alloc/free pair", "-DHOT", {}),
                ("lines of code it touches", "-DCOLD", dict(columns=("I1mr",), pairs=50, more=CACHES)),
                ("lines of data it touches", "-DCOLD", dict(columns=("D1mr", "D1mw"), pairs=50, more=CACHES))):
            library = os.path.join(folder, f"libpairs{flag}.so")
            subprocess.run(["cc", "-O2", "-g", flag, "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=SOURCE, text=True, check=True)
            bare = counted(options, "nothing", folder, library, torch, **arguments)
            print(f"{what:34}" + "".join(f"{f'{d} deep':>24}" for d in DEPTHS))
            print(f"  {'nothing':32}" + "".join(f"{total:24.0f}" for total, _ in bare))
            for mode in options.modes.split(","):
                rows = counted(options, mode, folder, library, torch, **arguments)
                cells = [f"+{total - b:.0f} ({own:.0f} own)" for (total, own), (b, _) in zip(rows, bare)]
                print(f"  --stacks {mode:23}" + "".join(f"{c:>24}" for c in cells), flush=True)


main()
