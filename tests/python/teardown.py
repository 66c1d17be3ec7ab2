"""A job that frees all it holds right after its last optimizer: everything is local to a function that returns.

    teardown.py STEPS     prints, as JSON, what the model counts of itself when its last step ends
"""

import json
import sys

import torch


def train(steps):
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(64, 512, device="cuda")).square().mean().backward()
        optimizer.step()
    own = list(model.parameters())
    size = lambda tensors: sum(t.untyped_storage().nbytes() for t in tensors if t.is_cuda)
    states = [t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t)]
    told = {"weights": size(own), "gradients": size(p.grad for p in own), "optimizer": size(states)}
    print(json.dumps({**told, "allocated": torch.cuda.memory_allocated()}))


train(int(sys.argv[1]))
