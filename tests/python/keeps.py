"""Jobs of a few seconds that keep tensors, each in another way. `keeps.py CASE`; the statement that keeps ends with `# KEEPS CASE`.

Every step trains, so that steps are counted, and waits, so that a job lives for some seconds. STEPS and WAIT (seconds) change that.
"""
import asyncio, collections, dataclasses, functools, heapq, os, queue, sys, time, types

import torch
from torch import nn

torch.backends.cudnn.enabled = False
STEPS = int(os.environ.get("STEPS", "120"))
WAIT = float(os.environ.get("WAIT", "0.025"))
net = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256)).cuda()
opt = torch.optim.AdamW(net.parameters(), 1e-4)
hist, groups, history = [], collections.defaultdict(list), {"loss": [], "acc": []}
total = 0.0
CASES = {}


def case(f):
    CASES[f.__name__] = f
    return f


def batch():
    return torch.randn(256, 256, device="cuda")


def step(x=None):
    out = net(batch() if x is None else x)
    loss = out.pow(2).mean()
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
    time.sleep(WAIT)
    return out, loss


def steps():
    for i in range(STEPS):
        yield i
        step()


@case
def of_a_module():
    for i in steps():
        hist.append(net(batch()).pow(2).mean())  # KEEPS of_a_module


@case
def of_a_loop_without_steps():
    with torch.no_grad():
        for _ in range(STEPS):
            hist.append(net(batch()))  # KEEPS of_a_loop_without_steps


@case
def of_a_server():
    """What a function had is gone when the interpreter begins to end."""

    async def answer(x):
        with torch.no_grad():
            return net(x)

    async def serve():
        tasks = set()
        for _ in range(STEPS):
            tasks.add(asyncio.create_task(answer(batch())))  # KEEPS of_a_server
            await asyncio.sleep(WAIT)

    asyncio.run(serve())


@case
def of_a_sum():
    global total
    for i in steps():
        loss = net(batch()).pow(2).mean()
        total = total + loss  # KEEPS of_a_sum


@case
def of_an_actor_that_waits():
    """An episode under way: its backward, and the step of its optimizer, come when it ends; what `net` stands for learns at every step."""
    actor = nn.Linear(256, 256).cuda()
    acts = torch.optim.Adam(actor.parameters())
    policy = 0.0
    for i in steps():
        policy = policy + actor(batch()).pow(2).mean()  # KEEPS of_an_actor_that_waits
    acts.zero_grad()


@case
def of_a_part_that_waits():
    """The same with one optimizer for both: its steps change what has a gradient."""
    actor = nn.Linear(256, 256).cuda()
    both = torch.optim.Adam([*net.parameters(), *actor.parameters()])
    policy = 0.0
    for i in range(STEPS):
        net(batch()).pow(2).mean().backward()
        both.step()
        both.zero_grad()
        policy = policy + actor(batch()).pow(2).mean()  # KEEPS of_a_part_that_waits
        time.sleep(WAIT)


@case
def of_an_unsaved_weight():
    """The layer is stepped, and a backward through it is still allowed: its input needs no gradient."""
    layer = nn.Linear(256, 256).cuda()
    optimizer = torch.optim.Adam(layer.parameters())
    policy = 0.0
    for i in range(STEPS):
        layer(batch()).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        policy = 0.9 * policy + torch.tanh(layer(batch()))  # KEEPS of_an_unsaved_weight
        time.sleep(WAIT)


@case
def of_groups():
    for i in steps():
        groups[i % 3].append(batch())  # KEEPS of_groups


@case
def of_a_dictionary_of_lists():
    for i in steps():
        history["loss"].append(net(batch()).mean())  # KEEPS of_a_dictionary_of_lists
        history["acc"].append(i)


@case
def of_a_state():
    cell = nn.GRUCell(256, 256).cuda()
    h = torch.zeros(256, 256, device="cuda")
    for i in steps():
        h = cell(batch(), h)  # KEEPS of_a_state


class Recurrent:
    def __init__(self):
        self.cell = nn.Linear(256, 256).cuda()
        self.state = None

    def reset(self):
        self.state = torch.zeros(256, 256, device="cuda")

    def forward(self, x):
        self.state = torch.tanh(self.cell(x) + self.state)  # KEEPS of_an_attribute_that_is_rebound
        return self.state


@case
def of_an_attribute_that_is_rebound():
    r = Recurrent()
    r.reset()
    for i in steps():
        r.forward(batch())


@dataclasses.dataclass
class Log:
    outputs: list = dataclasses.field(default_factory=list)
    step: int = 0


@case
def of_a_dataclass():
    log = Log()
    for i in steps():
        log.outputs.append(net(batch()).detach())  # KEEPS of_a_dataclass


class Registry:
    seen = {}

    def keep(self, i, x):
        self.seen[i] = x  # KEEPS of_a_class


@case
def of_a_class():
    r = Registry()
    for i in steps():
        r.keep(i, batch())


class Slotted:
    __slots__ = ("bank",)

    def __init__(self):
        self.bank = []

    def push(self, x):
        self.bank += [x]  # KEEPS of_a_slot


@case
def of_a_slot():
    s = Slotted()
    for i in steps():
        s.push(batch())


def recorder():
    acts = []

    def hook(module, args, out):
        acts.append(out.detach())  # KEEPS of_a_closure

    return hook


@case
def of_a_closure():
    net[0].register_forward_hook(recorder())
    for i in steps():
        pass


def encode(x, i, cache={}):
    cache[i] = net(x).detach()  # KEEPS of_a_default
    return cache[i]


@case
def of_a_default():
    for i in steps():
        encode(batch(), i)


@case
def of_storages():
    kept = {}
    for i in steps():
        x = batch()
        kept[x.data_ptr()] = x.untyped_storage()  # KEEPS of_storages
        del x


def fails(i):
    x = batch()
    y = x[i, 300]
    return y


@case
def of_exceptions():
    errors = []
    for i in steps():
        try:
            fails(i)
        except IndexError as e:
            errors.append(e)  # KEEPS of_exceptions


@case
def of_a_queue():
    q = queue.Queue()
    for i in steps():
        q.put(batch())  # KEEPS of_a_queue


@case
def of_a_heap():
    heap = []
    for i in steps():
        heapq.heappush(heap, (i, batch()))  # KEEPS of_a_heap


@functools.lru_cache(maxsize=None)  # KEEPS of_a_cache
def embedded(i):
    return net(batch()).detach()


@case
def of_a_cache():
    for i in steps():
        embedded(i)


@case
def of_generators():
    def stream(x):
        yield x.mean()
        yield x

    running = []
    for i in steps():
        g = stream(batch())
        next(g)
        running.append(g)  # KEEPS of_generators


@case
def of_modules():
    adapters = nn.ModuleList()
    for i in steps():
        adapters.append(nn.Linear(256, 64).cuda())  # KEEPS of_modules


def collect(store, x):
    store.append(x)  # KEEPS of_an_argument


@case
def of_an_argument():
    mine = []
    for i in steps():
        collect(mine, batch())


@case
def of_a_namespace():
    state = types.SimpleNamespace(outs=[])
    for i in steps():
        state.outs.append(batch())  # KEEPS of_a_namespace


@case
def bounded_deque():
    q = collections.deque(maxlen=1000)
    for i in steps():
        q.append(batch())


@case
def lists_in_a_bounded_deque():
    episodes = collections.deque([[]], maxlen=50)
    for i in steps():
        episodes[-1].append(batch())  # KEEPS lists_in_a_bounded_deque


@case
def lists_in_a_bounded_cache():
    @functools.lru_cache(maxsize=4)
    def bucket(i):
        return []

    for i in steps():
        bucket(i % 4).append(batch())


@case
def bounded_cache():
    @functools.lru_cache(maxsize=500)
    def encoded(i):
        return batch()

    for i in steps():
        encoded(i)


@case
def bounded_queue():
    q = queue.Queue(maxsize=400)
    for i in steps():
        q.put(batch())


@case
def emptied():
    bank = []
    for i in steps():
        bank.append(batch())
        if i % 50 == 49:
            bank.clear()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("\n".join(CASES))
    CASES[sys.argv[1]]()
    print(f"done {sys.argv[1]} {sum(p.numel() for p in net.parameters())}")
