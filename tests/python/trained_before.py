"""A stream that trains at first and then only holds what a line leaves behind: the leak that was growth outlives a side stream then."""
import time

import torch

side, main = torch.cuda.Stream(), torch.cuda.current_stream()
net = torch.nn.Linear(64, 64, device="cuda")
opt = torch.optim.SGD(net.parameters(), lr=.1)
kept = []
for step in range(300):
    torch.cuda.set_stream(side if step < 24 else main)
    net(torch.ones(64, 64, device="cuda")).sum().backward()
    for _ in range(0 if step < 24 else 50): torch.ones(64, device="cuda")
    opt.step(); opt.zero_grad()
    with torch.cuda.stream(side):
        kept.append(torch.empty(4 << 20, dtype=torch.uint8, device="cuda"))
    main.wait_stream(side)
    time.sleep(0.01)
