"""A training job that leaks and is long enough to be judged. It says what it did, whoever watches.

    judged.py [LIBRARY]     LIBRARY: a pluggable allocator to use, with `take` and `give`
"""

import sys

import torch

if len(sys.argv) > 1:
    allocator = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "take", "give")
    torch.cuda.memory.change_current_allocator(allocator)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
kept = []
for step in range(40):
    optimizer.zero_grad()
    x = torch.randn(16, 64, device=device)
    model(x).square().mean().backward()
    optimizer.step()
    kept.append(torch.zeros(16 << 20 if device == "cuda" else 16, device=device))
print(device, len(kept), sum(p.numel() for p in model.parameters()))
print("an own word", file=sys.stderr)
