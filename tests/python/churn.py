"""A job whose threads make and free objects, code, tensors and graphs while it is asked, again and again, who holds its blocks.

usage: churn.py SECONDS        with STRANDLINE_PROBE=on:0

Lays a question as soon as the last one was taken. What holds the blocks stays the same all the time, under names that the test knows; what
comes and goes has names as well, which must never be told of a block that they do not hold. At the end: what the job sees of itself.
"""
import gc, json, os, sys, threading, time, weakref

import torch

SECONDS = float(sys.argv[1])
ends = time.time() + SECONDS


class Stash:
    def __init__(self):
        self.kept = {}


class Passing:
    """Comes and goes, with tensors and cycles, under names of its own."""

    def __init__(self, n):
        self.wrong = {i: torch.empty(256, device="cuda") for i in range(n)}
        self.me = self


def address(t):
    return t.untyped_storage().data_ptr()


stash = Stash()
for i in range(24):
    stash.kept[i] = (torch.empty(1024, device="cuda"), i)
w = torch.ones(1024, device="cuda", requires_grad=True)
losses, kept = [], []
for _ in range(24):
    y = torch.sin(w * 1.5)
    kept.append(address(y.grad_fn._saved_self))
    losses.append(y.sum())
del y
fired, deaths = [], []
weak = [weakref.ref(v[0], fired.append) for v in stash.kept.values()] + [weakref.ref(l, fired.append) for l in losses]
blocks = [("attribute", [address(v[0]) for v in stash.kept.values()]), ("graph", kept)]
rounds = [0] * 5
failures = []


def churn(which):
    try:
        make = [objects, tensors, code, graphs, collect][which]
        while time.time() < ends:
            make(rounds[which])
            rounds[which] += 1
    except BaseException as e:
        failures.append(f"{make.__name__}: {type(e).__name__}: {e}")


def objects(n):
    a = [{"wrong": [i], "next": (i, str(i))} for i in range(2000)]
    a[0]["me"] = a
    b = {i: a[i % 7] for i in range(5000)}
    wrong = set(range(n % 9000))
    del a, b, wrong


def tensors(n):
    passing = Passing(50)
    more = [t * 2 for t in passing.wrong.values()]
    del passing, more


def code(n):
    names = {}
    exec(f"class Made{n % 50}:\n    wrong = []\n    def f(self, a, b=1):\n        return [a + b for _ in range(5)]\n", names)
    kind = names[f"Made{n % 50}"]
    kind.wrong.append(kind().f(1))
    kind.g = eval("lambda self: (self, [])")
    thread = threading.Thread(target=kind().f, args=(2,))
    thread.start()
    thread.join()


def graphs(n):
    h = w
    for _ in range(20):
        h = torch.sin(h * 1.1)
    wrong = [h.sum() for _ in range(4)]
    if n % 3:
        wrong[0].backward(inputs=[w])
        w.grad = None


def collect(n):
    gc.collect(2 if n % 20 == 0 else n % 2)
    time.sleep(0.05)


def place():
    folder = os.environ["STRANDLINE_TAIL"]
    tails = [os.path.join(folder, n) for n in os.listdir(folder) if n.startswith("strandline-") and "." not in n]
    return tails[0] + ".ask", tails[0] + ".asking"


ask, asking = place()
before = [sys.getrefcount(o) for o in (stash, stash.kept, losses, w)]
threads = [threading.Thread(target=churn, args=(i,)) for i in range(5)]
for t in threads:
    t.start()
asked = 0
while time.time() < ends:
    if not os.path.exists(ask):
        asked += 1
        findings = [{"about": about, "blocks": addresses} for about, addresses in blocks]
        with open(asking, "w") as f:
            json.dump({"number": asked, "findings": findings}, f)
        os.rename(asking, ask)
    time.sleep(0.005)
for t in threads:
    t.join()
del threads, t
gc.collect()
after = [sys.getrefcount(o) for o in (stash, stash.kept, losses, w)]
print("failures", failures)
print("references", [a - b for a, b in zip(after, before)], "alive", sum(r() is not None for r in weak), "callbacks", len(fired))
freed = torch.cuda.memory_allocated()
stash.kept.clear()
losses.clear()
print("freed", freed - torch.cuda.memory_allocated(), "callbacks", len(fired), [r() for r in weak if r() is not None])
print("left", torch.cuda.memory_allocated())
print("asked", asked, "rounds", rounds, file=sys.stderr)
