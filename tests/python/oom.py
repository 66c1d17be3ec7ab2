"""A training job that runs out of memory of one cause, on a simulated card made for it or on a real one of any size.

    oom.py batch | fragments | other | state | rising | after
    TURN=FILE    imports first, then waits for the lock on FILE: who runs has the card for himself
"""

import os
import subprocess
import sys
import time

import torch

import turn

MIB = 1 << 20
cause = sys.argv[1]
turn.take()
if cause == "other" and "TURN" in os.environ:
    # Another process takes all of the card but 3 GiB, and says how much that is.
    source = "import torch; n = torch.cuda.mem_get_info()[0] - (3 << 30); x = torch.empty(n, dtype=torch.uint8, device='cuda'); print(n, flush=True); input()"
    bare = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("STRANDLINE_")}
    holder = subprocess.Popen([sys.executable, "-c", source], env=bare, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    print("another process holds", holder.stdout.readline().strip(), flush=True)
# What each cause was written for, and how often that goes into this card.
small = {"batch": 2048, "fragments": 1792, "state": 1536}.get(cause)
times = max(1, torch.cuda.get_device_properties(0).total_memory // (small * MIB)) if small else 1
if cause == "state":
    model = torch.nn.Linear(10240, 11264 * times, device="cuda")  # 440 MiB
    optimizer = torch.optim.Adam(model.parameters())
else:
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(rows):
    optimizer.zero_grad()
    x = torch.randn(rows, model.in_features if cause == "state" else 1024, device="cuda")
    model(x).square().mean().backward()
    optimizer.step()


if cause == "fragments":  # of five blocks in a segment of 20 MiB one stays
    blocks = [torch.empty(4 * MIB, dtype=torch.uint8, device="cuda") for _ in range(320 * times)]
    blocks = blocks[::5]
for step in range(14):
    train(64 if cause == "state" else 256)
if cause == "batch":
    train(48 * 1024 * times)
elif cause == "fragments":
    torch.empty(700 * times * MIB, dtype=torch.uint8, device="cuda")
elif cause == "other":
    torch.empty((4096 if "TURN" in os.environ else 1536) * MIB, dtype=torch.uint8, device="cuda")
elif cause == "rising":  # each step needs one block more than the one before
    for step in range(1000):
        more = [torch.empty(8 * MIB, dtype=torch.uint8, device="cuda") for _ in range(step)]
        train(256)
        del more
elif cause == "after":  # it serves requests, and keeps something of each
    kept = []
    while True:
        kept.append(torch.empty(4 * MIB, dtype=torch.uint8, device="cuda"))
        time.sleep(0.5)
print("not reached")
