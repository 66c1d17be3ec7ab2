"""Leaks of the built-in list, as their old versions have them: `PYTHONPATH=DIR strandline run known.py CASE` says `fix`, and with the fixed
version NO LEAK. DIR: `pip install --no-deps --target DIR` of what a case names; old versions first, then the fixed one."""
import sys
import time
import torch

net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)


def step(loss):
    loss.backward()
    opt.step()
    opt.zero_grad()
    time.sleep(0.03)  # who holds it is asked while it runs


def torchmetrics():
    """Lightning-AI/torchmetrics#902. torchmetrics==0.7.2 pyDeprecate==0.3.2 packaging; fixed: 0.7.3"""
    from torchmetrics import MeanSquaredError

    metric = MeanSquaredError().cuda()
    for _ in range(300):
        x = torch.randn(2048, 64, device="cuda")
        out = net(x)
        metric.update(out, x)
        step((out - x).pow(2).mean())


def rotary():
    """lucidrains/rotary-embedding-torch#15. rotary-embedding-torch==0.4.0 einops beartype; fixed: 0.5.0"""
    from rotary_embedding_torch import RotaryEmbedding

    embedding = RotaryEmbedding(dim=64).cuda()
    for i in range(160):
        x = torch.randn(2, 4, 4096 + 8 * (i * 37 % 160), 64, device="cuda")
        step(embedding.rotate_queries_or_keys(net(x)).pow(2).mean())


{"torchmetrics": torchmetrics, "rotary": rotary}[sys.argv[1]]()
