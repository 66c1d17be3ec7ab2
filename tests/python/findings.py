"""Jobs that have what each kind of finding is about, and leak nothing but where they are told to.

    findings.py notes | pressure | brief | kept | kept-collected
    findings.py batches | batches-kept | saved | saved-kept | graphs | graphs-kept | pools | pools-kept | outside | outside-kept

`kept` leaks a block with every step while Python's collector never runs; in `kept-collected` it goes over all objects now and then.
`batches` takes pinned ones from a DataLoader, `saved` saves a graph in pinned memory, `graphs` captures a CUDA graph, `pools` makes a
memory pool and `outside` asks the driver for memory, with every step; `-kept` keeps them.
"""

import ctypes
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


def captured():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.empty(MIB, **ON).zero_()
    return graph


def pooled():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        torch.empty(16 * MIB, **ON)
    return pool


def asked():
    address = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8 * MIB)) == 0
    return address


def wait():
    block = torch.empty(32 * MIB, **ON)
    with torch.cuda.stream(slow):
        torch.cuda._sleep(1 << 32)
    block.record_stream(slow)


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, i):
        return torch.full((4 * MIB,), i, dtype=torch.uint8)


def logged(keep):
    """A loss that is not trained on: its graph lives as long as it does."""
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = small(torch.ones(1024, 1024, device="cuda")).square().mean()
    kept.append(loss if keep else loss.item())


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
STEPS = 3 if what == "brief" else 64 if what.startswith(("batches", "saved")) else 32
if what.startswith("batches"):
    # Its own thread pins them.
    loader = iter(torch.utils.data.DataLoader(Pictures(), pin_memory=True, num_workers=1))
driver = ctypes.CDLL("libcuda.so.1") if what.startswith("outside") else None
small = torch.nn.Linear(1024, 1024, device="cuda")
for step in range(STEPS):
    if what == "notes":
        if step < 8:
            transfer()
        if step == 2:
            transfer_in_pool()
        Cycle()
        wait()
        if step % 8 == 7:
            gc.collect()
    elif what.startswith("batches"):
        batch = next(loader)
        batch.to("cuda", non_blocking=True)
        if what.endswith("kept"):
            kept.append(batch)
    elif what.startswith("saved"):
        logged(what.endswith("kept"))
    elif what.startswith(("graphs", "pools")):
        made = captured() if what.startswith("graphs") else pooled()
        if what.endswith("kept"):
            kept.append(made)
    elif what.startswith("outside"):
        address = asked()
        if not what.endswith("kept"):
            driver.cuMemFree_v2(address)
    elif what.startswith("kept"):
        kept.append(torch.empty(32 * MIB, **ON))
        if what == "kept-collected" and step % 8 == 7:
            gc.collect()
    elif what == "pressure":
        torch.empty(512 * MIB, **ON)
        torch.cuda.empty_cache()
    train()
print("done")
