"""A job that launchers start: a few steps on the device of its rank. It prints nothing."""

import os
import sys

import torch


def train(steps=8):
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 64, device="cuda")).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    method = next((word for word in sys.argv[1:] if word in ("spawn", "fork", "forkserver")), None)
    if method:
        import multiprocessing

        process = multiprocessing.get_context(method).Process(target=train)
        process.start()
        process.join()
        sys.exit(process.exitcode)
    train()
