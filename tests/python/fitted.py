"""What `fit` varies: a job whose memory grows with its batch. `fitted.py --batch-size N [--fail-above N]`, as deep as STRANDLINE_TEST_DEPTH says."""

import argparse
import os

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=1)
parser.add_argument("--fail-above", type=int, default=1 << 30)
options = parser.parse_args()
if options.batch_size > options.fail_above:
    raise ValueError(f"a batch of {options.batch_size} is too large for this model")
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(int(os.environ.get("STRANDLINE_TEST_DEPTH", "4")))]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(1_000_000):
    loss = model(torch.randn(options.batch_size << 10, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
