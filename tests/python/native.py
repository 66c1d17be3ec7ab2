"""Trains a little under torch's own history with all stacks, and writes the native frames of every allocation.

    native.py OUT      OUT gets JSON lines: address, size, names of the native frames (innermost first), in torch's order
"""

import json
import sys

import torch


def main():
    torch.cuda.memory._record_memory_history("all", stacks="all", max_entries=100_000)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(16 + step, 256, device="cuda")).square().mean().backward()
        optimizer.step()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    with open(sys.argv[1], "w") as f:
        for e in trace:
            if e["action"] == "alloc":
                frames = [x["name"] for x in e["frames"] if not x["filename"].endswith(".py")]
                f.write(json.dumps({"addr": e["addr"], "size": e["size"], "frames": frames}) + "\n")


main()
