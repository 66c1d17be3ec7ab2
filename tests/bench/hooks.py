"""What each of our hooks does in a real step, counted by callgrind: calls, instructions, and misses of simulated caches.

    hooks.py --library LIBSTRANDLINE --python PYTHON [--work heavy|large] [--stacks python] [--steps 2]

PYTHON has torch on the simulated device (`strandline simulate --python`). Needs valgrind with its headers, and cc. The step is
overhead.py's (the large one with a small config); some steps run before the counted ones. A hook's count is its own code, what that
calls in our library, and what it asks of others (the gradient mode, the thread's state); the function that it stands before is not in it.
The caches are those of a server: 32 KiB for instructions, 48 KiB for data, 2 MiB behind both ("L2").

    hooks.py --worker WORK STEPS LIBRARY_OF_MARKS     the process that is counted
"""

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict

MARKS = """
#include <valgrind/callgrind.h>
void on(void) { CALLGRIND_START_INSTRUMENTATION; }
void zero(void) { CALLGRIND_ZERO_STATS; }
void off(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""
COLUMNS = [("instructions", ["Ir"]), ("I1 missed", ["I1mr"]), ("D1 missed", ["D1mr", "D1mw"]),
           ("L2 missed", ["ILmr", "DLmr", "DLmw"]), ("branches missed", ["Bcm", "Bim"])]
OURS = "libstrandline.so"


def worker(work, count, library):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import works
    marks = ctypes.CDLL(library)
    works.begin("nothing")
    steps = works.made(work)
    marks.on()
    steps.step()  # the simulated caches are as cold as valgrind's own before it
    marks.zero()
    for _ in range(int(count)):
        steps.step()
    marks.off()
    os._exit(0)


class Profile:
    """Of each function: its own cost, and of each call from one function to another how often and what it cost."""

    def __init__(self, path):
        self.own, self.calls = defaultdict(lambda: [0] * len(COLUMNS)), defaultdict(lambda: [0, [0] * len(COLUMNS)])
        events, here, object_, to_object, to, call = [], None, "", None, None, None
        for line in open(path, errors="replace"):
            key, _, value = line.rstrip("\n").partition("=")
            if line.startswith("events:"):
                events = line.split()[1:]
            elif key == "ob":
                object_ = os.path.basename(value)
            elif key == "fn":
                here, to_object = (object_, value), None
            elif key == "cob":
                to_object = os.path.basename(value)
            elif key == "cfn":
                to, to_object = (to_object or object_, value), None
            elif key == "calls":
                call = int(value.split()[0])
            elif re.match(r"[0-9*+-]", line):
                said = dict(zip(events, map(int, line.split()[1:])))
                cost = [sum(said.get(e, 0) for e in parts) for _, parts in COLUMNS]
                if call is None:
                    self.own[here] = [a + b for a, b in zip(self.own[here], cost)]
                else:
                    n, all_ = self.calls[here, to]
                    self.calls[here, to] = [n + call, [a + b for a, b in zip(all_, cost)]]
                    call = None
        self.called_by, self.callers, self.known = defaultdict(dict), defaultdict(dict), {}
        for (caller, to), call in self.calls.items():
            self.called_by[caller][to], self.callers[to][caller] = call, call[0]

    def total(self):
        return [sum(c[i] for c in self.own.values()) for i in range(len(COLUMNS))]

    def hooks(self):
        """Our functions that others call: how often, and their cost."""
        entered = defaultdict(int)
        for (caller, to), (n, _) in self.calls.items():
            if to[0] == OURS and caller[0] != OURS:
                entered[to] += n
        return {hook[1]: (n, self.cost(hook)) for hook, n in entered.items()}

    def cost(self, function):
        """What a function of ours costs without what it stands before. A part that several call is shared out by calls."""
        if function not in self.known:
            cost = list(self.own[function])
            self.known[function] = cost  # should it call itself
            for to, (n, inside) in self.called_by[function].items():
                if to[0] == OURS and to != function:
                    share = n / sum(self.callers[to].values())
                    inside = [c * share for c in self.cost(to)]
                elif to == function or is_forwarded(to):
                    continue
                cost = [a + b for a, b in zip(cost, inside)]
            self.known[function] = cost
        return self.known[function]


def is_forwarded(to):
    """Whether this function of another library is one that a hook stands before, and not one that it asks something."""
    helpers = ("GradMode", "PyGILState", "IsFinalizing", "PyInterpreterState", "PyThreadState", "pthread_", "clock_gettime", "CUDAStream::stream", "memcpy", "memset")
    return not any(h in to[1] for h in helpers)


def counted(options, stacks, folder, library):
    out = os.path.join(folder, f"{stacks}.out")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_") or "_SIM_" in k}
    environment.update(PYTHONHASHSEED="0", BENCH_SMALL="1", OMP_NUM_THREADS="1")
    if stacks == "passed":
        environment.update(LD_PRELOAD=os.path.abspath(options.library), STRANDLINE_DISABLE="1")
    elif stacks != "nothing":
        environment.update(LD_PRELOAD=os.path.abspath(options.library), STRANDLINE_STACKS=stacks, STRANDLINE_QUIET="1",
                           STRANDLINE_OUT=os.path.join(folder, f"{stacks}.strand"))
    command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", "--instr-atstart=no", "--cache-sim=yes",
               "--branch-sim=yes", "--I1=32768,8,64", "--D1=49152,12,64", "--LL=2097152,16,64", "--compress-strings=no",
               "--compress-pos=no", options.python, os.path.abspath(__file__), "--worker", options.work, str(options.steps), library]
    subprocess.run(command, env=environment, check=True, stderr=None if options.verbose else subprocess.DEVNULL)
    return Profile(f"{out}.1")


def row(name, calls, cost, steps):
    print(f"  {name:34}{calls / steps:9.0f}" + "".join(f"{c / steps:17,.0f}" for c in cost), flush=True)


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(*sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", required=True, help="libstrandline.so, with symbols")
    p.add_argument("--python", required=True, help="a Python that has torch on the simulated device")
    p.add_argument("--work", default="heavy")
    p.add_argument("--stacks", default="python", help="none, python, native, both; passed: the library is told to pass everything through")
    p.add_argument("--steps", type=int, default=2)
    p.add_argument("--without", action="store_true", help="count the same steps without the library, too")
    p.add_argument("--verbose", action="store_true")
    options = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "libmarks.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=MARKS, text=True, check=True)
        profile = counted(options, options.stacks, folder, library)
        print(f"a {options.work} step, --stacks {options.stacks}\n  {'entered':34}{'calls':>9}" + "".join(f"{c:>17}" for c, _ in COLUMNS))
        rows, sum_ = profile.hooks(), [0] * len(COLUMNS)
        for name, (n, cost) in sorted(rows.items(), key=lambda r: -r[1][1][0]):
            row(short(name), n, cost, options.steps)
            if "drain" not in name and "thread" not in name:
                sum_ = [a + b for a, b in zip(sum_, cost)]
        row("all hooks", 0, sum_, options.steps)
        row("the whole step", 0, profile.total(), options.steps)
        if options.without:
            row("the step without us", 0, counted(options, "nothing", folder, library).total(), options.steps)


def short(name):
    """A function's name without its parameters and its path."""
    return re.sub(r"^.*::([A-Za-z_0-9]+::[A-Za-z_0-9]+)$", r"\1", re.sub(r"\(.*", "", name))[:33]


main()
