"""Trains a small 12-layer transformer for so many steps of some 3,230 events: what large snapshots are made of.

    strandline run -o many -- python tests/viz/many.py STEPS
    strandline snapshot many --any-size [--history STEPS] -o many.pickle
"""

import sys

import torch

layer = torch.nn.TransformerEncoderLayer(256, 8, 512, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
losses = []
for _ in range(int(sys.argv[1])):
    loss = model(torch.randn(8, 64, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.detach())
print(torch.cuda.memory_stats()["allocation.all.allocated"], "allocations")
