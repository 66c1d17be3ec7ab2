"""Jobs that ask for strandline when they run already, and have it hard. What each saw itself is its last line, as JSON.

    late_nasty.py oom [leak] [caught]   memory from before the start, from after it, and then more than there is; caught: it goes on
    late_nasty.py graph                 graphs captured before the start and after it, replayed; the older one's pool is used and freed
                                        after the start
    late_nasty.py fault                 the device breaks after the start
    late_nasty.py beside LIBRARY        pinned memory, and what a library takes that was loaded before: from before the start and after it
    late_nasty.py capture               started while a graph is captured
"""

import ctypes
import json
import sys

import torch

import strandline

what, options = sys.argv[1], sys.argv[2:]
MIB = 1 << 20
said = {}


def training():
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).cuda()
    return model, torch.optim.AdamW(model.parameters())


def train(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(16, 64, device="cuda")).square().mean().backward()
    optimizer.step()


def numbers():
    return {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}


def block(mib):
    return torch.empty(mib * MIB, device="cuda", dtype=torch.uint8)


def out_of_memory():
    job = training()
    early = [block(1024) for _ in range(6)]
    kept = []
    for step in range(24):
        train(*job)
        if step == 3:
            job[1].zero_grad()  # what goes with the next step is not of before
            said["before"] = numbers()
            said["path"] = strandline.start()
            torch.cuda.reset_peak_memory_stats()
            late = torch.empty(3000 * MIB, device="cuda", dtype=torch.uint8)  # AFTER
        if step == 8:
            del early[:2]
        if "leak" in options and step > 3:
            kept.append(torch.empty(64 * MIB, device="cuda", dtype=torch.uint8))  # LEAK
    said.update(numbers(), peak=torch.cuda.max_memory_allocated(), peak_reserved=torch.cuda.max_memory_reserved())
    try:
        block(2 * torch.cuda.get_device_properties(0).total_memory // MIB)
    except torch.OutOfMemoryError:
        print(json.dumps(said), flush=True)
        if "caught" not in options:
            raise
    del late, early
    for _ in range(4):
        train(*job)


def capture(weight):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inside = weight + 1
        out = inside + weight
        del inside
    return graph, out


def graphs():
    """A graph from before the start and one from after it; what each replays into stays its own."""
    weight = torch.randn(1024, 1024, device="cuda")
    weight + 1  # kernels are loaded before a capture, not in it
    job = training()
    torch.cuda.synchronize()
    old, result = capture(weight)
    for step in range(16):
        train(*job)
        if step == 3:
            said["before"] = numbers()
            said["path"] = strandline.start()
            torch.cuda.reset_peak_memory_stats()
            new, other = capture(weight)
            said["addresses"] = [result.data_ptr(), other.data_ptr()]
        old.replay()
        if step >= 3:
            new.replay()
        if step == 9:
            del old, result  # a pool of which nothing was seen
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            said["without"] = numbers()
            old = new
        if step == 11:
            more, inside = torch.cuda.CUDAGraph(), None
            with torch.cuda.graph(more, pool=new.pool()):
                inside = weight + 3
            more.replay()
    torch.cuda.synchronize()
    said["with"] = numbers()
    del old, new, other, more, inside
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    said.update(numbers(), peak=torch.cuda.max_memory_allocated(), peak_reserved=torch.cuda.max_memory_reserved())


def started_inside():
    weight = torch.randn(1024, 1024, device="cuda")
    weight + 1
    job = training()
    train(*job)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        early = weight + 1
        said["path"] = strandline.start()
        late = early + weight
    torch.cuda.reset_peak_memory_stats()
    for _ in range(16):
        graph.replay()
        train(*job)
    said["with"] = numbers()
    del graph, early, late
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    said.update(numbers(), peak=torch.cuda.max_memory_allocated(), peak_reserved=torch.cuda.max_memory_reserved())


def fault():
    job, side = training(), torch.cuda.Stream()
    for step in range(10):
        train(*job)
        if step == 3:
            said["path"] = strandline.start()
        if step == 7:
            ctypes.CDLL("libcuda.so.1").strandline_sim_break(700)
            side.synchronize()  # HEARD


def beside():
    job = training()
    early = torch.empty(5 * MIB, dtype=torch.uint8, pin_memory=True)
    theirs = ctypes.CDLL(options[0])
    assert theirs.take(ctypes.c_size_t(2 * MIB)) == 0
    for step in range(16):
        train(*job)
        if step == 3:
            said["path"] = strandline.start()
            late = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
            assert theirs.take(ctypes.c_size_t(6 * MIB)) == 0
            assert theirs.manage(ctypes.c_size_t(5 * MIB)) == 0
    said["pinned"] = [early.is_pinned(), late.is_pinned()]


{"fault": fault, "beside": beside, "oom": out_of_memory, "graph": graphs, "capture": started_inside}[what]()
print(json.dumps(said))
