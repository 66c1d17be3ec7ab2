"""When Python's collector begins: its counts at moments of a job, and peaks that depend on them.

    collector.py [thread]

The first CUDA call comes just before the collector would begin. `thread`: it comes from a finalizer that the collector calls, and the
rest is another thread's, while the main one waits.
"""

import _thread
import gc
import sys
import weakref

import torch

moments = []


class Cycle:
    """A tensor that only the collector frees."""

    def __init__(self):
        self.me = self
        self.tensor = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")


class Last:
    """What makes the first CUDA call once the collector has found it."""

    def __init__(self):
        self.me = self

    def __del__(self):
        first_call()


def first_call():
    torch.zeros(1, device="cuda")
    moment("in the first CUDA call")


def moment(name):
    moments.append((name, gc.get_count()))


def step(model, *optimizers):
    model(torch.ones(4, 8, device="cuda")).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def train():
    model = torch.nn.Linear(8, 8).cuda()
    moment("model")
    first = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    moment("optimizer")
    step(model, first)
    moment("first step")
    for _ in range(49):
        step(model, first)
    moment("50 steps")
    second = torch.optim.AdamW(model.parameters(), lr=0.1)
    moment("second optimizer")
    for _ in range(3):
        step(model, first, second)
        moment("step with both")
    refs = [weakref.ref(first), weakref.ref(second), weakref.ref(second)]
    moment("weak references")
    scheduler = torch.optim.lr_scheduler.StepLR(first, 1)
    step(model, first)
    scheduler.step()
    moment("scheduler")
    del first, second, scheduler
    moment(f"gone {[r() is None for r in refs]}")
    step(model, torch.optim.SGD(model.parameters(), lr=0.1))
    moment("third optimizer")


def peaks():
    kept = []
    for pad in range(100, 400, 7):
        kept.append([[] for _ in range(pad)])
        torch.cuda.reset_peak_memory_stats()
        Cycle()
        Cycle()
        moment(torch.cuda.max_memory_allocated())


def main():
    moment("start")
    if "thread" in sys.argv:
        Last()
        gc.collect(1)
    else:
        before = []
        while gc.get_count()[0] + 2 < gc.get_threshold()[0]:
            before.append([])
        first_call()
    moment("first CUDA call")
    if "thread" in sys.argv:
        done = _thread.allocate_lock()
        done.acquire()
        _thread.start_new_thread(lambda: (train(), peaks(), done.release()), ())
        done.acquire()
    else:
        train()
        moment("function ended")
        peaks()
        moment("end")


main()
for line in moments:
    print(*line)
print([s["collections"] for s in gc.get_stats()])
