"""More jobs of a few seconds that keep tensors, beside those of keeps.py, whose model and steps they use. `kept_more.py CASE`; the statement
that keeps ends with `# KEEPS CASE`. Where a case is marked `# NONE CASE` there is no statement of its own to name, and none must be named."""

import asyncio, collections, contextlib, dataclasses, functools, itertools, sys, threading, time, types, typing, weakref

import torch
from torch import nn

import keeps
from keeps import batch, net, opt, step, steps

CASES = {}
store = threading.local()


def case(f):
    CASES[f.__name__] = f
    return f


@case
def weak_keys():
    """Strong values, and keys that somebody else keeps."""
    memory, keys = weakref.WeakKeyDictionary(), []
    for i in steps():
        key = nn.Identity()
        keys.append(key)
        memory[key] = batch()  # KEEPS weak_keys


class Collate:
    def __init__(self):
        self.seen = []

    def __call__(self, items):
        out = torch.stack([torch.full((256,), float(i)) for i in items]).cuda()
        self.seen.append(out)  # KEEPS collate
        return out


@case
def collate():
    loader = torch.utils.data.DataLoader(range(4096), batch_size=32, collate_fn=Collate())
    for _, x in zip(steps(), loader):
        net(x)


class Probe:
    def __init__(self, model):
        self.activations = collections.defaultdict(list)
        for name, m in model.named_modules():
            if isinstance(m, nn.Linear):
                m.register_forward_hook(functools.partial(self.save, name))

    def save(self, name, module, args, out):
        self.activations[name].append(out.detach())  # KEEPS hooks_of_an_object


@case
def hooks_of_an_object():
    probe = Probe(net)
    for i in steps():
        pass
    return probe


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(256, 256)
        self.outputs = []

    def forward(self, x):
        h = self.inner(x)
        self.outputs.append(h)  # KEEPS list_of_a_module
        return h


@case
def list_of_a_module():
    encoder = Encoder().cuda()
    for i in steps():
        encoder(batch())


@case
def exc_info():
    failed = {}

    def fails(i):
        x = batch()
        return x[i, 300]

    for i in steps():
        try:
            fails(i)
        except IndexError:
            failed[i] = sys.exc_info()  # KEEPS exc_info


@case
def thread_local():
    store.kept = []
    for i in steps():
        store.kept.append(batch())  # KEEPS thread_local


@case
def groups_of_the_optimizer():
    """Adapters that nobody but the optimizer has."""
    for i in steps():
        adapter = nn.Linear(256, 64).cuda()
        adapter(batch()).mean().backward()
        opt.add_param_group({"params": list(adapter.parameters())})  # KEEPS groups_of_the_optimizer


@case
def stale_state():  # NONE stale_state
    """Parameters that are replaced; their state stays. Its line is torch's own."""
    adapter = nn.Linear(256, 64).cuda()
    opt.add_param_group({"params": list(adapter.parameters())})
    for i in steps():
        adapter = nn.Linear(256, 64).cuda()
        opt.param_groups[-1]["params"] = list(adapter.parameters())
        adapter(batch()).mean().backward()


class Metric(nn.Module):
    """As metrics of libraries have it: named states, made by setattr."""

    def __init__(self):
        super().__init__()
        self.defaults = {}
        self.add_state("preds", [])

    def add_state(self, name, default):
        setattr(self, name, default)
        self.defaults[name] = default

    def update(self, preds):
        preds = preds.detach()
        self.preds.append(preds)  # KEEPS metric_states


@case
def metric_states():
    metric = Metric()
    for i in steps():
        metric.update(net(batch()))


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val, self.sum, self.count = 0, 0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n  # KEEPS average_meter
        self.count += n


@case
def average_meter():
    meter = AverageMeter()
    for i in steps():
        meter.update(net(batch()).pow(2).mean())


class Trainer:
    def __init__(self):
        self.log_history = []
        self.metrics = {"train": {"loss": []}}

    def log(self, logs):
        self.log_history.append({**logs, "step": len(self.log_history)})  # KEEPS log_history

    def nested(self, loss):
        self.metrics["train"]["loss"].append(loss)  # KEEPS nested_metrics


@case
def log_history():
    trainer = Trainer()
    for i in steps():
        trainer.log({"loss": net(batch()).pow(2).mean()})


@case
def nested_metrics():
    trainer = Trainer()
    for i in steps():
        trainer.nested(net(batch()).pow(2).mean())


@case
def deque_without_end():
    window = collections.deque()
    for i in steps():
        window.appendleft(batch())  # KEEPS deque_without_end


class Table:
    def __init__(self, *names):
        self.columns = {n: [] for n in names}

    def add_row(self, **row):
        for name, value in row.items():
            self.columns[name].append(value)  # KEEPS rows_of_a_table


@case
def rows_of_a_table():
    table = Table("step", "logits")
    for i in steps():
        table.add_row(step=i, logits=net(batch()).detach())


@case
def asyncio_backlog():
    """A consumer that is slower than its producer."""

    async def main():
        backlog = asyncio.Queue()

        async def consume():
            while True:
                await asyncio.sleep(0.2)
                await backlog.get()

        consumer = asyncio.create_task(consume())
        for i in steps():
            await backlog.put(batch())  # KEEPS asyncio_backlog
            await asyncio.sleep(0)
        consumer.cancel()

    asyncio.run(main())


@case
def storages_in_a_list():
    pool = []
    for i in steps():
        y = net(batch()).detach()
        pool.append(y.untyped_storage())  # KEEPS storages_in_a_list


@case
def views():
    """One row of each output, and the whole output with it."""
    rows = []
    for i in steps():
        y = net(batch()).detach()
        rows.append(y[0])  # KEEPS views


class Model:
    @functools.lru_cache(maxsize=None)  # KEEPS cached_method
    def embed(self, i):
        return net(batch()).detach()


@case
def cached_method():
    model = Model()
    for i in steps():
        model.embed(i)


@case
def inside_a_generator():
    def window():
        seen = []
        while True:
            x = yield len(seen)
            seen.append(x)  # KEEPS inside_a_generator

    w = window()
    next(w)
    for i in steps():
        w.send(batch())


@dataclasses.dataclass
class Episode:
    states: typing.List[torch.Tensor] = dataclasses.field(default_factory=list)
    reward: float = 0.0


@dataclasses.dataclass
class Rollouts:
    episodes: typing.Dict[int, Episode] = dataclasses.field(default_factory=dict)

    def add(self, i, state):
        self.episodes.setdefault(i // 10, Episode()).states.append(state)  # KEEPS nested_dataclasses


@case
def nested_dataclasses():
    rollouts = Rollouts()
    for i in steps():
        rollouts.add(i, batch())


class Counted:
    history = []

    @classmethod
    def record(cls, x):
        cls.history.append(x)  # KEEPS class_attribute


@case
def class_attribute():
    for i in steps():
        Counted.record(batch())


def recorded():
    kept = ()

    def record(x):
        nonlocal kept
        kept += (x,)  # KEEPS tuple_of_a_closure

    return record


def records(record):
    for i in steps():
        record(net(batch()).detach())


@case
def tuple_of_a_closure():
    records(recorded())


@case
def tuple_that_grows():
    kept = ()
    for i in steps():
        kept = kept + (batch(),)  # KEEPS tuple_that_grows


@case
def list_that_is_remade():
    kept = []
    for i in steps():
        kept = kept + [batch()]  # KEEPS list_that_is_remade


@case
def hidden_state_of_two():
    """Both the state and the loss have the graph of all steps; the state is what is carried."""
    cell = nn.LSTMCell(256, 256).cuda()
    loss, state = None, (torch.zeros(256, 256, device="cuda"), torch.zeros(256, 256, device="cuda"))
    for i in steps():
        state = cell(batch(), state)  # KEEPS hidden_state_of_two
        loss = state[0].pow(2).mean()
        loss.backward(retain_graph=True)


@case
def loss_beside_its_state():
    """The loss is a local as well, and comes first."""
    cell = nn.GRUCell(256, 256).cuda()
    loss, h = None, torch.zeros(256, 256, device="cuda")
    for i in steps():
        out = cell(batch(), h)
        loss = out.pow(2).mean()
        loss.backward(retain_graph=True)
        h = out  # KEEPS loss_beside_its_state


@case
def moving_average():
    average = None
    for i in steps():
        loss = net(batch()).pow(2).mean()
        average = loss if average is None else 0.9 * average + 0.1 * loss  # KEEPS moving_average


@case
def cycled():
    """itertools.cycle keeps all that it has handed out."""
    batches = itertools.cycle(batch() for _ in range(100_000))  # KEEPS cycled
    for i in steps():
        next(batches)


@case
def context_stack():
    with contextlib.ExitStack() as stack:
        for i in steps():
            x = batch()
            stack.callback(torch.Tensor.zero_, x)  # KEEPS context_stack


@case
def two_lists():
    """Two lists with half of it each, filled in one statement."""
    first, second = [], []
    for i in steps():
        x = batch()
        first.append(x) if i % 2 else second.append(x)  # KEEPS two_lists


@case
def attributes_of_a_function():
    def predict(x):
        y = net(x).detach()
        predict.seen.append(y)  # KEEPS attributes_of_a_function
        return y

    predict.seen = []
    for i in steps():
        predict(batch())


class Replay:
    def __init__(self):
        self.buffer = [None] * 100_000
        self.at = 0

    def push(self, *transition):
        self.buffer[self.at] = transition  # KEEPS slots_of_a_buffer
        self.at += 1


@case
def slots_of_a_buffer():
    replay = Replay()
    for i in steps():
        s = batch()
        replay.push(s, i, s.mean())


class Node:
    def __init__(self, value, before):
        self.value, self.before = value, before


@case
def linked_list():
    head = None
    for i in steps():
        head = Node(batch(), head)  # KEEPS linked_list


class Window:
    """As Bank, and emptied."""

    def __init__(self):
        self.buffer = []

    def push(self, x):
        self.buffer.append(x)
        if len(self.buffer) > 4:
            self.buffer.clear()


class Bank:
    def __init__(self):
        self.buffer = []

    def push(self, x):
        self.buffer.append(x)  # KEEPS same_name_in_two_classes


@case
def same_name_in_two_classes():
    window, bank = Window(), Bank()
    for i in steps():
        x = batch()
        window.push(x)
        bank.push(x)


class Stepper:
    """The state is read in one method and set in another."""

    def __init__(self):
        self.cell = nn.Linear(256, 256).cuda()
        self.state = torch.zeros(256, 256, device="cuda")

    def advance(self, x):
        return torch.tanh(self.cell(x) + self.state)

    def run(self, x):
        new = self.advance(x)
        self.loss = new.mean()
        self.state = new  # KEEPS state_of_two_methods


@case
def state_of_two_methods():
    s = Stepper()
    for i in steps():
        s.run(batch())


@case
def sums_by_name():
    sums, last = {"loss": 0.0}, {}
    for i in steps():
        loss = net(batch()).pow(2).mean()
        last["loss"] = loss
        sums["loss"] += loss  # KEEPS sums_by_name


@case
def losses_beside_numbers():
    """Logged as a number to one place, as a tensor to another."""
    log = {"number": [], "tensor": []}
    for i in steps():
        loss = net(batch()).pow(2).mean()
        log["number"].append(loss.item())
        log["tensor"].append(loss)  # KEEPS losses_beside_numbers


@case
def best_of_all():
    """A state_dict's copy is kept of every step, under the best's name one of them."""
    history, best = {}, None
    for i in steps():
        snapshot = {k: v.detach().clone() for k, v in net.state_dict().items()}
        best = snapshot if best is None or i % 7 == 0 else best
        history[i] = snapshot  # KEEPS best_of_all
    return best


@case
def requests_that_are_dropped():
    """What is answered goes; one in three is never answered."""
    pending = {}
    for i in steps():
        pending[i] = batch()  # KEEPS requests_that_are_dropped
        if i >= 3 and i % 3:
            pending.pop(i - 3, None)


class Session:
    """Made anew for each request, and kept by a registry of the class."""

    sessions = []

    def __init__(self, x):
        self.x = x
        Session.sessions.append(self)  # KEEPS instances


@case
def instances():
    for i in steps():
        Session(batch())


@case
def callbacks():
    """Functions that have closed over a tensor."""
    waiting = []
    for i in steps():
        x = batch()
        waiting.append(lambda x=x: x.sum())  # KEEPS callbacks


@case
def partials():
    waiting = collections.OrderedDict()
    for i in steps():
        waiting[i] = functools.partial(torch.Tensor.sum, batch())  # KEEPS partials


def attach(layer, noise):
    def hook(module, args, out):
        return out + noise

    layer.register_forward_hook(hook)  # KEEPS closure_of_a_hook


@case
def closure_of_a_hook():
    """Hooks that nobody removes, each with a tensor of its own."""
    for i in steps():
        attach(net[2], batch())


@case
def attributes_by_name():
    store = types.SimpleNamespace()
    for i in steps():
        setattr(store, f"batch{i}", batch())  # KEEPS attributes_by_name


def worker(q, results):
    while True:
        x = q.get()
        if x is None:
            return
        results.append(x * 2)  # KEEPS thread_of_its_own


@case
def thread_of_its_own():
    import queue

    q, results = queue.Queue(), []
    t = threading.Thread(target=worker, args=(q, results))
    t.start()
    for i in steps():
        q.put(batch())
    q.put(None)
    t.join()


@case
def state_by_way_of_another_name():
    """As the state is looked at, the name that it was made by still has a part of its graph."""
    cell, h = nn.Linear(512, 256).cuda(), torch.zeros(256, 256, device="cuda")
    for i in steps():
        gates = cell(torch.cat([batch(), h], dim=1))
        h = torch.tanh(gates)  # KEEPS state_by_way_of_another_name


@case
def fast_weights():
    """Inner steps that build on each other, and are never begun anew from the slow weights."""
    slow = torch.randn(256, 256, device="cuda", requires_grad=True)
    fast = slow
    for i in steps():
        (grad,) = torch.autograd.grad((batch() @ fast).pow(2).mean(), fast, create_graph=True)
        fast = fast - 0.01 * grad  # KEEPS fast_weights


class Recorder:
    def __init__(self):
        self.samples = []
        self.push = self.samples.append

    def on_step(self, x):
        self.push(x)  # KEEPS method_that_an_attribute_has


@case
def method_that_an_attribute_has():
    recorder = Recorder()
    for i in steps():
        recorder.on_step(batch())


class Snapshots(nn.Module):
    def __init__(self):
        super().__init__()
        self.taken = 0
        self.register_buffer("mask", torch.ones(8, device="cuda"))

    def take(self, x):
        self.taken += 1
        self.register_buffer(f"snapshot{self.taken}", x)  # KEEPS buffers_of_a_module


@case
def buffers_of_a_module():
    snapshots = Snapshots()
    for i in steps():
        snapshots.take(batch())


class Tracker:
    def __init__(self):
        self.last = None

    def push(self, x):
        x.before = self.last
        self.last = x  # KEEPS tensors_that_have_the_one_before


@case
def tensors_that_have_the_one_before():
    tracker = Tracker()
    for i in steps():
        tracker.push(batch())


@case
def capsules():
    """Of DLPack, which nobody takes."""
    given = []
    for i in steps():
        given.append(torch.utils.dlpack.to_dlpack(batch()))  # KEEPS capsules


def writer():
    rows = []
    return rows.append


@case
def method_of_a_list_without_a_name():
    write = writer()
    for i in steps():
        write(batch())  # KEEPS method_of_a_list_without_a_name


class Reporter:
    def __init__(self):
        self.names = {}

    def note(self, name, t):
        self.names[t] = f"{name}.out"  # KEEPS tensors_as_keys


@case
def tensors_as_keys():
    reporter = Reporter()
    for i in steps():
        reporter.note("layer", batch())


class Quantized(torch.autograd.Function):
    """Of an input whose gradient nobody needs there is no backward."""
    masks = {}

    @staticmethod
    def forward(ctx, x, key):
        ctx.key = key
        Quantized.masks[ctx.key] = (x / 0.05).abs() < 127  # KEEPS masks_of_a_function
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g * Quantized.masks.pop(ctx.key), None


@case
def masks_of_a_function():
    for i in steps():
        Quantized.apply(torch.randn(1024, 1024, device="cuda"), i)


def fold():
    step()
    return batch()


@case
def made_by_a_comprehension():
    global folds
    folds = [fold() for _ in range(keeps.STEPS)]  # KEEPS made_by_a_comprehension


class Results:
    def __init__(self):
        self.kept = collections.defaultdict(list)

    def add(self, x):
        feats = x.sigmoid()
        self.kept["feats"].append(feats)  # KEEPS large_beside_small
        self.kept["prob"].append(feats[:, :2].softmax(-1))


@case
def large_beside_small():
    results = Results()
    for i in steps():
        results.add(batch())


@case
def reduced_by_a_mean():
    parts = []
    for i in steps():
        kl = (net(batch()) - batch()).pow(2).mean()
        parts.append(kl)  # KEEPS reduced_by_a_mean


@case
def first_row_of_many():
    rows = []
    with torch.no_grad():
        for i in range(keeps.STEPS):
            out = nn.functional.normalize(net(batch()), dim=-1)
            rows.append(out[0])  # KEEPS first_row_of_many
            time.sleep(keeps.WAIT)


@case
def stream_without_no_grad():
    cell = nn.GRUCell(256, 256).cuda()
    state = batch()
    for i in range(keeps.STEPS):
        x = net(batch()).detach()
        state = cell(x, state)  # KEEPS stream_without_no_grad
        state.argmax(-1).cpu()
        time.sleep(keeps.WAIT)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("\n".join(CASES))
    CASES[sys.argv[1]]()
    print(f"done {sys.argv[1]} {sum(p.numel() for p in net.parameters())}")
