"""CUDA starts where a recursion leaves so few frames; afterwards there is room: deep.py FRAMES"""

import inspect
import sys

import torch


def at(depth, call):
    return call() if depth == 0 else at(depth - 1, call)


def start():
    torch._C._cuda_init()
    # A loop, so that Python looks whether something is pending.
    return sum(1 for _ in range(10))


limit = sys.getrecursionlimit()
room = limit - len(inspect.stack())
print(at(room - int(sys.argv[1]), start))
weight = torch.ones(4, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(5):
    weight.sum().backward()
    optimizer.step()
kept = torch.zeros(1000, dtype=torch.uint8, device="cuda")
print("end")
