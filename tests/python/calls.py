"""Everything that makes the pluggable door call the driver, on two devices: who counts the calls runs it through both allocators.

    calls.py             memory from strandline's door
    calls.py LIBRARY     from this library, by the same names: tests/python/calls_nothing.c
"""

import ctypes
import json
import sys
import threading

import torch

import strandline
from strandline import _library

if sys.argv[1:]:
    plain = ctypes.CDLL(sys.argv[1])
    _library.library_path, _library.library = lambda: sys.argv[1], lambda: plain
strandline.use_allocator()
TOO_MUCH = 1 << 36  # more than the simulated device has
said = {}


def refused():
    try:
        torch.empty(TOO_MUCH, device="cuda", dtype=torch.uint8)
        return None
    except torch.OutOfMemoryError as e:
        return str(e).split(".")[0]


def step(weight, side):
    with torch.cuda.stream(side):
        shared = torch.empty(1 << 20, device="cuda", dtype=torch.uint8)
    shared.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(side)
    return weight + 1


def elsewhere():
    for _ in range(3):
        torch.empty(1000, device="cuda", dtype=torch.uint8)


weight, side = torch.ones(64, 64, device="cuda"), torch.cuda.Stream()
other = torch.ones(1 << 20, device="cuda:1", dtype=torch.uint8)
old, graph = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
with torch.cuda.graph(old):
    weight + 1
old.replay()
gone, shared = (torch.empty(1 << 20, device="cuda", dtype=torch.uint8) for _ in range(2))
shared.record_stream(side)
with torch.cuda.graph(graph):
    del gone, shared, old, other  # of the first device, of a graph that is gone, of the second device
    inside = weight + 1
    inside.record_stream(side)
    del inside
    again, out = weight + 2, weight + 3
    torch.cuda.memory_stats(), torch.cuda.reset_peak_memory_stats()
    torch.cuda.empty_cache()
    said["captured"] = refused()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
graph.replay()
torch.cuda.synchronize()
del graph, again, out

for _ in range(4):
    step(weight, side)
torch.cuda.memory_stats(), torch.cuda.reset_peak_memory_stats()
torch.cuda.set_per_process_memory_fraction(0.5)
said["limited"] = refused()
torch.cuda.set_per_process_memory_fraction(1.0)
said["refused"] = refused()
torch.cuda.synchronize()
torch.cuda.empty_cache()
ctypes.CDLL("libcuda.so.1").strandline_sim_break(700)
try:
    torch.empty(1000, device="cuda", dtype=torch.uint8)
except RuntimeError as e:
    said["broken"] = str(e).split(",")[0]
print(json.dumps(said), flush=True)
