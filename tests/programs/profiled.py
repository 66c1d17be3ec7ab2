"""A profiler of memory (the package memray) that writes its functions into the tables of all libraries, takes a lock in each, and goes through
all libraries with it held whenever one is opened: PyTorch is loaded, and allocates, while it is at work."""

import os
import tempfile

import memray

with tempfile.TemporaryDirectory() as folder, memray.Tracker(os.path.join(folder, "profile")):
    import torch

    blocks = [torch.empty(512 * (i + 1), dtype=torch.uint8, device="cuda") for i in range(200)]
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 8, device="cuda")).square().mean().backward()
        optimizer.step()
print("ended", len(blocks), torch.cuda.memory_allocated())
