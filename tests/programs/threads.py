"""Threads that come and go: 200 one after the other, then 40 at once."""

import threading

import torch

torch.empty(1, device="cuda")


def work(n):
    torch.empty(1024 * (n + 1), device="cuda", dtype=torch.uint8)


for n in range(200):
    t = threading.Thread(target=work, args=(n,))
    t.start()
    t.join()

gate = threading.Barrier(40)


def together(n):
    gate.wait()
    work(n)
    gate.wait()


all_of_them = [threading.Thread(target=together, args=(n,)) for n in range(40)]
for t in all_of_them:
    t.start()
for t in all_of_them:
    t.join()
print("done", torch.cuda.memory_allocated())
