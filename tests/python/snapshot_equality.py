"""Runs workloads under torch's own memory history, and keeps torch's snapshots of moments that are marked in the recording.

    snapshot_equality.py OUT CASE...     OUT/NAME.pickle for each moment NAME
"""

import ctypes
import os
import pickle
import sys

import torch

OUT, CASES = sys.argv[1], sys.argv[2:]
STRANDLINE = ctypes.CDLL(None)


def keep(name):
    """The same moment twice: a mark in the recording, and torch's word on it."""
    assert STRANDLINE.strandline_mark(name.encode()) == 0
    with open(os.path.join(OUT, f"{name}.pickle"), "wb") as f:
        pickle.dump(torch.cuda.memory._snapshot(), f)


def mlp(device, width=256):
    return torch.nn.Sequential(
        torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
    ).to(device)


KEPT = []  # what a case leaves in use
TRAINED = []  # the model, its optimizer, and how many steps they have made


def train(device="cuda:0", steps=5, at=(), width=256, side=None):
    model = mlp(device, width)
    optimizer = torch.optim.AdamW(model.parameters())
    KEPT.append((model, optimizer))
    TRAINED[:] = [model, optimizer, steps]
    for step in range(1, steps + 1):
        batch = torch.randn(16, width, device=device)
        if side is not None:
            batch.record_stream(side)  # its memory is not free before the side stream is done
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        # The next allocation is that of the next step.
        if step in at:
            keep(f"step{step}")


def one_more_step(work):
    """A step of what was trained, with other work in it, and the moment of its end. Backward passes of other models before the
    optimizer runs are part of it."""
    model, optimizer, before = TRAINED
    model(torch.randn(16, 256, device="cuda:0")).square().mean().backward()
    work()
    optimizer.step()
    optimizer.zero_grad()
    TRAINED[2] = before + 1
    keep(f"step{TRAINED[2]}")


def plain():
    train(at=(1, 3, 4))


def streams():
    side = [torch.cuda.Stream() for _ in range(3)]
    main = torch.cuda.current_stream()
    blocks = []
    for i in range(30):
        stream = side[i % 3]
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            block = torch.empty(1 << (12 + i % 12), device="cuda", dtype=torch.uint8)
        block.record_stream(main)
        main.wait_stream(stream)
        blocks.append(block)
        if i % 5 == 4:
            del blocks[:3]
    del block, blocks[3:8]  # freed, and not looked at again before the snapshot


def capture():
    one_more_step(captured)


def captured():
    model = mlp("cuda")
    static = torch.randn(32, 256, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            model(static).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    for p in model.parameters():
        p.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = model(static).sum()
        loss.backward()
    graph.replay()
    KEPT.append((model, static, graph, loss))


def expandable():
    train(steps=4, at=(2, 3), width=1024, side=torch.cuda.Stream())
    big = [torch.empty(40 << 20, device="cuda", dtype=torch.uint8) for _ in range(3)]
    del big[1]
    torch.cuda.empty_cache()
    KEPT.append(big)
    KEPT.append(torch.empty(30 << 20, device="cuda", dtype=torch.uint8))
    more = mlp("cuda")  # without an optimizer: see devices()
    for _ in range(2):
        more(torch.randn(16, 256, device="cuda")).sum().backward()
    KEPT.append(more)


def oom():
    one_more_step(short)


def short():
    free, total = torch.cuda.mem_get_info()
    hog = torch.empty(free - (512 << 20), device="cuda", dtype=torch.uint8)
    cached = [torch.empty(40 << 20, device="cuda", dtype=torch.uint8) for _ in range(5)]
    del cached
    KEPT.append(torch.empty(400 << 20, device="cuda", dtype=torch.uint8))  # frees the cache and tries again
    try:
        torch.empty(total, device="cuda", dtype=torch.uint8)
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("no OutOfMemoryError")
    del hog
    keep("oom")
    torch.cuda.empty_cache()  # a real driver needs memory of its own to load kernels


def devices():
    one_more_step(on_all)


def on_all():
    # Without optimizers: those that take turns would make one step of their turns, and "step 3" another moment.
    for device in range(torch.cuda.device_count()):
        model, batch = mlp(f"cuda:{device}"), torch.randn(16, 256, device=f"cuda:{device}")
        for _ in range(3):
            model(batch).square().mean().backward()
        KEPT.append(model)


def main():
    # The stacks of allocations, and of frees those of what is freed.
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=1_000_000)
    for case in CASES:
        globals()[case]()
        keep(case if case != "oom" else "after_oom")
    # No frame of this script is gone yet, and nothing is freed on the way out: this is the recording's end too.
    keep("end")
    sys.stdout.flush()
    os._exit(0)


main()
