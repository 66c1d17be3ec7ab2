"""The simulated device under an unmodified torch: each check runs in a process of its own.

    python torch_sim.py            all checks
    python torch_sim.py NAME...    some of them

Needs the Python of a provisioned environment; prints one line per check and exits 1 if any fails.
"""

import ctypes
import os
import subprocess
import sys
import time

MIB = 1 << 20
CHECKS = {}


def check(**environment):
    """Registers a check with the variables its process needs."""

    def register(function):
        CHECKS[function.__name__] = (function, {k: str(v) for k, v in environment.items()})
        return function

    return register


def sim():
    """The simulator's control functions; torch has loaded the library."""
    lib = ctypes.CDLL("libcuda.so.1")
    for name, result, arguments in [
        ("advance", None, [ctypes.c_uint64]),
        ("now", ctypes.c_uint64, []),
        ("stream_busy", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]),
        ("set_op_ns", None, [ctypes.c_uint64]),
        ("set_clock_manual", None, [ctypes.c_int]),
        ("set_total", ctypes.c_int, [ctypes.c_int, ctypes.c_uint64]),
        ("set_other", ctypes.c_int, [ctypes.c_int, ctypes.c_uint64]),
        ("used", ctypes.c_uint64, [ctypes.c_int]),
        ("counter", ctypes.c_uint64, [ctypes.c_int]),
    ]:
        function = getattr(lib, "strandline_sim_" + name)
        function.restype, function.argtypes = result, arguments
    return lib


def used(lib, device=0):
    return lib.strandline_sim_used(device)


def raises(kind, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        return str(error)
    raise AssertionError(f"{function} did not raise {kind}")


@check()
def alloc_free():
    import torch

    lib = sim()
    base = torch.cuda.memory_allocated()
    x = torch.ones(1000, device="cuda")
    assert torch.cuda.memory_allocated() - base == 4096
    big = torch.empty(1 << 28, device="cuda")
    assert used(lib) == torch.cuda.memory_reserved() == 1024 * MIB + 2 * MIB
    free, total = torch.cuda.mem_get_info()
    assert total == 24 << 30 and free == total - used(lib)
    del x, big
    torch.cuda.empty_cache()
    assert used(lib) == 0 == torch.cuda.memory_reserved()


@check()
def copies_carry_data():
    import torch

    host = torch.arange(1 << 20, dtype=torch.int32)
    card = host.to("cuda")
    assert torch.equal(card.cpu(), host)
    assert torch.equal(card[1000:2000].clone().cpu(), host[1000:2000])
    assert torch.zeros(1 << 22, device="cuda").cpu().sum() == 0
    rows = torch.arange(12).reshape(3, 4).to("cuda")
    assert rows.cpu()[2, 3] == 11


@check(STRANDLINE_SIM_TOTAL="1GiB", STRANDLINE_SIM_OTHER="256MiB")
def out_of_memory():
    import torch

    keep = torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
    message = raises(torch.OutOfMemoryError, lambda: torch.empty(300 * MIB, dtype=torch.uint8, device="cuda"))
    assert "Tried to allocate 300.00 MiB" in message and "total capacity of 1024.00 MiB" in message, message
    assert "168.00 MiB is free" in message and "Process 1 has 256.00 MiB memory in use" in message, message
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    del keep
    again = torch.empty(700 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_stats()["num_alloc_retries"] >= 1 and again.numel() == 700 * MIB
    del again
    torch.cuda.empty_cache()
    sim().strandline_sim_set_other(0, 1000 * MIB)
    raises(torch.OutOfMemoryError, lambda: torch.empty(30 * MIB, dtype=torch.uint8, device="cuda"))


@check(STRANDLINE_SIM_CLOCK="manual")
def record_stream_defers():
    import torch

    lib = sim()
    side = torch.cuda.Stream()
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    address = x.data_ptr()
    assert lib.strandline_sim_stream_busy(side.cuda_stream, 0, 1_000_000) == 0
    x.record_stream(side)
    assert not side.query()
    del x
    stats = torch.cuda.memory_stats()
    assert stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"] == 64 * MIB
    y = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    assert y.data_ptr() != address, "reused while the side stream was busy"
    lib.strandline_sim_advance(2_000_000)
    assert side.query()
    z = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    assert z.data_ptr() == address, "not reused after the side stream was done"


@check(STRANDLINE_SIM_CLOCK="manual")
def events_and_streams():
    import torch

    lib = sim()
    a, b = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record(a)
    lib.strandline_sim_stream_busy(a.cuda_stream, 0, 5_000_000)
    end.record(a)
    b.wait_event(end)
    assert not end.query() and not b.query()
    before = lib.strandline_sim_now()
    b.synchronize()
    assert lib.strandline_sim_now() - before >= 5_000_000 and end.query()
    assert abs(start.elapsed_time(end) - 5.0) < 0.01, start.elapsed_time(end)
    assert lib.strandline_sim_stream_busy(0xDEAD00, 0, 1) == 400


@check()
def sleep_occupies_a_stream():
    import torch

    torch.ones(1, device="cuda")
    side = torch.cuda.Stream()
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    begin = time.monotonic()
    with torch.cuda.stream(side):
        torch.cuda._sleep(int(0.2 * 1.98e9))
    x.record_stream(side)
    del x
    stats = torch.cuda.memory_stats()
    assert stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"] == 64 * MIB
    assert torch.cuda.current_stream().query() and not side.query()
    side.synchronize()
    assert 0.19 < time.monotonic() - begin < 1.0
    torch.empty(1, device="cuda")
    stats = torch.cuda.memory_stats()
    assert stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"] < MIB


@check(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True", STRANDLINE_SIM_TOTAL="2GiB")
def expandable_segments():
    import torch

    lib = sim()
    blocks = [torch.zeros(n * MIB, dtype=torch.uint8, device="cuda") for n in (30, 70, 50, 200)]
    assert lib.strandline_sim_counter(3) > 5, "no physical memory was made"
    assert lib.strandline_sim_counter(0) == 0, "cudaMalloc was called"
    assert torch.cuda.memory_snapshot()[0]["is_expandable"]
    blocks[1].fill_(0)
    assert blocks[1].cpu().sum() == 0
    assert torch.equal(torch.arange(99).to("cuda").cpu(), torch.arange(99))
    raises(torch.OutOfMemoryError, lambda: torch.empty(3 << 30, dtype=torch.uint8, device="cuda"))
    del blocks
    torch.cuda.empty_cache()
    assert used(lib) == torch.cuda.memory_reserved() <= 2 * MIB, used(lib)


@check(PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync", STRANDLINE_SIM_TOTAL="2GiB")
def malloc_async_backend():
    import torch

    lib = sim()
    assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
    x = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() >= 300 * MIB and torch.cuda.memory_reserved() >= 300 * MIB
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
    y.record_stream(torch.cuda.current_stream())
    assert torch.cuda.max_memory_allocated() >= 350 * MIB
    message = raises(torch.OutOfMemoryError, lambda: torch.empty(3 << 30, dtype=torch.uint8, device="cuda"))
    assert "out of memory" in message or "Allocation on device" in message, message
    del x, y
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == 0 and used(lib) == 0, used(lib)


@check(STRANDLINE_SIM_CLOCK="manual")
def graph_capture():
    import torch

    lib = sim()
    x = torch.zeros(MIB, device="cuda")
    side = torch.cuda.Stream()
    before = torch.cuda.memory_reserved()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert torch.cuda.is_current_stream_capturing()
            y = x + 1
        torch.cuda.current_stream().wait_stream(side)
        for _ in range(20):
            z = y * 2
    assert not torch.cuda.is_current_stream_capturing()
    assert torch.cuda.memory_reserved() > before
    pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
    assert len(pools) == 2, pools
    torch.cuda.synchronize()
    begin = lib.strandline_sim_now()
    graph.replay()
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()
    assert lib.strandline_sim_now() - begin >= 21 * 1000
    del y, z, graph
    torch.cuda.empty_cache()


@check()
def capture_forbids():
    import torch

    x = torch.zeros(8, device="cuda")
    graph = torch.cuda.CUDAGraph()

    def synchronize_inside():
        with torch.cuda.graph(graph):
            x + 1
            torch.cuda.synchronize()

    message = raises(RuntimeError, synchronize_inside)
    assert "capturing" in message or "capture" in message, message
    assert not torch.cuda.is_current_stream_capturing()

    def unjoined():
        side = torch.cuda.Stream()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                x + 1

    message = raises(RuntimeError, unjoined)
    # Older versions of torch do not recover from the first failure.
    assert "unjoined" in message or "captures_underway" in message, message
    assert (x + 1).numel() == 8


@check()
def graphed_callables():
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
    sample = torch.randn(16, 64, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (sample,))
    for _ in range(5):
        graphed(torch.randn(16, 64, device="cuda", requires_grad=True)).sum().backward()
    assert model[0].weight.grad is not None


@check()
def mem_pool():
    import torch

    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    outside = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    sizes = [segment["total_size"] for segment in pool.snapshot()]
    assert sum(sizes) == 40 * MIB, sizes
    del inside, outside, pool
    torch.cuda.empty_cache()
    assert used(sim()) == 0


@check(STRANDLINE_SIM_DEVICES=3, CUDA_VISIBLE_DEVICES="2,0")
def two_devices():
    import torch

    assert torch.cuda.device_count() == 2
    assert torch.cuda.get_device_name(0) == "Simulated device 2"
    a = torch.arange(1000).to("cuda:0")
    b = a.to("cuda:1")
    assert b.device.index == 1 and torch.equal(b.cpu(), torch.arange(1000))
    assert torch.cuda.can_device_access_peer(0, 1)
    with torch.cuda.device(1):
        c = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    assert c.device.index == 1 and torch.cuda.memory_allocated(1) >= 100 * MIB
    assert used(sim(), 1) == torch.cuda.memory_reserved(1) and used(sim(), 0) == torch.cuda.memory_reserved(0)


@check(CUDA_VISIBLE_DEVICES="")
def no_device():
    import torch

    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    message = raises(RuntimeError, lambda: torch.ones(1, device="cuda"))
    assert "No CUDA GPUs are available" in message or "no CUDA-capable device" in message, message


@check()
def threads():
    import threading
    import torch

    torch.ones(1, device="cuda")
    failures = []

    def work(seed):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for i in range(400):
                    x = torch.empty((seed * 37 + i * 101) % 5000 * 512 + 1, dtype=torch.uint8, device="cuda")
                    y = x.clone()
                    x.record_stream(torch.cuda.default_stream())
                    del x, y
            stream.synchronize()
        except Exception as error:
            failures.append(error)

    crew = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [t.start() for t in crew]
    [t.join() for t in crew]
    assert not failures, failures
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() <= 512, torch.cuda.memory_allocated()


@check()
def pinned_memory():
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    x = torch.arange(5000).pin_memory()
    assert x.is_pinned() and not torch.arange(5).is_pinned()
    y = x.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(y.cpu(), torch.arange(5000))
    loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=16, pin_memory=True, num_workers=2)
    assert all(batch.is_pinned() for (batch,) in loader)
    own = torch.empty(4 * MIB)
    assert int(torch.cuda.cudart().cudaHostRegister(own.data_ptr(), 4 * MIB, 0)) == 0
    assert own.is_pinned()
    assert int(torch.cuda.cudart().cudaHostUnregister(own.data_ptr())) == 0


@check()
def training():
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    seen = []
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(64, 256, device="cuda")), torch.zeros(64, dtype=torch.long, device="cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen.append(torch.cuda.memory_allocated())
    assert len(set(seen[5:])) == 1, seen
    assert torch.cuda.max_memory_allocated() > seen[-1]


@check()
def transformer_autocast_scaler():
    import torch

    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(5):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.randn(4, 16, 64, device="cuda")).float().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert torch.cuda.max_memory_allocated() > 0


@check(STRANDLINE_SIM_TOTAL="2GiB")
def process_fraction():
    import torch

    torch.cuda.set_per_process_memory_fraction(0.25)
    torch.empty(400 * MIB, dtype=torch.uint8, device="cuda")
    message = raises(torch.OutOfMemoryError, lambda: torch.empty(600 * MIB, dtype=torch.uint8, device="cuda"))
    assert "allowed" in message, message


@check(STRANDLINE_SIM_DEVICES=2, STRANDLINE_SIM_OTHER="1GiB")
def nvml():
    import torch

    x = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    lib = ctypes.CDLL("libnvidia-ml.so.1")
    assert lib.nvmlInit_v2() == 0
    count = ctypes.c_uint()
    assert lib.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 and count.value == 2
    handle = ctypes.c_void_p()
    assert lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    assert lib.nvmlDeviceGetHandleByIndex_v2(7, ctypes.byref(ctypes.c_void_p())) == 2

    class Memory(ctypes.Structure):
        _fields_ = [(n, ctypes.c_ulonglong) for n in ("total", "free", "used")]

    class Memory2(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint)] + [(n, ctypes.c_ulonglong) for n in ("total", "reserved", "free", "used")]

    class Process(ctypes.Structure):
        _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]

    memory, memory2 = Memory(), Memory2(version=ctypes.sizeof(Memory2) | 2 << 24)
    assert lib.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    assert lib.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(memory2)) == 0
    assert memory.used == memory2.used == used(sim()) + 1024 * MIB, (memory.used, memory2.used)
    assert lib.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(Memory2(version=1))) == 25
    assert torch.cuda.mem_get_info()[0] == memory.free
    processes, room = (Process * 4)(), ctypes.c_uint(0)
    assert lib.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(room), None) == 7 and room.value == 2
    room.value = 4
    assert lib.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(room), processes) == 0
    assert processes[0].pid == os.getpid() and processes[0].used == used(sim())
    name = ctypes.create_string_buffer(96)
    assert lib.nvmlDeviceGetName(handle, name, 96) == 0 and name.value == b"Simulated device 0"
    uuid = ctypes.create_string_buffer(96)
    assert lib.nvmlDeviceGetUUID(handle, uuid, 96) == 0
    assert uuid.value.decode() == "GPU-" + str(torch.cuda.get_device_properties(0).uuid)
    other = ctypes.c_void_p()
    assert lib.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(other)) == 0 and other.value == handle.value
    assert lib.nvmlDeviceGetHandleByPciBusId_v2(b"00000000:01:00.0", ctypes.byref(other)) == 0
    assert other.value == handle.value and x.numel()
    try:
        assert torch.cuda.device_memory_used() == memory.used
    except ModuleNotFoundError:
        pass  # torch wants the Python package for that


@check()
def properties():
    import torch

    p = torch.cuda.get_device_properties(0)
    assert (p.name, p.major, p.minor, p.multi_processor_count) == ("Simulated device 0", 8, 0, 108), p
    assert p.total_memory == 24 << 30 and p.warp_size == 32 and p.max_threads_per_multi_processor == 2048


@check()
def history_and_snapshot():
    import torch

    torch.cuda.memory._record_memory_history(max_entries=10000)
    x = torch.empty(10 * MIB, dtype=torch.uint8, device="cuda")
    del x
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    actions = [entry["action"] for entry in trace]
    assert actions == ["segment_alloc", "alloc", "free_requested", "free_completed"], actions
    assert any("torch_sim.py" in frame["filename"] for frame in trace[1]["frames"])


@check(STRANDLINE_SIM_CC="9.0")
def convolutions_take_cudnns_workspace():
    import torch

    def beside(layer, x):
        """What the forward takes beside its result: bytes."""
        torch.cuda.reset_peak_memory_stats()
        y = layer(x)
        taken = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
        y.sum().backward()
        return taken

    for benchmark in (False, True):
        torch.backends.cudnn.benchmark = benchmark
        layer = torch.nn.Conv2d(64, 128, 4, 2, 1, bias=False).cuda()
        x = torch.randn(128, 64, 32, 32, device="cuda")
        copies = sum(t.numel() * t.element_size() for t in (x, layer.weight, layer(x)))
        assert beside(layer, x) == copies, (beside(layer, x), copies)
        last = layer.to(memory_format=torch.channels_last)
        assert beside(last, x.to(memory_format=torch.channels_last)) == 0
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ConvTranspose2d(8, 4, 3), torch.nn.Conv2d(4, 4, 3, groups=4), torch.nn.Conv2d(4, 16, 1),
    ).cuda()
    for form in (torch.contiguous_format, torch.channels_last):
        for kind in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
            some, x = net.to(kind).to(memory_format=form), torch.randn(2, 3, 16, 16, device="cuda", dtype=kind).to(memory_format=form)
            some.train()(x).sum().backward()
            some.eval()(x)
    torch.nn.Conv3d(4, 8, 3).cuda()(torch.randn(2, 4, 8, 8, 8, device="cuda")).sum().backward()
    torch.nn.Conv1d(4, 8, 3, dilation=2).cuda()(torch.randn(2, 4, 30, device="cuda")).sum().backward()
    assert net[0].weight.grad.shape == (8, 3, 3, 3)


@check(STRANDLINE_SIM_CC="9.0")
def attention_and_recurrent_layers_do_without_cudnn():
    import torch

    q = torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    for layer in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        net, x = layer(8, 16, 2, bidirectional=True, dropout=0.1), torch.randn(5, 3, 8)
        (_, of_cpu), (_, state) = net(x), net.cuda()(x.cuda())
        shapes = [[part.shape for part in (of if isinstance(of, tuple) else (of,))] for of in (of_cpu, state)]
        assert shapes[0] == shapes[1], (layer, shapes)
        net(x.cuda(), state)[0].sum().backward()
    assert torch.backends.cudnn.enabled


@check()
def recurrent_layers_do_without_cudnn_however_they_are_called():
    import threading
    import torch

    x = torch.randn(5, 3, 8, device="cuda")
    gru = torch.nn.GRU(8, 16).cuda()
    torch.gru(x, x.new_zeros(1, 3, 16), gru._flat_weights, True, 1, 0.0, True, False, False)
    torch.jit.trace(gru, x)(x)
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LSTM(8, 16))).cuda()
    for _ in range(3):
        scripted(x)[0].sum().backward()
    with torch.inference_mode():
        gru(torch.nn.utils.rnn.pack_padded_sequence(x.clone(), [5, 3, 2]))
    failures = []

    def work():
        try:
            layer = torch.nn.RNN(8, 16).cuda()
            for _ in range(100):
                layer(x)[0].sum().backward()
        except Exception as error:
            failures.append(error)

    crew = [threading.Thread(target=work) for _ in range(6)]
    [t.start() for t in crew]
    [t.join() for t in crew]
    assert not failures, failures
    assert torch.backends.cudnn.enabled


@check(STRANDLINE_SIM_CC="9.0")
def attention_with_cudnn_finds_a_plan_where_it_is_asked_for():
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    assert torch.backends.cudnn.version() >= 90000
    for _ in range(2):
        q = torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.float16, requires_grad=True)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()


@check()
def grids_and_ctc_run_with_cudnn():
    import torch
    from torch.nn import functional

    x, theta = torch.randn(2, 3, 8, 8, device="cuda", requires_grad=True), torch.randn(2, 2, 3, device="cuda", requires_grad=True)
    functional.grid_sample(x, torch.cudnn_affine_grid_generator(theta, 2, 3, 8, 8), align_corners=True).sum().backward()
    guesses = torch.randn(50, 4, 20, device="cuda", requires_grad=True)
    functional.ctc_loss(guesses.log_softmax(2), torch.ones(40, dtype=torch.int32), [50] * 4, [10] * 4).backward()
    assert x.grad.shape == x.shape and theta.grad.shape == theta.shape and guesses.grad.shape == guesses.shape


@check(TORCH_CUDNN_V8_API_DISABLED=1)
def cudnn_is_off_where_its_older_interface_is_wanted():
    import torch

    torch.nn.Conv2d(3, 4, 3).cuda()(torch.randn(2, 3, 8, 8, device="cuda")).sum().backward()


@check()
def all_of_what_is_not_computed_is_true():
    import torch

    x = torch.zeros(1000, device="cuda")
    assert (x == 1).all().item() and not (x == 1).any().item() and torch.equal(x, x + 1)
    assert not (x[0] == 1).item(), "only what all() says is known"


@check()
def what_is_not_simulated_says_so():
    import torch

    torch.ones(1, device="cuda")
    message = raises(RuntimeError, lambda: torch._cudnn_init_dropout_state(0.5, True, 1, dtype=torch.uint8, device="cuda"))
    assert "cuDNN" in message or "CUDNN" in message, message
    raises(RuntimeError, lambda: torch.fft.fft(torch.randn(64, device="cuda")))


what_is_not_simulated_says_so.stderr = ["(libcudnn.so.9) is not simulated", "cufftCreate (libcufft.so.1"]


@check(STRANDLINE_SIM_TRACE="-")
def trace():
    import torch

    torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")


trace.stderr = ["cudaMalloc -> 0  device 0 size 20971520 at 0x", "cudaGetDeviceCount -> 0  1"]


@check()
def proc_address_has_both_forms():
    import torch

    torch.ones(1, device="cuda")
    lib = ctypes.CDLL("libcuda.so.1")
    function, status = ctypes.c_void_p(), ctypes.c_int(-1)
    assert lib.cuGetProcAddress_v2(b"cuMemCreate", ctypes.byref(function), 12000, ctypes.c_uint64(0), ctypes.byref(status)) == 0
    assert function.value and status.value == 0
    assert lib.cuGetProcAddress_v2(b"cuGetProcAddress", ctypes.byref(function), 11030, ctypes.c_uint64(0), None) == 0
    four = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)(function.value)
    found = ctypes.c_void_p()
    assert four(b"cuMemAlloc", ctypes.addressof(found), 11030, 0) == 0 and found.value
    assert lib.cuGetProcAddress_v2(b"cuNothing", ctypes.byref(function), 13000, ctypes.c_uint64(0), ctypes.byref(status)) == 500
    assert status.value == 1 and not function.value


@check()
def forked_children_are_refused():
    import torch

    torch.ones(1, device="cuda")
    pid = os.fork()
    if pid == 0:
        runtime, pointer = ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0]), ctypes.c_void_p()
        os._exit(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(100)))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3


def main(names):
    if names[:1] == ["--one"]:
        CHECKS[names[1]][0]()
        sys.stdout.flush()
        sys.stderr.flush()
        return 0
    failed = 0
    for name in names or CHECKS:
        function, environment = CHECKS[name]
        begin = time.monotonic()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("STRANDLINE_SIM_", "CUDA_", "PYTORCH_"))}
        run = subprocess.run(
            [sys.executable, __file__, "--one", name], env={**kept, **environment}, capture_output=True, text=True, timeout=120
        )
        missing = [text for text in getattr(function, "stderr", []) if text not in run.stderr]
        good = run.returncode == 0 and not missing
        failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name} {time.monotonic() - begin:.1f}s", flush=True)
        if not good:
            print(f"  exit {run.returncode}, missing on stderr: {missing}\n" + run.stdout[-2000:] + run.stderr[-4000:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
