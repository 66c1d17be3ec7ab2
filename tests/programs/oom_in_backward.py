"""Runs out of memory in a backward: on a thread of autograd's, which has a Python state and no Python frame. PyTorch asks for the free
memory there before it gives up. With "caught" the job goes on."""

import os
import sys

os.environ["STRANDLINE_SIM_TOTAL"] = "12GiB"
import torch

WIDTH = 1024
caught = "caught" in sys.argv
net = torch.nn.Sequential(*[m for _ in range(4) for m in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]).cuda()


def step(batch):
    net(torch.randn(batch, WIDTH, device="cuda")).pow(2).mean().backward()
    net.zero_grad(set_to_none=True)


for i in range(6):
    try:
        step(262144 if i == 3 else 256)
        print(i, "trained")
    except torch.cuda.OutOfMemoryError:
        if not caught:
            raise
        print(i, "out of memory")
        net.zero_grad(set_to_none=True)
