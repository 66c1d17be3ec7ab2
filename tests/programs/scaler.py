"""GradScaler: a step that is skipped updates the scale all the same."""

import torch

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for _ in range(3):
    optimizer.zero_grad()
    scaler.scale(model(torch.randn(4, 8, device="cuda")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
print("done")
