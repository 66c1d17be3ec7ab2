"""deepspeed_jobs.py STAGE [offload] [checkpointing]: deepspeed's engine with ZeRO 0 to 3, one rank, torch's own AdamW."""
import os
import sys

import seen

torch = seen.start()
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
import logging

import deepspeed

logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
stage, options = int(sys.argv[1]), set(sys.argv[2:])


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = x + (deepspeed.checkpointing.checkpoint(layer, x) if "checkpointing" in options else layer(x))
        return x


config = {
    "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "bf16": {"enabled": True}, "gradient_clipping": 1.0, "steps_per_print": 1 << 30,
    "zero_optimization": {"stage": stage, **({"offload_optimizer": {"device": "cpu"}} if "offload" in options else {})}, "zero_force_ds_cpu_optimizer": False,
    "zero_allow_untested_optimizer": True,
}
deepspeed.init_distributed("nccl")
net = Net()
engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), optimizer=torch.optim.AdamW(net.parameters(), 1e-4), config=config)
losses = []
for _ in range(40):
    loss = engine(torch.randn(8, 256, device=engine.device, dtype=torch.bfloat16)).float().square().mean()
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
engine.save_checkpoint("state", tag="last")
seen.end(losses, steps=engine.global_steps)
torch.distributed.destroy_process_group()
