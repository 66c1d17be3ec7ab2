"""A job that is asked who holds its blocks, and that notices whatever touches it.

It lays the question itself, as a watcher would, waits until the file `answered` is there, and prints what it can see of itself:
lines that must be the same whether it was looked into or not.
"""
import ctypes, gc, json, os, sys, time, weakref

import torch

COUNTS = dict.fromkeys(("property", "getattr", "hash", "eq", "del", "function", "pack", "unpack", "callback"), 0)


def count(what):
    COUNTS[what] += 1


class Proxy:
    """Says that it is something else."""

    def __init__(self, t):
        self.inner = t

    @property
    def __class__(self):
        count("property")
        return torch.Tensor

    def __getattr__(self, name):
        count("getattr")
        raise AttributeError(name)

    def __hash__(self):
        count("hash")
        return 7

    def __eq__(self, other):
        count("eq")
        return self is other


class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        count("function")
        return super().__torch_function__(func, types, args, kwargs or {})


class Stash:
    def __init__(self):
        self.kept = {}


class Rec:
    def __init__(self, t):
        self.loss = t

    def __del__(self):
        count("del")


class Slotted:
    __slots__ = ("t",)


class Node:
    def __init__(self, t):
        self.t, self.me = t, self


class Keeper(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.context = (x.detach(), y.detach())
        return y

    @staticmethod
    def backward(ctx, g):
        return g


def address(t):
    return torch.Tensor.untyped_storage(t).data_ptr()


def some(n=4):
    return [torch.empty(1024, device="cuda") for _ in range(n)]


def stale(losses, words):
    """Leaves addresses where the heap has room behind the last member of a node, as whoever had that memory before may do."""
    room = ctypes.CDLL(None).malloc_usable_size
    room.argtypes = [ctypes.c_void_p]
    word = lambda at: ctypes.c_uint64.from_address(at)
    for loss, left in zip(losses, words):
        implementation = word(id(loss) + 16).value
        implementation = implementation if implementation > 4096 else word(id(loss) + 24).value
        node = word(word(implementation + 24).value + 48).value
        if loss.grad_fn.name() == "SumBackward0" and 504 <= room(node) <= 520:  # the heap may give a little more
            word(node + 496).value = left
        else:
            print("no room in", loss.grad_fn.name(), room(node))


def pack(t):
    count("pack")
    return t


def unpack(t):
    count("unpack")
    return t


def closing():
    inside = some()
    blocks.append(("closure", [address(t) for t in inside]))

    def closed():
        return len(inside)

    return closed


blocks = []
stash = Stash()
for i, t in enumerate(some()):
    stash.kept[i] = (t, False)
blocks.append(("attribute", [address(v[0]) for v in stash.kept.values()]))
losses, graphs = {"loss": []}, []
w = torch.ones(1024, device="cuda", requires_grad=True)
with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
    for _ in range(4):
        h = (w * 2).exp()  # exp keeps its result
        graphs.append(h)
        losses["loss"].append(h.sum())
blocks.append(("result", [address(h) for h in graphs]))
graphs.clear()
del h
made = []
keepers = []
for _ in range(4):
    y = Keeper.apply(w)
    made.append(y.grad_fn.context[1].data_ptr())
    keepers.append((y * 3).sum())
for _ in range(4):
    y = torch.sin(w * 1.5)  # sin keeps what it was given
    keepers.append(y.sum())
    made.append(y.grad_fn._raw_saved_self.data.data_ptr() if hasattr(y.grad_fn._raw_saved_self, "data") else made[0])
del y
blocks.append(("graph", made))
history = [Rec(t) for t in some()]
blocks.append(("records", [address(r.loss) for r in history]))
gc.collect()
gc.disable()  # the cycles that follow are there until the end
nodes = some()
blocks.append(("cycle", [address(t) for t in nodes]))
stale(keepers, [id(Node(t)) for t in nodes])
del nodes, t
close = closing()  # the closure is found, its cells and tensors are what it keeps
proxies = [Proxy(t) for t in some()]
slotted = Slotted()
slotted.t = torch.empty(1024, device="cuda")
subs = [torch.empty(1024, device="cuda").as_subclass(Sub) for _ in range(4)]
blocks.append(("subclass", [address(t) for t in subs]))
called = lambda _: count("callback")
weak = [weakref.ref(r, called) for r in history] + [weakref.ref(t, called) for t in stash.kept[0][:1]]
blocks.append(("nothing", [12345 << 9]))


def lay():
    folder = os.environ["STRANDLINE_TAIL"]
    (tail,) = [os.path.join(folder, n) for n in os.listdir(folder) if n.startswith("strandline-")]
    findings = [{"about": about, "blocks": addresses} for about, addresses in blocks if about != "result"]
    with open(tail + ".asking", "w") as f:
        json.dump({"number": 1, "findings": findings}, f)
    os.rename(tail + ".asking", tail + ".ask")


def wait():
    outs = some()
    blocks.append(("local", [address(t) for t in outs]))
    lay()
    for _ in range(30_000):
        if os.access("answered", os.F_OK):
            break
        time.sleep(0.004)
    return outs


def seen():
    counters = dict(COUNTS)
    refs = [sys.getrefcount(o) for o in (stash, stash.kept, losses, history, keepers, proxies, w)]
    return counters, gc.get_stats(), gc.get_count(), refs, [r() is not None for r in weak]


os.access("answered", os.F_OK)
before = seen()
wait()
after = seen()
print("counters", after[0])
print("collector", [a[k] - b[k] for b, a in zip(before[1], after[1]) for k in a], [a - b for b, a in zip(before[2], after[2])])
print("references", before[3] == after[3], after[4])
before = torch.cuda.memory_allocated()
stash.kept.clear()
history.clear()
subs.clear()
print("freed", before - torch.cuda.memory_allocated(), "del", COUNTS["del"], "callbacks", COUNTS["callback"], [r() is None for r in weak])
print("collected", gc.collect())
