#!/usr/bin/env python3
"""Ten models that train as people train them, made from configurations; one line of JSON says what a run took of the card.

usage: models.py NAME [--batch N] [--steps N] [--card GIB] [--beside MIB] [--wait] [--no-cudnn]

--card: limits PyTorch so that the process takes GIB of the card at most, if it takes --beside MIB besides what PyTorch reserves; exit
status 3 where that is too little. --wait: nothing touches the card before a line comes on standard input. Where `TURN` names a file,
the process has the card for itself (tests/python/turn.py). Data is drawn once: a step reads no files.
"""
import argparse
import importlib.util
import json
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

BF16 = torch.bfloat16


def causal(config):
    """A language model of a configuration of transformers."""
    from transformers import AutoModelForCausalLM

    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=BF16).train()


def tokens(batch, length, vocabulary):
    ids = torch.randint(0, vocabulary, (batch, length), device="cuda")
    return {"input_ids": ids, "labels": ids}


def steps_of(model, optimizer, inputs):
    """The step that every tutorial has."""

    def step():
        model(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def llama(**more):
    from transformers import LlamaConfig

    # `use_cache=False`, as every trainer of language models sets it.
    return LlamaConfig(**{"use_cache": False, "num_key_value_heads": 8, **more})


def dense(batch):
    """Llama 3.2 1B, 1,024 tokens."""
    config = llama(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, tie_word_embeddings=True)
    model = causal(config)
    return model, steps_of(model, torch.optim.AdamW(model.parameters()), tokens(batch, 1024, 128256))


def moe(batch):
    """Qwen2-MoE: 12 layers of 16 experts, two of them for each token; 1,024 tokens."""
    from transformers import Qwen2MoeConfig

    config = Qwen2MoeConfig(
        vocab_size=32000, hidden_size=1024, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=8, num_experts=16, num_experts_per_tok=2,
        moe_intermediate_size=1024, shared_expert_intermediate_size=2048, use_cache=False,
    )
    model = causal(config)
    return model, steps_of(model, torch.optim.AdamW(model.parameters()), tokens(batch, 1024, 32000))


def vlm(batch):
    """BLIP: ViT-L/16 at 384 pixels, and a text decoder that looks at it; 64 tokens. (Models of LLaVA's kind count the tokens of pictures on the GPU
    and stop where there are none, as on the simulated one.)"""
    from transformers import BlipConfig, BlipForConditionalGeneration

    vision = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 384}
    text = {"encoder_hidden_size": 1024, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    model = BlipForConditionalGeneration(BlipConfig(vision_config=vision, text_config=text)).cuda().train()
    inputs = {**tokens(batch, 64, 30000), "pixel_values": torch.randn(batch, 3, 384, 384, device="cuda")}
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        with torch.autocast("cuda", dtype=BF16):
            loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


class Block(nn.Module):
    """Of a diffusion model's UNet: two convolutions, the time between them, and attention where the picture is small."""

    def __init__(self, inside, outside, time, attends):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.time, self.norm2, self.conv2 = nn.Linear(time, outside), nn.GroupNorm(32, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()
        self.norm3, self.qkv, self.out = (nn.GroupNorm(32, outside), nn.Linear(outside, 3 * outside), nn.Linear(outside, outside)) if attends else (None,) * 3

    def forward(self, x, time):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        h = self.skip(x) + self.conv2(F.silu(self.norm2(h)))
        if self.qkv is not None:
            b, c, height, width = h.shape
            q, k, v = self.qkv(self.norm3(h).flatten(2).transpose(1, 2)).view(b, height * width, 3, c // 64, 64).permute(2, 0, 3, 1, 4)
            h = h + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, height * width, c)).transpose(1, 2).view_as(h)
        return h


class UNet(nn.Module):
    def __init__(self, widths=(256, 512, 768, 768), time=1024):
        super().__init__()
        self.time, self.first, self.last = nn.Linear(256, time), nn.Conv2d(4, widths[0], 3, padding=1), nn.Conv2d(widths[0], 4, 3, padding=1)
        self.down, self.up, now, kept = nn.ModuleList(), nn.ModuleList(), widths[0], [widths[0]]
        for level, width in enumerate(widths):
            for _ in range(2):
                self.down.append(Block(now, width, time, level > 0))
                now = width
                kept.append(now)
            if level + 1 < len(widths):
                self.down.append(nn.Conv2d(now, now, 3, stride=2, padding=1))
                kept.append(now)
        self.middle = Block(now, now, time, True)
        for level, width in reversed(list(enumerate(widths))):
            for n in range(3):
                self.up.append(Block(now + kept.pop(), width, time, level > 0))
                now = width
            if level:
                self.up.append(nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(now, now, 3, padding=1)))

    def forward(self, x, time):
        time, x = self.time(time), self.first(x)
        kept = [x]
        for part in self.down:
            x = part(x, time) if isinstance(part, Block) else part(x)
            kept.append(x)
        x = self.middle(x, time)
        for part in self.up:
            x = part(torch.cat([x, kept.pop()], 1), time) if isinstance(part, Block) else part(x)
        return self.last(x)


def diffusion(batch):
    """A UNet of latent diffusion, 64 by 64, autocast to bfloat16, with an average of its weights."""
    model = UNet().cuda().train()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
    optimizer = torch.optim.AdamW(model.parameters())
    latents, time = torch.randn(batch, 4, 64, 64, device="cuda"), torch.randn(batch, 256, device="cuda")

    def step():
        noise = torch.randn_like(latents)
        with torch.autocast("cuda", dtype=BF16):
            loss = F.mse_loss(model(latents + noise, time).float(), noise)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        average.update_parameters(model)

    return model, step


def cnn(batch):
    """ResNet-50 of torchvision, 224 by 224, channels last, autocast to bfloat16, with `cudnn.benchmark`."""
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50(weights=None).cuda().train().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    pictures = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.zeros(batch, dtype=torch.long, device="cuda")

    def step():
        with torch.autocast("cuda", dtype=BF16):
            loss = F.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def lora(batch):
    """Llama 3.2 3B, frozen, with peft's LoRA of rank 16; 1,024 tokens."""
    from peft import LoraConfig, get_peft_model

    config = llama(vocab_size=128256, hidden_size=3072, intermediate_size=8192, num_hidden_layers=28, num_attention_heads=24, tie_word_embeddings=True)
    model = get_peft_model(causal(config), LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"))
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    return model, steps_of(model, optimizer, tokens(batch, 1024, 128256))


class Adam8(torch.optim.Optimizer):
    """Adam with both moments in eight bits, each block of 256 with a scale of its own."""

    def __init__(self, parameters, lr=1e-4, betas=(0.9, 0.999)):
        super().__init__(parameters, {"lr": lr, "betas": betas})

    @staticmethod
    def pack(x):
        x = F.pad(x.flatten(), (0, -x.numel() % 256)).view(-1, 256)
        scale = x.abs().amax(1, keepdim=True).clamp_(min=1e-12)
        return (x / scale * 127).round_().to(torch.int8), scale

    @staticmethod
    def unpack(packed, like):
        small, scale = packed
        return (small.float() * (scale / 127)).flatten()[: like.numel()].view_as(like)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state, grad = self.state[p], p.grad.float()
                if not state:
                    state["first"] = state["second"] = self.pack(torch.zeros_like(grad))
                for name, beta, now in (("first", group["betas"][0], grad), ("second", group["betas"][1], grad.square())):
                    state[name] = self.pack(self.unpack(state[name], p).lerp_(now, 1 - beta))
                change = self.unpack(state["first"], p) / self.unpack(state["second"], p).sqrt_().add_(1e-8)
                p.sub_(change.mul_(group["lr"]).to(p.dtype))


def adam8(batch):
    """GPT-2 XL, 1,024 tokens, an Adam of eight bits."""
    from transformers import GPT2Config

    model = causal(GPT2Config(n_embd=1600, n_layer=48, n_head=25, use_cache=False))
    return model, steps_of(model, Adam8(model.parameters()), tokens(batch, 1024, 50257))


def checkpointing(batch):
    """A Llama of 1.1 billion parameters, 4,096 tokens, gradient checkpointing."""
    model = causal(llama(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32))
    model.gradient_checkpointing_enable()
    return model, steps_of(model, torch.optim.AdamW(model.parameters(), fused=True), tokens(batch, 4096, 32000))


def long(batch):
    """Qwen2 of 12 layers, 16,384 tokens."""
    from transformers import Qwen2Config

    config = Qwen2Config(
        vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=8, max_position_embeddings=16384,
        use_cache=False,
    )
    model = causal(config)
    return model, steps_of(model, torch.optim.AdamW(model.parameters()), tokens(batch, 16384, 32000))


def gan(batch):
    """DCGAN, 128 by 128, float32, two optimizers."""
    widths = (1024, 512, 256, 128, 64)
    layers = [nn.ConvTranspose2d(128, 1024, 4)]
    for a, b in zip(widths, (*widths[1:], 3)):
        layers += [nn.BatchNorm2d(a), nn.ReLU(True), nn.ConvTranspose2d(a, b, 4, 2, 1)]
    generator = nn.Sequential(*layers, nn.Tanh()).cuda()
    layers = [nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2, True)]
    for a, b in zip(widths[:0:-1], widths[-2::-1]):
        layers += [nn.Conv2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2, True)]
    critic = nn.Sequential(*layers, nn.Conv2d(1024, 1, 4), nn.Flatten(0)).cuda()
    both = [torch.optim.Adam(m.parameters(), 2e-4, betas=(0.5, 0.999)) for m in (critic, generator)]
    real, ones, zeros = torch.randn(batch, 3, 128, 128, device="cuda"), torch.ones(batch, device="cuda"), torch.zeros(batch, device="cuda")

    def step():
        fake = generator(torch.randn(batch, 128, 1, 1, device="cuda"))
        critic.zero_grad()
        F.binary_cross_entropy_with_logits(critic(real), ones).backward()
        F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros).backward()
        both[0].step()
        generator.zero_grad()
        F.binary_cross_entropy_with_logits(critic(fake), ones).backward()
        both[1].step()

    return nn.ModuleList([generator, critic]), step


# Each with the batch that it has unless another is asked for, and the values that `strandline fit` looks through.
MODELS = {
    "dense": (dense, 4, "1..32"), "moe": (moe, 8, "1..64"), "vlm": (vlm, 8, "1..64"), "diffusion": (diffusion, 16, "4..256+4"), "cnn": (cnn, 256, "64..1536+32"),
    "lora": (lora, 2, "1..32"), "adam8": (adam8, 4, "1..64"), "checkpointing": (checkpointing, 8, "1..64"), "long": (long, 2, "1..16"), "gan": (gan, 2048, "512..16384+512"),
}


def versions():
    from importlib import metadata

    found = {"torch": torch.__version__}
    for name in ("transformers", "peft", "torchvision"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found


def take_turn():
    """Of tests/python/turn.py, whose folder has names that libraries also look for."""
    place = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python", "turn.py")
    spec = importlib.util.spec_from_file_location("turn", place)
    # Kept, with the lock that it holds.
    sys.modules["turn"] = turn = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(turn)
    turn.take()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name", choices=MODELS)
    p.add_argument("--batch", type=int)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--card", type=float)
    p.add_argument("--beside", type=float, default=0)
    p.add_argument("--wait", action="store_true")
    p.add_argument("--no-cudnn", action="store_true")
    args = p.parse_args()
    make, batch, _ = MODELS[args.name]
    batch = args.batch or batch
    if args.name not in ("diffusion", "cnn", "gan"):
        import transformers  # noqa: F401  before the card is taken: it takes seconds
    if args.no_cudnn:
        torch.backends.cudnn.enabled = False
        torch.backends.cuda.enable_cudnn_sdp(False)
    if args.wait:
        sys.stdin.readline()
    take_turn()
    torch.manual_seed(0)
    free, total = torch.cuda.mem_get_info()
    if args.card:
        torch.cuda.set_per_process_memory_fraction((args.card * 2**30 - args.beside * 2**20) / total)
    said = {"model": args.name, "batch": batch, "card": torch.cuda.get_device_name(), "versions": versions(), "context_bytes": total - free}
    try:
        model, step = make(batch)
        said["parameters"] = sum(q.numel() for q in model.parameters())
        for _ in range(args.steps):
            step()
        torch.cuda.synchronize()
    except torch.OutOfMemoryError as e:
        print(json.dumps({**said, "out_of_memory": str(e)[:300]}), flush=True)
        return 3
    free, total = torch.cuda.mem_get_info()
    stats = torch.cuda.memory_stats()
    said.update(
        allocated=torch.cuda.max_memory_allocated(), reserved=torch.cuda.max_memory_reserved(), reserved_now=torch.cuda.memory_reserved(), used=total - free,
        total=total, retries=stats["num_alloc_retries"],
    )
    print(json.dumps(said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
