"""What Python lets a program do, each beside CUDA allocations: unusual.py [NAME...]. Prints what came of each; without names, all."""

import asyncio
import builtins
import concurrent.futures
import contextlib
import copy
import ctypes
import faulthandler
import gc
import importlib
import importlib.abc
import importlib.util
import multiprocessing
import os
import pickle
import queue
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import types
import weakref
import zipfile

import torch

ALL = {}


def program(f):
    ALL[f.__name__] = f
    return f


def allocate(n=1):
    """Blocks of which one is asked for after the other; the sum of their sizes."""
    return sum(torch.empty(512 * (i + 1), dtype=torch.uint8, device="cuda").numel() for i in range(n))


def train(steps=3):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        allocate()
    return round(loss.item(), 5)


def on_threads(n, f, *arguments):
    threads = [threading.Thread(target=f, args=arguments) for _ in range(n)]
    [t.start() for t in threads]
    [t.join() for t in threads]


@program
def deep_recursion():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(30_000)

    def down(n):
        return allocate() if n == 0 else down(n - 1)

    def generated(n):
        yield from generated(n - 1) if n else [allocate()]

    depths = [down(10_000), next(generated(400))]
    resource_stack = threading.stack_size(256 << 20)
    deep = []
    on_threads(1, lambda: deep.append(sum(generated(3_000))))
    threading.stack_size(resource_stack)
    sys.setrecursionlimit(limit)

    def forever():
        allocate()
        forever()

    with contextlib.suppress(RecursionError):
        forever()
    return depths + deep + [allocate()]


@program
def code_is_replaced():
    def first():
        return allocate() + 1

    def second():
        return allocate() + 2

    codes, stop, results = (first.__code__, second.__code__), threading.Event(), set()

    def run():
        while not stop.is_set():
            results.add(first())

    threads = [threading.Thread(target=run) for _ in range(3)]
    [t.start() for t in threads]
    for i in range(2_000):
        first.__code__ = codes[i % 2].replace(co_name=f"f{i}", co_firstlineno=i)
    stop.set()
    [t.join() for t in threads]
    return results <= {513, 514}, first()


@program
def odd_code():
    f = allocate.__code__
    names = ["", "\n", "x" * 100_000, "\udcff\ud800", "\x1b[31m", "a\0b", "é" * 500, "\U0001f4a5"]
    lines = [0, 1, 2**31 - 2, 7]
    tables = [b"", b"\x80", b"\xff" * 60, bytes(range(128)) * 3, b"\xe8" + b"\x7f" * 40]
    made = [f.replace(co_filename=n) for n in names] + [f.replace(co_name=n, co_qualname=n) for n in names]
    made += [f.replace(co_firstlineno=n) for n in lines] + [f.replace(co_linetable=t) for t in tables]
    total = 0
    for code in made:
        total += types.FunctionType(code, globals())(2)
    for name in names[:3] + names[4:]:
        with contextlib.suppress(ValueError, SyntaxError):
            exec(compile("total += allocate(3)", name, "exec"), globals() | {"total": 0})
    return len(made), total


@program
def modules_come_and_go():
    with tempfile.TemporaryDirectory() as folder:
        source = "import torch\nvalue = torch.empty({n}, device='cuda').numel()\ndef f():\n    return torch.empty({n}, device='cuda').numel()\n"
        sys.path.insert(0, folder)
        path = os.path.join(folder, "comes_and_goes.py")
        sums = []
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        for n in range(1, 30):
            open(path, "w").write("#\n" * n + source.format(n=n))
            importlib.invalidate_caches()
            module = importlib.reload(module) if n > 1 else importlib.import_module("comes_and_goes")
            sums.append(module.value + module.f())
        sys.dont_write_bytecode = before
        del sys.modules["comes_and_goes"], module
        gc.collect()
        with zipfile.ZipFile(os.path.join(folder, "z.zip"), "w") as z:
            z.writestr("zipped.py", source.format(n=64))
            z.writestr("package/__main__.py", source.format(n=65))
            z.writestr("package/__init__.py", "")
        sys.path.insert(0, os.path.join(folder, "z.zip"))
        import zipped

        ran = runpy.run_module("package", run_name="__main__")
        sys.path[:2] = []
        return sum(sums), zipped.f(), ran["value"], runpy.run_path(path)["value"]


@program
def import_hooks():
    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path, target=None):
            allocate()
            return importlib.util.spec_from_loader(name, self) if name.startswith("made_up_") else None

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            exec("import torch\nn = torch.empty(100, device='cuda').numel()", module.__dict__)

    sys.meta_path.insert(0, Finder())
    sums = [importlib.import_module(f"made_up_{i}").n for i in range(20)]
    sys.meta_path.pop(0)
    return sum(sums), train()


@program
def generators_in_coroutines():
    def numbers():
        for _ in range(5):
            yield allocate()

    async def later():
        for n in numbers():
            await asyncio.sleep(0)
            yield n + allocate()

    async def all_of():
        return [n async for n in later()] + [await asyncio.to_thread(allocate)]

    async def many():
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(contextlib.aclosing(later()))
            loop = asyncio.get_running_loop()
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                more = [loop.run_in_executor(pool, allocate, 3) for _ in range(20)]
                return await asyncio.gather(*(all_of() for _ in range(50)), *more)

    def kept():
        try:
            while True:
                yield allocate()
        finally:
            allocate()

    half, elsewhere = kept(), []
    next(half)
    on_threads(1, lambda: elsewhere.append(next(half)))  # resumed by another thread than began it
    del half
    return len(asyncio.run(many())), elsewhere


@program
def threads_take_turns():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    sums = queue.SimpleQueue()

    def work():
        for i in range(100):
            exec(compile(f"n = allocate({i % 4 + 1})", f"<{i}>", "exec"), {"allocate": allocate})
        sums.put(allocate(4))

    on_threads(6, work)
    sys.setswitchinterval(interval)
    return [sums.get() for _ in range(6)]


@program
def short_threads():
    done = []
    for _ in range(40):
        on_threads(25, lambda: done.append(allocate()))
    return len(done), sum(done)


@program
def finalizers():
    said = []

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            said.append(allocate())

    class Kept:
        pass

    for _ in range(50):
        Cycle()
        weakref.finalize(Kept(), lambda: said.append(allocate()))
    on_threads(1, gc.collect)
    called = []
    gc.callbacks.append(lambda phase, info: called.append(allocate()))
    gc.collect()
    gc.callbacks.pop()
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    gc.freeze()
    train()
    gc.unfreeze()
    gc.set_threshold(*threshold)
    gc.set_debug(gc.DEBUG_SAVEALL)
    Cycle()
    gc.collect()
    gc.set_debug(0)
    gc.garbage.clear()
    return len(said) >= 100, len(called)


@program
def handlers_of_faults():
    with tempfile.TemporaryFile() as file:
        on = faulthandler.is_enabled()
        faulthandler.enable(file)
        faulthandler.dump_traceback_later(0.01, file=file)
        time.sleep(0.1)  # it looks at the threads' frames without the GIL: nothing else runs
        faulthandler.cancel_dump_traceback_later()
        on_threads(2, allocate, 20)
        faulthandler.register(signal.SIGUSR1, file=file)
        signal.raise_signal(signal.SIGUSR1)
        faulthandler.unregister(signal.SIGUSR1)
        faulthandler.disable()
        if on:
            faulthandler.enable()
        file.seek(0)
        return b"in handlers_of_faults" in file.read(), file.tell() > 100


@program
def timers():
    count = []
    old = signal.signal(signal.SIGALRM, lambda *_: count.append(allocate()))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    loss = train(30)
    end = time.monotonic() + 10
    while len(count) < 5 and time.monotonic() < end:
        allocate(10)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)
    return loss, len(count) >= 5


@program
def c_calls_python():
    integers = ctypes.c_int * 30
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
    values = integers(*(i * 7 % 30 for i in range(30)))
    ctypes.CDLL(None).qsort(values, 30, 4, compare(lambda a, b: allocate() and a[0] - b[0]))
    cudart = ctypes.CDLL("libcudart.so.13")
    calls = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda n: calls.append((n, allocate(), threading.current_thread() is threading.main_thread())))
    status = {cudart.cudaLaunchHostFunc(None, function, ctypes.c_void_p(n)) for n in range(1, 20)}
    waited = cudart.cudaDeviceSynchronize()
    return list(values) == sorted(values), status, waited, len(calls), calls[-1]


@program
def children():
    here = "import sys; print(sum(range(9)), sys.flags.optimize)"
    out = [subprocess.run([sys.executable, "-OO", "-c", here], capture_output=True, text=True)]
    out.append(subprocess.run([sys.executable, "-I", "-c", here], capture_output=True, text=True, env={}))
    out.append(subprocess.run(f"exec {sys.executable} -c '{here}'", shell=True, capture_output=True, text=True, start_new_session=True))
    out.append(subprocess.run(["/bin/sh", "-c", "ulimit -n 8; echo $((1+1))"], capture_output=True, text=True, close_fds=False))
    read, write = os.pipe()
    pid = os.posix_spawn("/bin/echo", ["echo", "spawned"], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)])
    status = os.waitpid(pid, 0)[1]
    os.close(write)
    said = [(o.returncode, o.stdout, [line for line in o.stderr.splitlines() if not line.startswith("strandline: ")]) for o in out]
    spawned = os.read(read, 100)
    os.close(read)
    return said, status, spawned, os.system("exit 3")


def in_worker(n):
    return os.getpid() != PARENT and n * n


PARENT = os.getpid()


@program
def pools_of_processes():
    """Children that fork, that a server forks, and that begin anew; tensors that go through each way of sharing."""
    import torch.multiprocessing as mp

    sums = []
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        sums.append(sum(pool.map(in_worker, range(20))))
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        sums.append(sum(pool.map(in_worker, range(10))))
    before = mp.get_sharing_strategy()
    for strategy in sorted(mp.get_all_sharing_strategies()):
        mp.set_sharing_strategy(strategy)
        context = mp.get_context("fork")
        sent, received = context.SimpleQueue(), context.Event()
        child = context.Process(target=lambda: (sent.put([torch.arange(1_000) for _ in range(20)]), received.wait()))
        child.start()
        sums.append(int(sum(t.sum() for t in sent.get())))
        received.set()
        child.join()
        sums.append(child.exitcode)
    mp.set_sharing_strategy(before)
    return sums


@program
def out_of_memory():
    kept = []
    for _ in range(200):
        try:
            torch.empty(1 << 45, device="cuda")
        except torch.OutOfMemoryError as error:
            kept.append(error)
            allocate()
    return len(kept), kept[0].__traceback__.tb_lineno == kept[-1].__traceback__.tb_lineno


@program
def frames_are_kept():
    frames = []

    def traced(frame, event, argument):
        frame.f_trace_opcodes = True
        return traced

    def work(n):
        frames.append(sys._getframe())
        return allocate(n)

    sys.settrace(traced)
    total = sum(work(n) for n in range(1, 20))
    sys.settrace(None)
    for frame in frames:
        frame.clear()
    gc.collect()
    current = sys._current_frames()
    return total, len(frames), len(current), sorted(t.name for t in threading.enumerate()), frames[0].f_code.co_name


@program
def memory_is_traced():
    tracemalloc.start(8)
    loss = train(1)
    on_threads(4, allocate, 20)
    traces = len(tracemalloc.take_snapshot().traces) > 0
    tracemalloc.stop()
    return loss, traces


@program
def optimizers_of_ones_own():
    class Slotted(torch.optim.SGD):
        __slots__ = ("mine",)

        def __getattribute__(self, name):
            return super().__getattribute__(name)

        def step(self, closure=None):
            allocate()
            return super().step(closure)

    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = Slotted([weight], lr=0.5)
    calls = []
    handles = [optimizer.register_step_post_hook(lambda *_: calls.append(1))]
    handles.append(importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(lambda *_: calls.append(2)))
    handles.append(importlib.import_module("torch.optim.optimizer").register_optimizer_step_pre_hook(lambda *_: calls.append(3)))
    for _ in range(4):
        weight.grad = torch.ones(4)
        optimizer.step()
    twin = copy.deepcopy(torch.optim.SGD([weight], lr=0.5, momentum=0.9))
    again = pickle.loads(pickle.dumps(twin))
    [h.remove() for h in handles]
    step, torch.optim.SGD.step = torch.optim.SGD.step, lambda self, closure=None: calls.append(4)
    torch.optim.SGD([weight], lr=0.1).step()
    torch.optim.SGD.step = step
    return calls, sorted(again.__dict__), weight.tolist(), train()


@program
def python_is_vandalized():
    kept = {name: sys.modules.pop(name) for name in ("threading", "gc", "ctypes")}
    opened, imported = builtins.open, builtins.__import__

    def slow(*arguments, **named):
        allocate()
        return imported(*arguments, **named)

    builtins.__import__ = slow
    builtins.open = None
    modules, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        loss = train()
    finally:
        builtins.__import__, builtins.open, sys.modules["__main__"] = imported, opened, modules
        sys.modules.update(kept)
    return loss


@program
def not_dumpable():
    libc = ctypes.CDLL(None)
    libc.prctl(4, 0, 0, 0, 0)
    loss = train()
    on_threads(3, allocate, 10)
    return loss, libc.prctl(3, 0, 0, 0, 0), libc.prctl(4, 1, 0, 0, 0)


@program
def little_stack():
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, hard))
    before = threading.stack_size(64 << 10)
    done = []
    on_threads(20, lambda: done.append(torch.cuda.memory_allocated() >= 0))
    threading.stack_size(before)
    resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
    return len(done)


@program
def descriptors():
    lowest = os.dup(2)
    os.close(lowest)
    return lowest, sorted(n for n in map(int, os.listdir("/proc/self/fd")) if n <= lowest)[:-1], resource.getrlimit(resource.RLIMIT_NOFILE)


@program
def a_second_tracker():
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1000)
    attached = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *what: attached.append(len(what)))
    with contextlib.suppress(torch.OutOfMemoryError):
        torch.empty(1 << 45, device="cuda")
    allocate(20)
    traces = torch.cuda.memory._snapshot()["device_traces"][0]
    frames = [e["frames"][0]["name"] for e in traces if e["action"] == "alloc"]
    torch.cuda.memory._record_memory_history(None)
    return len([e for e in traces if e["action"] == "alloc"]), frames[-1], attached


@program
def a_profiler():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True, record_shapes=True) as p:
        train()
        allocate(20)
    return sorted(e.key for e in p.key_averages() if e.key.startswith("aten::empty"))


@program
def monitoring():
    if not hasattr(sys, "monitoring"):
        return None
    m, counts, names = sys.monitoring, {}, set()
    m.use_tool_id(3, "all")

    def told(event):
        def f(code, *_):
            counts[event] = counts.get(event, 0) + 1
            if "strandline" in code.co_filename.rsplit("/", 1)[-1]:
                names.add(code.co_filename)

        return f

    events = [e for e in ("PY_START", "PY_RETURN", "LINE", "CALL", "RAISE", "PY_UNWIND", "INSTRUCTION", "JUMP") if hasattr(m.events, e)]
    for event in events:
        m.register_callback(3, getattr(m.events, event), told(event))
    m.set_events(3, sum(getattr(m.events, e) for e in events))
    loss = train()
    on_threads(3, allocate, 5)
    m.set_events(3, 0)
    m.free_tool_id(3)
    return loss, sorted(counts), sorted(names)


@program
def interpreters_in_one_process():
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    source = """
import ctypes
cudart = ctypes.CDLL("libcudart.so.13")
p, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
def calls():
    for n in range(20):
        assert cudart.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1 << 20)) == 0
        cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        cudart.cudaFree(p)
calls()
"""
    stop, n = threading.Event(), 0
    busy = threading.Thread(target=lambda: [allocate(5) for _ in iter(stop.is_set, True)])
    busy.start()
    for _ in range(5):
        one = interpreters.create()
        interpreters.run_string(one, source)
        on_threads(1, interpreters.run_string, one, source)
        interpreters.destroy(one)
        n += 1
    stop.set()
    busy.join()
    return n, allocate()


COUNTED = r"""
import builtins, copy, gc, pickle, torch
real, seen = builtins.__import__, []
def own(name, globals=None, *rest):
    if not (globals or {}).get("__name__"):
        seen.append(name)
    return real(name, globals, *rest)
builtins.__import__ = own
gc.collect()
gc.disable()
weight = torch.ones(4, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(3):
    weight.sum().backward()
    optimizer.step()
print(gc.collect(), torch.nn.Linear(1, 1).register_forward_hook(print).id, seen)
# As cloudpickle does with a script's own class of optimizers: with what PyTorch's wrapper around its `step` refers to.
names = vars(real("sys").modules["torch.optim.optimizer"])
tables = names["_global_optimizer_pre_hooks"], names["_global_optimizer_post_hooks"]
print([pickle.dumps(table) for table in tables], copy.deepcopy(tables))
optimizer.step()
"""


@program
def what_python_and_pytorch_count():
    """From its first CUDA call on: garbage for the collector, numbers of hooks, imports; what is pickled of PyTorch's tables of hooks."""
    return subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True).stdout


if __name__ == "__main__":
    allocate()
    train()
    for name in sys.argv[1:] or ALL:
        print(name, ALL[name](), flush=True)
    print(torch.cuda.memory_stats()["allocated_bytes.all.current"], "alive", flush=True)
