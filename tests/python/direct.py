"""A training job whose blocks CUDA hands out itself: it prints what PyTorch says of it, as JSON.

    direct.py train [leak] [alone] [STEPS]    20 steps with a side stream, record_stream, an event wait and a second thread (not alone);
                              what leaks is LEAK_MIB MiB a step (16)
    direct.py graph           captures a graph, replays it, frees around it
    direct.py oom [uncaught]  asks for more than there is
"""

import ctypes
import json
import os
import sys
import threading
import time

import torch

what, leak = sys.argv[1], "leak" in sys.argv[2:]
LEAK = int(os.environ.get("LEAK_MIB", 16)) << 20
said = {}


def train(steps):
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    side = torch.cuda.Stream()
    kept = []
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(16, 64, device="cuda")
        model(x).square().mean().backward()
        optimizer.step()
        with torch.cuda.stream(side):
            y = torch.zeros(4 << 20, device="cuda", dtype=torch.uint8)
            if leak:
                kept.append(torch.zeros(LEAK, device="cuda", dtype=torch.uint8))  # LEAK
            ready = side.record_event()
        torch.cuda.current_stream().wait_event(ready)
        y.record_stream(torch.cuda.current_stream())
        del y
    return model, optimizer, kept


def another():
    for _ in range(50):
        torch.empty(1000, device="cuda", dtype=torch.uint8)


if what == "train":
    thread = threading.Thread(target=another)
    if "alone" not in sys.argv:
        thread.start()
    model, optimizer, kept = train(int(sys.argv[-1]) if sys.argv[-1].isdigit() else 20)
    if "alone" not in sys.argv:
        thread.join()
    torch.cuda.synchronize()
    said["allocated"], said["peak"] = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    pinned = torch.empty(3 << 20, dtype=torch.uint8, pin_memory=True)
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ:  # past PyTorch, by the interpreter's own library
        program, p = ctypes.CDLL(None), ctypes.c_void_p()
        assert program.cudaMallocManaged(ctypes.byref(p), ctypes.c_size_t(5 << 20), 1) == 0
        assert program.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(6 << 20)) == 0
elif what == "graph":
    weight = torch.randn(64, 64, device="cuda")
    weight @ weight + 1  # libraries and kernels are loaded before a capture, not in it
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inside = weight @ weight
        out = inside + 1
        del inside
    before = torch.empty(1 << 20, device="cuda", dtype=torch.uint8)
    for _ in range(3):
        graph.replay()
    del before, graph, out
    torch.cuda.synchronize()
elif what == "beside":  # blocks of CUDA's own before PyTorch begins, and on while three threads of PyTorch's have some
    program, stop = ctypes.CDLL(None), threading.Event()

    def own():
        p = ctypes.c_void_p()
        while not stop.is_set():
            assert program.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1000)) == 0
            assert program.cudaFree(p) == 0

    def pytorch():
        while not stop.is_set():
            [torch.empty(1000 + i, device="cuda") for i in range(20)]
            time.sleep(2e-4)

    assert program.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1000)) == 0
    threads = [threading.Thread(target=t) for t in (own, pytorch)]
    for t in threads:
        t.start()
    model, optimizer, kept = train(20)
    stop.set()
    for t in threads:
        t.join()
    said["allocated"] = torch.cuda.memory_allocated()
elif what == "oom":
    try:
        more = max(1 << 36, torch.cuda.get_device_properties(0).total_memory * 2)
        torch.empty(more, device="cuda", dtype=torch.uint8)
    except RuntimeError as e:
        if "uncaught" in sys.argv:
            raise
        said["oom"] = str(e).splitlines()[0]  # in the words of whoever raises it
    said["alive"] = torch.ones(8, device="cuda").numel()
print(json.dumps(said))
