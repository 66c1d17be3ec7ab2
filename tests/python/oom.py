"""A training job that runs out of memory of one cause.

    oom.py batch | fragments | other | state
"""

import sys

import torch

MIB = 1 << 20
cause = sys.argv[1]
if cause == "state":
    model = torch.nn.Linear(10240, 11264, device="cuda")  # 440 MiB
    optimizer = torch.optim.Adam(model.parameters())
else:
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(rows):
    optimizer.zero_grad()
    x = torch.randn(rows, model.in_features if cause == "state" else 1024, device="cuda")
    model(x).square().mean().backward()
    optimizer.step()


if cause == "fragments":  # of five blocks in a segment of 20 MiB one stays
    blocks = [torch.empty(4 * MIB, dtype=torch.uint8, device="cuda") for _ in range(320)]
    blocks = blocks[::5]
for step in range(14):
    train(64 if cause == "state" else 256)
if cause == "batch":
    train(48 * 1024)
elif cause == "fragments":
    torch.empty(700 * MIB, dtype=torch.uint8, device="cuda")
elif cause == "other":
    torch.empty(1536 * MIB, dtype=torch.uint8, device="cuda")
print("not reached")
