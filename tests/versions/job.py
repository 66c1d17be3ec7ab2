"""A training job with a leak on a side stream, for every version of PyTorch: it says what the report must say."""

import json

import torch

STEPS = 16


def train():
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    side, kept = torch.cuda.Stream(), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(16, 64, device="cuda")).square().mean().backward()
        optimizer.step()
        with torch.cuda.stream(side):
            y = torch.zeros(4 << 20, device="cuda", dtype=torch.uint8)
            kept.append(torch.zeros(16 << 20, device="cuda", dtype=torch.uint8))  # LEAK
        y.record_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    return kept


kept = train()
said = {"steps": STEPS, "torch": torch.__version__, "cuda": torch.version.cuda}
said["peak"] = torch.cuda.max_memory_allocated()
said["reserved"] = torch.cuda.max_memory_reserved()
print(json.dumps(said))
