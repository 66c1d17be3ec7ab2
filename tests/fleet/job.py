"""One rank of a made-up job, as each argument says: a small transformer that trains for some 30,000 events.

    job.py [--steps N] MODE…

The modes are processes of their own, forked before CUDA is used, one after the other. `even` and `wide` are healthy; `leaks` keeps a tensor a step,
`reserves` frees ever larger ones, so that what is reserved grows and what is allocated does not; `lags` ends after two thirds of the
steps, of which the last ones have batches of double size; `fails` asks for more than the device has after as many.
"""

import os
import sys

import torch

arguments = sys.argv[1:]
steps = 24
if arguments[0] == "--steps":
    steps, arguments = int(arguments[1]), arguments[2:]
kept = []


def keep(batch):
    kept.append(torch.zeros(8 << 20, dtype=torch.uint8, device="cuda"))  # LEAK
    return batch


def train(mode):
    layer = torch.nn.TransformerEncoderLayer(256, 8, 512, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 5, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for step in range(steps * 2 // 3 if mode in ("lags", "fails") else steps):
        size = 9 if mode == "wide" else 16 if mode == "lags" and step >= steps // 3 else 8
        batch = torch.randn(size, 64, 256, device="cuda")
        if mode == "leaks":
            batch = keep(batch)
        if mode == "reserves":
            torch.empty((24 + 8 * step) << 20, dtype=torch.uint8, device="cuda")
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if mode == "fails":
        try:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass


for rank, mode in enumerate(arguments):
    if os.fork() == 0:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank % 8), WORLD_SIZE=str(len(arguments)))
        train(mode)
        sys.exit()
    if os.wait()[1]:
        sys.exit(f"{mode} failed")
