"""A job that fills all the memory that it may have, catches that, frees it and goes on.

    full.py AS | DATA     what is limited: addresses, or data
"""

import resource
import sys
import time

import torch

model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.Adam(model.parameters())


def step():
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


for _ in range(20):
    step()
what = sys.argv[1]
with open("/proc/self/status") as status:
    size = {"AS": "VmSize:", "DATA": "VmData:"}[what]
    now = next(int(line.split()[1]) << 10 for line in status if line.startswith(size))
resource.setrlimit(getattr(resource, f"RLIMIT_{what}"), (now + (64 << 20), resource.RLIM_INFINITY))
failed, end = 0, time.monotonic() + 4
while time.monotonic() < end:
    held = []
    try:
        while True:
            held.append(bytearray(100_000 if len(held) % 2 else 3_000))
    except MemoryError:
        failed += 1
    time.sleep(0.05)
    held = None
    step()
print("survived", failed > 0)
