"""Five jobs with planted waste, and the same jobs without it. `advised.py JOB waste|tuned [SCALE]`: prints the peak, with a waste that is SCALE
times as large; or all of them, each in a process of its own."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional

SCALE = int(sys.argv[3]) if len(sys.argv) > 3 else 1


def model(width, depth, dtype=torch.float32):
    return nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(depth)]).to("cuda", dtype)


def late_zero_grad(waste):
    net = model(2048, 4 * SCALE)
    optimizer = torch.optim.SGD(net.parameters())
    for _ in range(4):
        loss = net(torch.randn(4096, 2048, device="cuda")).sum()
        if waste:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not waste:
            optimizer.zero_grad()


def kept_from_step_before(waste):
    student, teacher = model(2048, 2), nn.Sequential(nn.Linear(2048, 16384), nn.Linear(16384, 2048)).cuda()
    optimizer = torch.optim.SGD(student.parameters())
    for _ in range(4):
        x = torch.randn(4096 * SCALE, 2048, device="cuda")
        with torch.no_grad():
            target = teacher(x)
        logits = student(x)
        loss = functional.mse_loss(logits, target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del target
        if not waste:
            del logits


def wide_copy(waste):
    net = model(4096, 1, torch.bfloat16)
    optimizer = torch.optim.SGD(net.parameters())

    def step():
        logits = net(torch.randn(8192 * SCALE, 4096, device="cuda", dtype=torch.bfloat16))
        if waste:
            logits = logits.float()
        functional.cross_entropy(logits, torch.zeros(8192 * SCALE, device="cuda", dtype=torch.long)).backward()

    for _ in range(4):
        step()
        optimizer.step()
        optimizer.zero_grad()


def optimizer_temporaries(waste):
    net = model(2048, 4 * SCALE)
    optimizer = torch.optim.AdamW(net.parameters(), fused=None if waste else True)
    for _ in range(4):
        net(torch.randn(64, 2048, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def collected_in_evaluation(waste):
    net = model(1024, 2)
    optimizer = torch.optim.SGD(net.parameters())
    for _ in range(4):
        net(torch.randn(1024, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    results = []
    with torch.no_grad():
        for _ in range(16):
            result = net(torch.randn(8192 * SCALE, 1024, device="cuda"))
            results.append(result if waste else result.cpu())


JOBS = [late_zero_grad, kept_from_step_before, wide_copy, optimizer_temporaries, collected_in_evaluation]


def run(name, variant):
    next(job for job in JOBS if job.__name__ == name)(variant == "waste")
    print(name, variant, os.getpid(), torch.cuda.max_memory_allocated(), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(*sys.argv[1:3])
        sys.exit()
    for job in JOBS:
        for variant in ("waste", "tuned"):
            # Torch is imported once; CUDA begins in the child.
            pid = os.fork()
            if pid == 0:
                run(job.__name__, variant)
                os._exit(0)
            if os.waitpid(pid, 0)[1] != 0:
                sys.exit(f"{job.__name__} {variant} failed")
