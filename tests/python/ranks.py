"""A rank of a distributed job, started by torchrun: some steps on its own device. The rank writes what it sees itself as JSON.

    ranks.py ddp|fsdp OUT [--backend nccl|gloo|fake] [--leak RANK] [--width N] [--layers N] [--steps N]

OUT/RANK.json gets what PyTorch and CUDA say of this rank's device when the last step has ended, with everything still held.
`gloo` and `fake` are for a machine without NCCL: fake ranks send nothing to each other.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist

p = argparse.ArgumentParser()
p.add_argument("kind", choices=["ddp", "fsdp"])
p.add_argument("out")
p.add_argument("--backend", default="nccl")
p.add_argument("--leak", type=int, default=-1)
p.add_argument("--width", type=int, default=1024)
p.add_argument("--layers", type=int, default=6)
p.add_argument("--steps", type=int, default=24)
args = p.parse_args()
rank, world, local = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
# Ranks share a card where there are fewer than ranks.
local %= torch.cuda.device_count()
torch.cuda.set_device(local)
if args.backend == "fake":
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
elif args.backend == "nccl":
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
else:
    dist.init_process_group(args.backend)


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


model = torch.nn.Sequential(*[Block(args.width) for _ in range(args.layers)]).cuda()
if args.kind == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local])
else:
    from torch.distributed.fsdp import fully_shard

    for block in model:
        fully_shard(block)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
side = torch.cuda.Stream()
kept = []
for _ in range(args.steps):
    x = torch.randn(8, 256, args.width, device="cuda")
    model(x).square().mean().backward()
    # Within the step: what comes after its end is the next one's, and no figure of the last step's end.
    if rank == args.leak:
        with torch.cuda.stream(side):
            kept.append(torch.zeros(64 << 20, device="cuda", dtype=torch.uint8))  # LEAK
        torch.cuda.current_stream().wait_stream(side)
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
# Whoever comes first waits: what a device holds is read while every rank holds all of it.
if args.backend != "fake":
    dist.barrier()
free, total = torch.cuda.mem_get_info()
said = {
    "rank": rank,
    "used": total - free,
    "allocated": torch.cuda.memory_allocated(),
    "peak": torch.cuda.max_memory_allocated(),
    "reserved": torch.cuda.memory_reserved(),
}
with open(os.path.join(args.out, f"{rank}.json"), "w") as f:
    json.dump(said, f)
if args.backend != "fake":
    dist.barrier()
# As it stands: nothing is given back on the way out, so that the recording ends with what the device was asked about.
os._exit(0)
