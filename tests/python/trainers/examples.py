"""The examples of docs/trainers.md, each with what it needs around it."""

import pathlib
import sys

import common
import strandline
import torch
from accelerate import Accelerator
from torch.utils.tensorboard import SummaryWriter

strandline.start("recording.strand", quiet=True)
accelerator = Accelerator(gradient_accumulation_steps=2, log_with="tensorboard", project_dir=".")
accelerator.init_trackers("tracked")
net = torch.nn.Linear(16, 1)
net, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters()))
batches = [torch.randn(2, 16, device=accelerator.device) for _ in range(100)]


def model(batch):
    return net(batch).square().mean()


def train(batch):
    model(batch).backward()
    optimizer.step()
    optimizer.zero_grad()


run = SummaryWriter("run")
examples = [rest.split("\n```")[0] for rest in pathlib.Path(sys.argv[1]).read_text().split("```python\n")[1:]]
assert len(examples) == 2, examples
for example in examples:
    exec(example)
assert loop.steps == 50 and memory.steps == 100, (loop.steps, memory.steps)
common.done()
