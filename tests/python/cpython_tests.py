"""CPython's own tests in a process that is asked all the time who holds its blocks.

usage: cpython_tests.py MODULE…        with STRANDLINE_PROBE=on:0, best with PYTHONMALLOC=debug

Prints for each module of CPython's `test` package how many of its tests ran, and which failed.
"""
import importlib, json, os, sys, threading, time, unittest

import torch


def address(t):
    return t.untyped_storage().data_ptr()


class Stash:
    def __init__(self):
        self.kept = {i: torch.empty(1024, device="cuda") for i in range(24)}


def generator():
    mine = [torch.empty(512, device="cuda") for _ in range(16)]
    yield [address(t) for t in mine]
    yield mine


stash = Stash()
w = torch.ones(1024, device="cuda", requires_grad=True)
losses = [torch.sin(w * 1.5).sum() for _ in range(24)]
running = generator()
blocks = {
    "attribute": [address(t) for t in stash.kept.values()],
    "graph": [address(loss.grad_fn.next_functions[0][0]._saved_self) for loss in losses],
    "generator": next(running),
    "nothing": [12345678 * 512],
}
# Made once: json makes reference cycles, which tests of the collector would count.
FINDINGS = json.dumps([{"about": about, "blocks": b} for about, b in blocks.items()])


def ask():
    folder = os.environ["STRANDLINE_TAIL"]
    tails = (n for n in os.listdir(folder) if n.startswith("strandline-") and "." not in n)
    tail = os.path.join(folder, next(tails, "none"))
    number, process = 0, os.getpid()
    while os.getpid() == process:
        if not os.path.exists(tail + ".ask"):
            number += 1
            with open(tail + ".asking", "w") as f:
                f.write('{"number": %d, "findings": %s}' % (number, FINDINGS))
            os.rename(tail + ".asking", tail + ".ask")
        time.sleep(0.003)


# Where nobody answers the thread is there all the same: tests count threads and switches between them.
threading.Thread(target=ask, daemon=True).start()
time.sleep(0.2)
for name in sys.argv[1:]:
    try:
        suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module("test." + name))
        result = unittest.TextTestRunner(stream=open(os.devnull, "w"), verbosity=0).run(suite)
        print("result", name, result.testsRun, sorted(str(test) for test, _ in result.failures + result.errors), flush=True)
    except (unittest.SkipTest, ImportError) as e:
        print("result", name, "skipped", e, flush=True)
