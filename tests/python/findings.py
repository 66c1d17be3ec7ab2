"""Jobs that have what each kind of finding is about, and leak nothing but where they are told to.

    findings.py notes | pressure | brief | kept | kept-collected

`kept` leaks a block with every step while Python's collector never runs; in `kept-collected` it goes over all objects now and then.
"""

import gc
import sys

import torch

MIB = 1 << 20
what = sys.argv[1]
model = torch.nn.Linear(4096, 8192, device="cuda")  # 128 MiB
optimizer = torch.optim.AdamW(model.parameters())
kept, pins, streams = [], [], []
side, slow = torch.cuda.Stream(), torch.cuda.Stream()
pool = torch.cuda.MemPool()


ON = {"dtype": torch.uint8, "device": "cuda"}


def transfer():
    """A stream for every call, used once."""
    streams.append(torch.cuda.Stream())
    with torch.cuda.stream(streams[-1]):
        torch.empty(128 * MIB, **ON)


def transfer_in_pool():
    with torch.cuda.use_mem_pool(pool), torch.cuda.stream(side):
        torch.empty(256 * MIB, **ON)


def average():
    with torch.cuda.stream(side):
        kept.append(torch.empty(200 * MIB, **ON))


def pin():
    """A small block in each of eight segments that is free but for it."""
    rest = []
    for _ in range(8):
        large = torch.empty(512 * MIB, **ON)
        del large
        pins.append(torch.empty(16 * MIB, **ON))
        rest.append(torch.empty(496 * MIB, **ON))


class Cycle:
    def __init__(self):
        self.me = self
        self.block = torch.empty(16 * MIB, **ON)


def capture():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept.append(torch.empty(200 * MIB, **ON).zero_())
    kept.append(graph)


def wait():
    block = torch.empty(32 * MIB, **ON)
    with torch.cuda.stream(slow):
        torch.cuda._sleep(1 << 32)
    block.record_stream(slow)


def train():
    optimizer.zero_grad()
    model(torch.randn(4, 4096, device="cuda")).square().mean().backward()
    optimizer.step()


if what in ("notes", "kept", "kept-collected"):
    gc.disable()
if what == "notes":
    capture()  # which empties the cache
    average()
    pin()
for step in range(3 if what == "brief" else 32):
    if what == "notes":
        if step < 8:
            transfer()
        if step == 2:
            transfer_in_pool()
        Cycle()
        wait()
        if step % 8 == 7:
            gc.collect()
    elif what.startswith("kept"):
        kept.append(torch.empty(32 * MIB, **ON))
        if what == "kept-collected" and step % 8 == 7:
            gc.collect()
    elif what == "pressure":
        torch.empty(512 * MIB, **ON)
        torch.cuda.empty_cache()
    train()
print("done")
