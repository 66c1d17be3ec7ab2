"""A training job whose memory comes through the pluggable door. It checks what it can see itself, and prints it as JSON.

    pluggable.py train [leak] [before|after]     40 steps, with memory statistics logged as a Trainer does; strandline.start()
                                  before the allocator is chosen, or after its first blocks
    pluggable.py oom              asks for more than there is, twice
    pluggable.py graph            captures a graph and frees around it
    pluggable.py graphs           a graph goes, memory is short and statistics are read while another is captured
    pluggable.py short            a second device is short of memory while a graph is captured on the first
    pluggable.py side             a stream that is not captured allocates during a capture, after and before the captured one
    pluggable.py spread           a second device, to which a capture has spread, is short of memory
    pluggable.py outlives         a block outlives its graph, whose last replay has not been waited for
    pluggable.py beside           memory that is no tensor's of the device: pinned, managed, a library's
    pluggable.py region           only one region, through a MemPool
"""

import ctypes
import json
import sys

import torch

import strandline

what, leak = sys.argv[1], "leak" in sys.argv[2:]
said = {}
if "before" in sys.argv[2:]:
    said["path"] = strandline.start()
if what != "region":
    strandline.use_allocator()


def train(steps):
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    side = torch.cuda.Stream()
    kept, logged = [], []
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.randn(16, 64, device="cuda")
        model(x).square().mean().backward()
        optimizer.step()
        with torch.cuda.stream(side):
            y = torch.zeros(4 << 20, device="cuda", dtype=torch.uint8)
            if leak:
                kept.append(torch.zeros(16 << 20, device="cuda", dtype=torch.uint8))  # LEAK
        y.record_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(side)
        logged.append(torch.cuda.memory_allocated())
    return model, optimizer, kept, logged


if what == "train":
    before = torch.cuda.memory_allocated()
    one = torch.empty(1000, device="cuda", dtype=torch.uint8)
    two = torch.empty(3 << 20, device="cuda", dtype=torch.uint8)
    stats = torch.cuda.memory_stats()
    said["first"] = [before, torch.cuda.memory_allocated(), stats["allocation.all.current"]]
    said["requested"] = stats["requested_bytes.all.current"]
    said["pools"] = [stats["allocated_bytes.small_pool.current"], stats["allocated_bytes.large_pool.current"]]
    del two
    said["freed"] = [torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]
    torch.cuda.reset_peak_memory_stats()
    said["peak"] = torch.cuda.max_memory_allocated()
    del one
    if "after" in sys.argv[2:]:
        said["path"] = strandline.start()
        said["again"] = strandline.start()
    model, optimizer, kept, logged = train(40)
    said["kept"] = len(kept)
    said["grown"] = logged[-1] - logged[2]
    said["allocated"] = torch.cuda.memory_allocated()
    said["reserved"] = torch.cuda.memory_reserved() >= said["allocated"] > 0
    said["accelerator"] = torch.accelerator.memory_allocated() == said["allocated"]
    said["summary"] = "Allocated memory" in torch.cuda.memory_summary()
    big = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
    del big
    held = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    said["cache"] = held - torch.cuda.memory_reserved() >= 128 << 20
elif what == "oom":
    total = torch.cuda.get_device_properties(0).total_memory
    for share in (1.0, 0.5):
        torch.cuda.set_per_process_memory_fraction(share)
        try:
            torch.empty(int(total * share) + (1 << 20), device="cuda", dtype=torch.uint8)
        except torch.OutOfMemoryError as e:
            said[str(share)] = str(e)
    said["fraction"] = torch.cuda.get_per_process_memory_fraction()
    said["ooms"] = torch.cuda.memory_stats()["num_ooms"]
    said["alive"] = torch.ones(8, device="cuda").numel()
elif what == "graph":
    weight = torch.randn(64, 64, device="cuda")
    weight + 1  # its kernel is loaded before the capture, not in it
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    gone = torch.empty(1 << 20, device="cuda", dtype=torch.uint8)
    with torch.cuda.graph(graph):
        del gone
        a = weight + 1
        inside = a.data_ptr()
        del a
        b = weight + 2
        said["reused"] = b.data_ptr() == inside
        said["deferred"] = torch.cuda.memory_allocated()
        torch.cuda.memory_stats(), torch.cuda.reset_peak_memory_stats()
        torch.cuda.empty_cache()  # of no effect here, and of no harm
    during = torch.cuda.memory_allocated()
    address = b.data_ptr()
    del b
    others = [torch.empty(64 * 64, device="cuda") for _ in range(8)]
    said["kept_apart"] = all(o.data_ptr() != address for o in others)
    graph.replay()
    torch.cuda.synchronize()
    del graph, others
    torch.cuda.synchronize()
    said["allocated"] = torch.cuda.memory_allocated()
elif what == "graphs":
    weight, side = torch.randn(64, 64, device="cuda"), torch.cuda.Stream()
    weight + 1
    torch.cuda.synchronize()
    old, graph = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(old):
        weight + 1
    old.replay()
    shared = torch.empty(64 << 20, device="cuda", dtype=torch.uint8)
    shared.record_stream(side)
    # Relaxed: CUDA lets nobody destroy a graph while another is captured in a stricter mode, PyTorch itself not either.
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        del old, shared
        out = weight + 2
        torch.cuda.memory_stats(), torch.cuda.empty_cache()
        try:
            torch.empty(2 * torch.cuda.get_device_properties(0).total_memory, device="cuda", dtype=torch.uint8)
        except torch.OutOfMemoryError:
            said["short"] = True
        more = out + 1
    torch.cuda.synchronize()
    out.zero_(), more.zero_()
    graph.replay()
    torch.cuda.synchronize()
    said["replayed"] = [torch.equal(out, weight + 2), torch.equal(more, weight + 2 + 1)]  # no kernel runs on the simulated device
    del graph, out, more
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    said["allocated"], said["reserved"] = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
elif what == "short":
    weight, most = torch.randn(64, 64, device="cuda:0"), torch.cuda.get_device_properties(1).total_memory * 3 // 4
    weight + 1
    big = torch.empty(most, device="cuda:1", dtype=torch.uint8)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = weight + 1
        del big
        big = torch.empty(most, device="cuda:1", dtype=torch.uint8)
        out += 1
    graph.replay()
    torch.cuda.synchronize()
    said["again"] = torch.cuda.memory_allocated(1) == most
    said["retries"] = torch.cuda.memory_stats(1)["num_alloc_retries"]
elif what == "side":
    weight, side = torch.randn(64, 64, device="cuda"), torch.cuda.Stream()
    weight + 1
    old = torch.cuda.CUDAGraph()
    with torch.cuda.graph(old):
        weight + 1
    old.replay()
    for first in (False, True):
        graph = torch.cuda.CUDAGraph()
        gone, shared = (torch.empty(64 << 20, device="cuda", dtype=torch.uint8) for _ in range(2))
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, capture_error_mode="relaxed"):
            out = None if first else weight + 1
            shared.record_stream(torch.cuda.current_stream())
            old = None
            if not first:
                del gone, shared
            with torch.cuda.stream(side):
                beside = torch.empty(1 << 20, device="cuda", dtype=torch.uint8)
            out = weight + 1
            if first:
                del gone, shared
        graph.replay()
        torch.cuda.synchronize()
        del graph, out, beside
    torch.cuda.empty_cache()
    said["allocated"], said["reserved"] = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
elif what == "spread":
    weight, most = torch.randn(64, 64, device="cuda:0"), torch.cuda.get_device_properties(1).total_memory * 3 // 4
    weight + 1
    there = torch.cuda.Stream(device=1)
    with torch.cuda.stream(there):
        big = torch.empty(most, device="cuda:1", dtype=torch.uint8)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = weight + 1
        here = torch.cuda.current_stream()
        there.wait_stream(here)
        del big
        try:
            torch.empty(most, device="cuda:1", dtype=torch.uint8)
        except torch.OutOfMemoryError:
            said["short"] = True
        here.wait_stream(there)
        out += 1
    graph.replay()
    torch.cuda.synchronize()
    big = torch.empty(most, device="cuda:1", dtype=torch.uint8)
    said["again"] = torch.cuda.memory_allocated(1) == most
elif what == "outlives":
    weight, graph = torch.randn(64, 64, device="cuda"), torch.cuda.CUDAGraph()
    weight + 1
    with torch.cuda.graph(graph):
        out = weight + 1
    said["address"] = hex(out.data_ptr())
    graph.replay()
    del graph
    del out
elif what == "beside":
    pinned = torch.ones(8, device="cuda").numel() and torch.empty(3 << 20, dtype=torch.uint8, pin_memory=True)
    program, p = ctypes.CDLL(None), ctypes.c_void_p()  # past PyTorch, by the interpreter's own library
    assert program.cudaMallocManaged(ctypes.byref(p), ctypes.c_size_t(5 << 20), 1) == 0
    assert program.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(6 << 20)) == 0
elif what == "region":
    outside = torch.zeros(1 << 20, device="cuda", dtype=torch.uint8)
    pool = torch.cuda.MemPool(strandline.allocator().allocator())
    with torch.cuda.use_mem_pool(pool):
        inside = torch.zeros(30 << 20, device="cuda", dtype=torch.uint8)
    said["allocated"] = torch.cuda.memory_allocated()
print(json.dumps(said))
