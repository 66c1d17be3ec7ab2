"""Greenlets (the package) that allocate: suspended at every depth, resumed, dropped, traced, on threads that end before theirs do."""

import gc
import threading

import greenlet
import torch

main = greenlet.getcurrent()


def allocate(n=1):
    return sum(torch.empty(512 * (i + 1), dtype=torch.uint8, device="cuda").numel() for i in range(n))


def deep(n, f):
    return f() if n == 0 else deep(n - 1, f)


def work(i):
    return sum(deep(i % 50, allocate) + (deep(i % 30, main.switch) or 0) for _ in range(20))


def train():
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        main.switch()
        optimizer.step()
        allocate()


def dropped():
    try:
        main.switch()
    finally:
        allocate(3)


def on_thread(kept):
    me = greenlet.getcurrent()

    def endless():
        while True:
            allocate()
            me.switch()

    own = [greenlet.greenlet(endless) for _ in range(10)]
    for one in own * 20:
        one.switch()
    kept.append(own)


allocate()
workers = [greenlet.greenlet(lambda i=i: work(i)) for i in range(100)]
trainers = [greenlet.greenlet(train) for _ in range(3)]
for turn in range(21):
    for one in workers + trainers:
        one.dead or one.switch()
print("ended", all(one.dead for one in workers + trainers))
for _ in range(50):
    one = greenlet.greenlet(dropped)
    one.switch()
    del one
gc.collect()
seen = []
greenlet.settrace(lambda *_: seen.append(allocate()))
one = greenlet.greenlet(lambda: [main.switch(allocate()) for _ in range(5)])
for _ in range(6):
    one.switch()
greenlet.settrace(None)
print("traced", len(seen))
kept = []
threads = [threading.Thread(target=on_thread, args=(kept,)) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
kept.clear()
gc.collect()
print(allocate(), torch.cuda.memory_stats()["allocation.all.allocated"], flush=True)
