"""DDP for `predict --devices`: `torchrun --nproc-per-node 2 predicted_ranks.py`. Each rank prints its peak."""

import os

import torch
from torch import distributed, nn

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
distributed.init_process_group("nccl")
layers = nn.Sequential(nn.Linear(2048, 2048), nn.Linear(2048, 2048)).cuda()
net = nn.parallel.DistributedDataParallel(layers, device_ids=[rank])
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(20):
    # The larger batch of rank 1 decides its peak, not the optimizer's temporaries or what NCCL's thread still holds.
    net(torch.randn(1024 + 8192 * rank, 2048, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
counts = [torch.zeros(1, device="cuda", dtype=torch.long) for _ in range(distributed.get_world_size())]
distributed.all_gather(counts, torch.tensor([7], device="cuda"))
assert [int(c) for c in counts] == [7, 7], counts
distributed.barrier()
print(rank, torch.cuda.max_memory_allocated(), flush=True)
distributed.destroy_process_group()
