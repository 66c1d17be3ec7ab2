"""Instructions that recording adds to an alloc/free pair, counted by callgrind: what no other load of the machine changes.

    instructions.py --library LIBSTRANDLINE --python PYTHON [--pairs 2000]

PYTHON has torch, whose allocator library alone is loaded (`strandline simulate --python`). Needs valgrind and cc. A pair is a
`raw_alloc` and a `raw_delete` of 4 KiB from C, called at Python depths 5, 23 and 100. Every mode is a process of its own; what is
said is the mode's count per pair less that of `nothing`, which has no recorder, and its share that is the recorder's own code.

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
/* One place for both, so that the second is called from a stack that the first has seen; but for this frame's own callee. */
void pairs(alloc_t alloc, delete_t del, void *self, int n) {
    void (*volatile which)(alloc_t, delete_t, void *, int) = first_pairs;
    for (int i = 0; i < 2; i++) {
        which(alloc, del, self, n);
        which = counted_pairs;
    }
}
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


def counted(options, mode, folder, library, torch):
    """Instructions of a pair at each depth: all of them, and those in the recorder's own code."""
    out = os.path.join(folder, f"{mode}.out")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_") or "_SIM_" in k}
    if mode != "nothing":
        environment.update(LD_PRELOAD=os.path.abspath(options.library), STRANDLINE_STACKS=mode, STRANDLINE_QUIET="1",
                           STRANDLINE_OUT=os.path.join(folder, f"{mode}.strand"))
    command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", "--toggle-collect=counted_pairs",
               "--dump-after=counted_pairs", "--compress-strings=no", "--compress-pos=no", options.python, __file__, "--worker", torch,
               library, str(options.pairs)]
    subprocess.run(command, env=environment, check=True)
    rows = []
    for i in range(len(DEPTHS)):
        own = total = 0
        object_, calls = "", False
        for line in open(f"{out}.{i + 1}", errors="replace"):
            if line.startswith("ob="):
                object_ = line[3:].strip()
            elif line.startswith("calls="):
                calls = True
            elif re.match(r"[0-9*+-]", line):
                if not calls:
                    cost = int(line.split()[1])
                    total += cost
                    own += cost if "libstrandline.so" in object_ else 0
                calls = False
        rows.append((total / options.pairs, own / options.pairs))
    return rows


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(*sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", required=True, help="libstrandline.so")
    p.add_argument("--python", required=True, help="a Python that has torch")
    p.add_argument("--pairs", type=int, default=2000)
    options = p.parse_args()
    find = "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))"
    torch = subprocess.run([options.python, "-c", find], stdout=subprocess.PIPE, text=True, check=True).stdout.strip() + "/lib"
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "libpairs.so")
        subprocess.run(["cc", "-O2", "-g", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=SOURCE, text=True, check=True)
        bare = counted(options, "nothing", folder, library, torch)
        print("instructions of an alloc/free pair" + "".join(f"{f'{d} deep':>24}" for d in DEPTHS))
        print(f"  {'nothing':32}" + "".join(f"{total:24.0f}" for total, _ in bare))
        for mode in MODES[1:]:
            rows = counted(options, mode, folder, library, torch)
            cells = [f"+{total - b:.0f} ({own:.0f} own)" for (total, own), (b, _) in zip(rows, bare)]
            print(f"  --stacks {mode:23}" + "".join(f"{c:>24}" for c in cells), flush=True)


main()
