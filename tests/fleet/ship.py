"""Trains until the file that is named is there, a step in 50 ms; `killed`: then kills itself.

    ship.py FILE [killed]
"""

import os
import signal
import sys
import time

import torch

model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
kept = []
while not os.path.exists(sys.argv[1]):
    kept.append(torch.zeros(1 << 20, dtype=torch.uint8, device="cuda"))  # LEAK
    model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.05)
if sys.argv[2:] == ["killed"]:
    os.kill(os.getpid(), signal.SIGKILL)
