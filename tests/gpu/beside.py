#!/usr/bin/env python3
"""What a process takes of a card beside what PyTorch reserves: MiB after each thing that it does.

usage: [torchrun --nproc-per-node 2] beside.py [eager]     under torchrun NCCL, too; eager: its group is made at once
"""
import os
import sys

import torch
import torch.distributed as dist

rank, ranks = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "0"))
torch.cuda.set_device(rank)
said = []


def after(what):
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    said.append(f"{what} {(total - free - torch.cuda.memory_reserved()) / 2**20:.1f}")


after("context")
x = torch.zeros(1024, 1024, device="cuda")
after("a kernel")
x @ x
after("matmul")
w = torch.randn(1024, 1024, device="cuda", requires_grad=True)
(x @ w).sum().backward()
after("backward")
with torch.cuda.stream(torch.cuda.Stream()):
    x @ x
after("matmul on another stream")
torch.nn.Conv2d(3, 64, 3).cuda()(torch.randn(8, 3, 64, 64, device="cuda"))
after("convolution")
torch.linalg.inv(x + torch.eye(1024, device="cuda"))
after("inv")
torch.fft.fft(x)
after("fft")
if ranks:
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank) if "eager" in sys.argv else None)
    after("init_process_group")
    dist.all_reduce(x)
    after("all_reduce")
    group = dist.new_group(list(range(ranks)))
    dist.all_reduce(x, group=group)
    after("a second group")
    if ranks > 1:
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        after("send and recv")
    dist.destroy_process_group()
print(f"rank {rank}: " + "; ".join(said), flush=True)
