"""Leaks of the built-in list, as their old versions have them: `PYTHONPATH=DIR strandline run known.py CASE` says `fix`, and with the fixed
version NO LEAK. DIR: `pip install --no-deps --target DIR` of what a case names; old versions first, then the fixed one."""
import sys
import time
import torch
import types

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


def trainings(anew):
    """One short training after the other."""
    from accelerate import Accelerator

    accelerator = Accelerator()
    for _ in range(30):
        accelerator = Accelerator() if anew else accelerator
        mine = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Flatten())
        own = torch.optim.AdamW(mine.parameters())
        # As sentence-transformers does it, a method of the model makes the batches.
        mine.collate = types.MethodType(lambda self, batch: torch.stack(batch), mine)
        loader = torch.utils.data.DataLoader(list(torch.randn(256, 256)), batch_size=32, collate_fn=mine.collate)
        mine, own, loader = accelerator.prepare(mine, own, loader)
        for i, x in enumerate(loader):
            if i == 4:
                break
            accelerator.backward(mine(x.cuda()).pow(2).mean())
            own.step()
            own.zero_grad()
            time.sleep(0.03)
        del mine, own, loader


def accelerator():
    """huggingface/accelerate#84. accelerate; no version mends it: accelerator.free_memory() in the loop does"""
    trainings(anew=False)


def loader():
    """huggingface/accelerate#3391. accelerate==1.3.0; fixed: 1.4.0"""
    trainings(anew=True)


def saved():
    """huggingface/peft#2466. peft==0.15.2 transformers==4.51.3 tokenizers==0.21.1 huggingface_hub==0.30.2 accelerate, and what these import;
    fixed: 0.16.0"""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(target_modules=["0"], modules_to_save=["2"])
    model = get_peft_model(net, config, adapter_name="first")
    for i in range(25):
        model.add_adapter(f"fold{i}", config)
        model.set_adapter(f"fold{i}")
        own = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
        for _ in range(4):
            model(torch.randn(64, 64, device="cuda")).pow(2).mean().backward()
            own.step()
            own.zero_grad()
            time.sleep(0.03)
        model.set_adapter("first")
        model.delete_adapter(f"fold{i}")


def qwen():
    """huggingface/diffusers#12452. diffusers==0.35.1 transformers==4.51.3 tokenizers==0.21.1 huggingface_hub==0.30.2, and what these import;
    fixed: 0.36.0, where the cache has a bound"""
    from diffusers import QwenImageTransformer2DModel

    size = {"num_layers": 1, "attention_head_dim": 64, "num_attention_heads": 2, "joint_attention_dim": 64}
    model = QwenImageTransformer2DModel(**size, in_channels=16, out_channels=4, axes_dims_rope=(16, 24, 24)).cuda()
    mask = torch.ones(1, 16, device="cuda", dtype=torch.long)
    for i in range(240):
        h, w = 8 + i * 37 % 41, 8 + i * 11 % 43
        x, text = torch.randn(1, h * w, 16, device="cuda"), torch.randn(1, 16, 64, device="cuda")
        shapes = {"img_shapes": [(1, h, w)], "txt_seq_lens": [16]}
        with torch.no_grad():
            model(x, text, mask, timestep=torch.tensor([0.5], device="cuda"), **shapes)
        time.sleep(0.05)


def masked():
    """pytorch/pytorch#137890. torch==2.4.1; fixed: 2.6.0"""
    for _ in range(100):
        x = torch.randn(4096, 64, device="cuda")
        y = torch.masked.masked_tensor(x, x > 0, requires_grad=True)
        (y * 2).mean().backward()
        step(net(x).pow(2).mean())


CASES = [torchmetrics, rotary, accelerator, loader, saved, qwen, masked]
{case.__name__: case for case in CASES}[sys.argv[1]]()
