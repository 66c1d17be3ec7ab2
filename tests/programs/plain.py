"""A few training steps; prints torch's own counts."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(16, 64, device="cuda")).sum().backward()
    optimizer.step()
print("peak", torch.cuda.max_memory_allocated())
