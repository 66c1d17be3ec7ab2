"""Jobs of a few seconds that keep tensors where Python's own library, numpy or a tensor has them, or under names that are made as the job runs,
beside those of keeps.py, whose model and steps they use. `kept_by_others.py CASE`; the statement that keeps ends with `# KEEPS CASE`."""

import atexit, collections, contextvars, copy, functools, itertools, logging, logging.handlers, queue, sys, weakref

import torch

from keeps import batch, net, opt, steps

CASES = {}
by_name = []
pending = []
current = contextvars.ContextVar("current", default=())
log = logging.getLogger("train")


def case(f):
    CASES[f.__name__] = f
    return f


@case
def of_a_parameter():
    """An attribute of a parameter."""
    weight = net[0].weight
    weight.history = []
    for i in steps():
        weight.history.append(batch())  # KEEPS of_a_parameter


@case
def sparse_tensors():
    """Adjacencies of graphs, by coordinates and by rows: their indices and values are tensors that Python does not have."""
    graphs = []
    for i in steps():
        index = torch.stack([torch.arange(20000, device="cuda") % 256] * 2)
        adjacency = torch.sparse_coo_tensor(index, torch.rand(20000, device="cuda"), (256, 256), check_invariants=False)
        rows = torch.arange(0, 20001, 200, device="cuda")
        by_rows = torch.sparse_csr_tensor(rows, index[0].clone(), torch.rand(20000, device="cuda"), (100, 256), check_invariants=False)
        graphs.append((adjacency, by_rows))  # KEEPS sparse_tensors


@case
def of_a_tensor():
    """The same of a tensor that is no parameter."""
    running = torch.zeros(8, device="cuda")
    running.parts = {}
    for i in steps():
        running.parts[i] = batch()  # KEEPS of_a_tensor


@case
def chain_map():
    layers = collections.ChainMap({}, {"rate": 0.1})
    for i in steps():
        layers[i] = batch()  # KEEPS chain_map


@case
def finalizers():
    owners = []
    for i in steps():
        owner = collections.UserList()
        owners.append(owner)
        weakref.finalize(owner, torch.Tensor.sum, batch())  # KEEPS finalizers


@case
def log_records():
    handler = logging.handlers.MemoryHandler(1 << 20, flushLevel=100)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    for i in steps():
        log.info("step %d", i)
        log.info("a batch: %s", batch())  # KEEPS log_records
    handler.buffer.clear()


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)  # KEEPS handler_of_its_own


@case
def handler_of_its_own():
    log.addHandler(Records())
    log.setLevel(logging.INFO)
    for i in steps():
        log.info("a batch: %s", batch())


@case
def by_globals():
    for i in steps():
        globals()["by_name"].append(batch())  # KEEPS by_globals


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mask = torch.empty_like(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.mask


@case
def views_with_a_graph():
    """The graph of a view, which has more of autograd than other tensors have: what is kept lies in a node of it."""
    firsts = []
    for i in steps():
        y = Scale.apply(net(batch()))
        y.mean().backward()
        firsts.append(y[0, 0])  # KEEPS views_with_a_graph


class Bank(collections.UserList):
    pass


@case
def nodes_of_graphs():
    """What made a loss, without the loss."""
    nodes = []
    for i in steps():
        nodes.append((net(batch()) ** 2).mean().grad_fn)  # KEEPS nodes_of_graphs


@case
def class_made_of_a_user_list():
    bank = Bank()
    for i in steps():
        bank.append(batch())  # KEEPS class_made_of_a_user_list


class Waiting(queue.Queue):
    pass


@case
def class_made_of_a_queue():
    waiting = Waiting(maxsize=400)
    for i in steps():
        waiting.put(batch())  # KEEPS class_made_of_a_queue


class Features:
    pass


@case
def attributes_of_a_class_of_its_own():
    features = Features()
    for i in steps():
        setattr(features, f"batch{i}", batch())  # KEEPS attributes_of_a_class_of_its_own


class Metric:
    def __init__(self):
        for name in ("preds", "target"):
            setattr(self, name, [])

    def update(self, **values):
        for name, value in values.items():
            getattr(self, name).append(value)  # KEEPS lists_by_name


@case
def lists_by_name():
    metric = Metric()
    for i in steps():
        metric.update(preds=net(batch()).detach(), target=batch())


class Sample:
    @functools.cached_property  # KEEPS cached_properties
    def features(self):
        return batch()


@case
def cached_properties():
    samples = [Sample() for _ in range(1000)]
    for i in steps():
        samples[i].features


@case
def branch_that_lags():
    """The second of two iterators over the same batches is never asked."""

    def batches():
        while True:
            yield batch()

    first, second = itertools.tee(batches())  # KEEPS branch_that_lags
    for i in steps():
        next(first)


@case
def array_of_objects():
    import numpy

    memory = numpy.empty(100_000, dtype=object)
    for i in steps():
        memory[i] = batch()  # KEEPS array_of_objects


class LayerCache:
    def __init__(self, layers):
        self.keys = [torch.zeros(8, 4, 0, 64, device="cuda") for _ in range(layers)]

    def update(self, layer, new):
        self.keys[layer] = torch.cat([self.keys[layer], new], dim=2)  # KEEPS blocks_that_are_made_anew


@case
def blocks_that_are_made_anew():
    """Keys of two layers, which nobody cuts: there are never more blocks, and none of them is old."""
    cache = LayerCache(2)
    for i in steps():
        for layer in range(2):
            cache.update(layer, torch.randn(8, 4, 16, 64, device="cuda"))


@case
def dictionaries_in_one_that_is_remade():
    kept = {}
    for i in steps():
        gradients = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
        kept = {**kept, i: gradients}  # KEEPS dictionaries_in_one_that_is_remade


@case
def class_called_deque():
    """A small class of the script's own, called as a large one of Python's: nothing behind its end may be read."""
    class deque:
        __slots__ = ("value",)
    kept = []
    for i in steps():
        one = deque()
        one.value = batch()
        kept.append(one)  # KEEPS class_called_deque


@case
def calls_at_exit():
    for i in steps():
        atexit.register(torch.Tensor.sum, batch())  # KEEPS calls_at_exit


@case
def context_variable_that_is_remade():
    for i in steps():
        current.set((*current.get(), batch()))  # KEEPS context_variable_that_is_remade


@case
def list_of_a_context_variable():
    current.set([])
    for i in steps():
        current.get().append(batch())  # KEEPS list_of_a_context_variable


@case
def contexts():
    kept = []
    for i in steps():
        context = contextvars.copy_context()
        context.run(current.set, batch())
        kept.append(context)  # KEEPS contexts


@case
def maps_that_are_chained():
    layers = collections.ChainMap({}, {"rate": 0.1})
    for i in steps():
        layers = layers.new_child({i: batch()})  # KEEPS maps_that_are_chained


def fails(i):
    x = batch()
    raise ValueError(i)


@case
def errors_after_errors():
    """Each error is raised while the one before is handled: `__context__` is a chain, and the last of it has them all."""
    last = None
    for i in steps():
        try:
            try:
                if last is not None:
                    raise last
                fails(i)
            except ValueError:
                fails(i)
        except ValueError as e:
            last = e  # KEEPS errors_after_errors


@case
def tracebacks_and_causes():
    errors = []
    for i in steps():
        try:
            try:
                fails(i)
            except ValueError as e:
                raise RuntimeError(i) from e
        except RuntimeError as e:
            errors.append(e)  # KEEPS tracebacks_and_causes


@case
def bounded_deques_by_key():
    """Three deques that end; 600 entries in all."""
    queues = collections.defaultdict(lambda: collections.deque(maxlen=200))
    for i in steps():
        queues[i % 3].append(batch())  # KEEPS bounded_deques_by_key


@case
def ever_more_bounded_deques():
    queues = collections.defaultdict(lambda: collections.deque(maxlen=2))
    for i in steps():
        queues[i // 2].append(batch())  # KEEPS ever_more_bounded_deques


@case
def hooks_of_a_parameter():
    """An anchor that pulls the weights, by a hook for each step, of which none is removed."""
    for i in steps():
        anchor = batch()
        net[0].weight.register_hook(lambda grad, anchor=anchor: grad + anchor)  # KEEPS hooks_of_a_parameter


class Pull:
    def __init__(self):
        self.to = batch()

    def __call__(self, grad):
        return grad + self.to


@case
def hooks_that_are_objects():
    for i in steps():
        net[2].weight.register_hook(Pull())  # KEEPS hooks_that_are_objects


@case
def list_that_a_hook_fills():
    """One hook of a parameter, which appends to a list: that is the holder, not the hooks."""
    gradients = []
    net[0].weight.register_post_accumulate_grad_hook(lambda w: gradients.append(w.grad))  # KEEPS list_that_a_hook_fills
    for i in steps():
        pass


class Sink:
    def __init__(self):
        self.inbox = queue.Queue()

    def write(self, x):
        self.inbox.put(x)  # KEEPS queues_of_sinks_in_a_list


@case
def queues_of_sinks_in_a_list():
    sinks = [Sink(), Sink()]
    for i in steps():
        sinks[0].write(batch())


@case
def list_beside_a_ring():
    """The newest are in a ring, whose number of entries stays the same; some go to a list, which grows."""
    recent, pinned = collections.deque(maxlen=24), []
    for i in steps():
        x = batch()
        recent.append(x)
        if i % 10 == 0:
            pinned.append(x)  # KEEPS list_beside_a_ring


@case
def what_leaves_a_pool():
    pool, fame = [batch() for _ in range(6)], []
    for i in steps():
        if i % 6 == 5:
            fame.append(pool[i // 6 % 6])  # KEEPS what_leaves_a_pool
            pool[i // 6 % 6] = batch()


class Session:
    def __init__(self, user):
        self.user, self.turns = user, []

    def say(self, turn):
        self.turns.append(turn)  # KEEPS lists_in_a_cache_that_is_full


@functools.lru_cache(maxsize=4)
def session(user):
    return Session(user)


@case
def lists_in_a_cache_that_is_full():
    for i in steps():
        session(i % 4).say(batch())


@case
def optimizers_with_a_loaded_state():
    """Their state was made by no step of theirs."""
    trials = []
    for i in steps():
        trial = torch.optim.AdamW(net.parameters())
        trial.load_state_dict(copy.deepcopy(opt.state_dict()))
        trials.append(trial)  # KEEPS optimizers_with_a_loaded_state


@case
def futures():
    """PyTorch's own code has the tensors: nobody with a name is found, and they are freed only as the job ends."""
    for i in steps():
        pending.append(torch.futures.Future())
        pending[-1].set_result(batch())


@case
def healthy_twins():
    """What is replaced, or taken back, where the cases above keep it: nothing grows."""
    layers, last = collections.ChainMap({}), None
    for i in steps():
        atexit.unregister(torch.Tensor.sum)
        atexit.register(torch.Tensor.sum, batch())
        current.set((*current.get()[-1:], batch()))
        layers = layers.new_child({"x": batch()}).parents
        try:
            fails(i)
        except ValueError as e:
            last = e
    print(type(last), len(layers))


@case
def states_in_a_list():
    """One state of each worker, whose graph grows; the step's own name has that of one of them."""
    cell = torch.nn.GRUCell(256, 256).cuda()
    states = [torch.zeros(256, 256, device="cuda") for _ in range(6)]
    for i in steps():
        states[i % 6] = h = cell(batch(), states[i % 6])  # KEEPS states_in_a_list


@case
def states_by_name():
    cell = torch.nn.GRUCell(256, 256).cuda()
    states = {f"worker{i}": torch.zeros(256, 256, device="cuda") for i in range(24)}
    for i in steps():
        name = f"worker{i % 24}"
        states[name] = cell(batch(), states[name])  # KEEPS states_by_name


class Worker:
    def __init__(self):
        self.state = torch.zeros(256, 256, device="cuda")


@case
def states_of_many_objects():
    cell = torch.nn.GRUCell(256, 256).cuda()
    workers = [Worker() for _ in range(24)]
    for i in steps():
        worker = workers[i % 24]
        worker.state = cell(batch(), worker.state)  # KEEPS states_of_many_objects


@case
def wrapped_again_and_again():
    """Each step puts another function around the last one."""
    class Layer(torch.nn.Linear):
        pass

    def scaled(inner, by):
        return lambda x: inner(x) * by
    layer = Layer(256, 256).cuda()
    for i in steps():
        layer.forward = scaled(layer.forward, batch())  # KEEPS wrapped_again_and_again


@case
def partials_of_partials():
    def call(before, x):
        return before
    last = call
    for i in steps():
        last = functools.partial(call, last, batch())  # KEEPS partials_of_partials


@case
def heads_of_tasks():
    """Each task has parameters of its own, which the optimizer keeps."""
    def train():
        head = torch.nn.Linear(256, 256).cuda()
        tasks.add_param_group({"params": head.parameters()})  # KEEPS heads_of_tasks
        for _ in range(3):
            head(batch()).pow(2).mean().backward()
            tasks.step()
            tasks.zero_grad()

    tasks = torch.optim.SGD(torch.nn.Linear(4, 4).cuda().parameters())
    for i in steps():
        train()


@case
def hooks_of_a_layer():
    """A hook that is never removed is in a dictionary of its layer's, which is PyTorch's own class."""
    layers = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()).cuda()

    def with_noise(noise):
        layers[0].register_forward_hook(lambda layer, given, made: made + noise)  # KEEPS hooks_of_a_layer

    for i in steps():
        with_noise(batch())
        layers(batch()).mean().backward()


@case
def gradients_of_experts():
    """Each step is the first of another expert, which keeps its gradient. No statement keeps it."""
    experts = torch.nn.ModuleList([torch.nn.Linear(256, 256) for _ in range(400)]).cuda()
    optimizer = torch.optim.SGD(experts.parameters())
    for i in steps():
        experts[i % 400](batch()).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(256, 256)
        self.adapters = torch.nn.ModuleDict()
        self.prompts = torch.nn.ParameterList()

    def add_adapter(self, name):
        adapter = torch.nn.Linear(256, 64).cuda()
        self.adapters[name] = adapter  # KEEPS adapters_of_a_model

    def add_prompt(self):
        self.prompts.append(torch.nn.Parameter(batch()))  # KEEPS prompts_of_a_model


@case
def adapters_of_a_model():
    """What grows is a container of modules, which is no attribute of the model to Python."""
    model = Adapted().cuda()
    for i in steps():
        model.add_adapter(f"user{i}")


@case
def prompts_of_a_model():
    model = Adapted().cuda()
    for i in steps():
        model.add_prompt()


class Trace:
    __slots__ = ("states",)

    def __init__(self):
        self.states = ()

    def push(self, state):
        self.states = self.states + (state,)  # KEEPS tuple_of_a_class


@case
def tuple_of_a_class():
    trace = Trace()
    for i in steps():
        trace.push(net(batch()).detach())


class Log:
    def __init__(self):
        self.inputs, self.outputs, self.noise = [], [], {}

    def add(self, i):
        x = batch()
        self.inputs.append(x)
        self.outputs.append(net(x).detach())
        self.noise[i] = torch.randn(64, 512, device="cuda")


@case
def three_of_each_step():
    log = Log()
    for i in steps():
        log.add(i)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("\n".join(CASES))
    CASES[sys.argv[1]]()
    print(f"done {sys.argv[1]} {sum(p.numel() for p in net.parameters())}")
