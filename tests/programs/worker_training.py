"""Trains in a thread while main waits in join: a pending call never runs."""

import threading

import torch


def train():
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(16, 64, device="cuda")).sum().backward()
        optimizer.step()


t = threading.Thread(target=train)
t.start()
t.join()
print("trained")
