"""A rank of two, of which only the second is recorded and keeps memory: both end at the same step."""

import os

import common
import strandline
import torch
from accelerate import Accelerator
from strandline.accelerate import TrainingLoop

rank = int(os.environ["RANK"])
if rank == 1:
    strandline.start("recording.strand", quiet=True)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Linear(16, 16)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
with TrainingLoop(accelerator, log_every=4, on_growth="save_and_stop") as loop:
    for _ in range(400):
        with accelerator.accumulate(model):
            if rank == 1:
                common.keep(8)
            accelerator.backward(model(torch.randn(2, 16)).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if loop.step():
                accelerator.save_state("last")
                break
print(f"stopped after {loop.steps} steps", flush=True)
accelerator.end_training()
