"""Trains for 40 steps and keeps 8 MiB of each on a side stream."""

import sys

import torch

side = torch.cuda.Stream()
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept = []


def keep():
    with torch.cuda.stream(side):
        kept.append(torch.zeros(2 << 20, device="cuda"))


for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(16, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    keep()
