"""The demo's training job: a small vision-language model trained with TRL's activation offloading, as it was in TRL 1.3.0.

It knows nothing of strandline. The leak is a real one (huggingface/trl#5700, fixed in 1.4.0), and OffloadActivations is the
unmodified class out of TRL's own wheel. What sets it off is as common as in LLaVA: the language model reads the vision
tower's last layer but one, so backward never reaches the last one, and what that saved is never asked for again.

    train.py FOLDER-WITH-TRL [STEPS]
"""
import importlib.util
import logging
import os
import sys
import time
import types

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention


def stand_in(name, **attributes):
    """A module of which trl needs one function; the real one where it is installed."""
    if name.split(".")[0] not in sys.modules and importlib.util.find_spec(name.split(".")[0]):
        return
    module = types.ModuleType(name)
    module.__dict__.update(attributes)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def torch_is_at_least(operation, version):
    assert operation == ">="
    return tuple(map(int, torch.__version__.split(".")[:2])) >= tuple(map(int, version.split(".")[:2]))


def offload_activations(folder):
    """The class, from trl/models/activation_offloading.py as the wheel has it."""
    stand_in("psutil", virtual_memory=lambda: types.SimpleNamespace(percent=0.0))
    stand_in("accelerate", logging=types.SimpleNamespace(get_logger=logging.getLogger))
    stand_in("accelerate.utils")
    stand_in("accelerate.utils.versions", is_torch_version=torch_is_at_least)
    stand_in("transformers", is_torch_npu_available=lambda: False)
    path = os.path.join(folder, "trl", "models", "activation_offloading.py")
    spec = importlib.util.spec_from_file_location("trl_activation_offloading", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.OffloadActivations


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        normed = self.norm1(x)
        q, k, v = (p(normed).view(batch, length, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        x = x + self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class VisionTower(nn.Module):
    """Patches in, the hidden states of every layer out."""

    def __init__(self, width, layers):
        super().__init__()
        self.patches = nn.Linear(14 * 14 * 3, width)
        self.layers = nn.ModuleList(Block(width, 4) for _ in range(layers))

    def forward(self, pixels):
        states = [self.patches(pixels)]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return states


class VisionLanguageModel(nn.Module):
    """LLaVA's shape, small: images and text in, the loss of the text out."""

    def __init__(self, vocabulary=2048, width=512, vision_width=256):
        super().__init__()
        self.vision = VisionTower(vision_width, layers=6)
        self.projector = nn.Linear(vision_width, width)
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, 8) for _ in range(8))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, text, pixels):
        images = self.vision(pixels)[-2]  # the last layer has run, and backward will never reach it
        x = torch.cat([self.projector(images), self.embed(text)], dim=1)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x[:, -text.shape[1] :])
        return cross_entropy(logits.flatten(0, 1), text.flatten())


def train(folder, steps):
    """The usual loop."""
    model = VisionLanguageModel().to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    offload = offload_activations(folder)(use_streams=True)
    offload.update_model_params(model)
    # A larger card gets larger batches, as one would do.
    card = torch.cuda.get_device_properties(0).total_memory
    batch = 4 * max(1, min(6, round(card / 2**30 / 24)))
    for step in range(1, steps + 1):
        length = 128 + 64 * (step * 5 % 7)
        text = torch.randint(0, 2048, (batch, length), device="cuda")
        pixels = torch.randn(batch, 256, 14 * 14 * 3, device="cuda", dtype=torch.bfloat16)
        with offload:
            loss = model(text, pixels)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        print(f"step {step:2d}/{steps}   {torch.cuda.memory_allocated() / 2**20:7.0f} MiB allocated", flush=True)
        time.sleep(0.1)  # what other jobs wait for their data
    # PyTorch's autograd thread may still let go of the last backward's graph. A Python that ends meanwhile aborts, with us or without.
    time.sleep(0.5)


if __name__ == "__main__":
    torch.manual_seed(0)
    train(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 32)
