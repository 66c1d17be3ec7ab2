"""What is predicted: a job of many steps that would take hours. `predicted.py late|grows|creeps`"""

import sys

import torch

what = sys.argv[1]
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept = []
for step in range(1_000_000):
    # The largest batch comes late, and is the peak.
    rows = 4096 if what == "late" and step == 30 else 64
    loss = model(torch.randn(rows, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if what == "grows":
        kept.append(model(torch.randn(64, 256, device="cuda")))
    if what == "creeps":
        # Some bytes of a number in every step: no leak worth a word.
        kept.append(loss.detach())
    if step % 10 == 0 and what == "late":
        print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
