"""A rank under accelerate over NCCL, started by torchrun; the last rank keeps 64 MiB in every optimizer step.

accelerated.py [--callbacks]      with strandline's TrainingLoop around the loop, which must change no verdict
"""

import contextlib
import os
import sys

import torch
from accelerate import Accelerator

accelerator = Accelerator(gradient_accumulation_steps=2)
is_last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024))
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
kept = []
loop = contextlib.nullcontext()
if "--callbacks" in sys.argv:
    from strandline.accelerate import TrainingLoop

    loop = TrainingLoop(accelerator, log_every=8)
with loop:
    for i in range(80):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.randn(16, 1024, device=accelerator.device)).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if is_last and accelerator.sync_gradients:
                kept.append(torch.zeros(64 << 20, dtype=torch.uint8, device=accelerator.device))  # LEAK
            if "--callbacks" in sys.argv:
                loop.step()
print(f"rank {os.environ['RANK']}: {len(kept)} kept", flush=True)
accelerator.end_training()
