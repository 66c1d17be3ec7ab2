"""Models built from configs, one on each device, trained for three steps; then what each of them counts of itself, as JSON.

    anatomy.py MODEL…            MODEL+muon: matrices are trained by Muon
    TURN=FILE                    imports first, then waits for the lock on FILE: who trains has the card for himself
"""

import json
import os
import sys
import time

import torch
import transformers as t

import turn

torch.backends.cudnn.enabled = False
# Truncated normal numbers come from a kernel compiled at run time, which the simulated device has no compiler for.
torch.Tensor.erfinv_ = lambda tensor: tensor
# So small that a cuBLAS workspace (8 MiB for each thread that multiplies, in torch's pool and no tensor of the model) is not lost in it.
SIZE = {"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8}
TEXT = {**SIZE, "vocab_size": 16384, "num_hidden_layers": 6}
IMAGE = {**SIZE, "num_hidden_layers": 8, "image_size": 64, "patch_size": 16}
MODELS = {
    "gpt2-xl": lambda: t.GPT2LMHeadModel(t.GPT2Config(n_embd=1600, n_layer=48, n_head=25)),
    "llama-1b": lambda: t.LlamaForCausalLM(t.LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4)),
    "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=16384, n_embd=512, n_layer=6, n_head=8)),
    "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**TEXT, num_key_value_heads=2)),
    "vit": lambda: t.ViTForImageClassification(t.ViTConfig(**IMAGE, num_labels=8)),
    "bert": lambda: t.BertForMaskedLM(t.BertConfig(**TEXT)),
    "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**TEXT, num_key_value_heads=2, tie_word_embeddings=True)),
    "gemma": lambda: t.GemmaForCausalLM(t.GemmaConfig(**TEXT, num_key_value_heads=2, head_dim=64)),
    "neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**TEXT)),
    "t5": lambda: t.T5ForConditionalGeneration(t.T5Config(vocab_size=16384, d_model=512, d_ff=1408, num_layers=4, num_heads=8, d_kv=64, decoder_start_token_id=0)),
    "electra": lambda: t.ElectraForMaskedLM(t.ElectraConfig(**TEXT, embedding_size=512)),
    "deit": lambda: t.DeiTForImageClassification(t.DeiTConfig(**IMAGE, num_labels=8)),
}
# GPT-2's and Qwen 2's weights are shared between embedding and head. These keep their gradients and set them to zero;
KEPT = {"llama", "bert"}
# these have frozen embeddings and train on two microbatches a step.
FROZEN = {"vit", "neox"}
# and these are trained in a closure that the optimizer calls, as PyTorch Lightning trains.
CLOSED = {"gpt2"}


class Both:
    """Muon for the matrices, AdamW for the rest."""

    def __init__(self, model):
        matrices = [p for p in model.parameters() if p.ndim == 2]
        rest = [p for p in model.parameters() if p.ndim != 2]
        self.both = [torch.optim.Muon(matrices), torch.optim.AdamW(rest)]

    def zero_grad(self, set_to_none):
        for optimizer in self.both:
            optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        if closure is not None:
            closure()
        for optimizer in self.both:
            optimizer.step()

    @property
    def state(self):
        return {p: state for optimizer in self.both for p, state in optimizer.state.items()}


turn.take()
jobs = []
for device, name in enumerate(sys.argv[1:]):
    torch.cuda.set_device(device)
    name, _, muon = name.partition("+")
    with torch.device("cuda"):
        model = MODELS[name]().train()
    if name in FROZEN:
        for path, weight in model.named_parameters():
            weight.requires_grad_("embed" not in path)
    jobs.append((name, device, model, Both(model) if muon else torch.optim.AdamW(model.parameters())))
for step in range(3):
    for name, device, model, optimizer in jobs:
        torch.cuda.set_device(device)
        if name in ("vit", "deit"):
            batch = {"pixel_values": torch.randn(1, 3, 64, 64, device="cuda"), "labels": torch.zeros(1, dtype=torch.long, device="cuda")}
        else:
            ids = torch.zeros(1, 8, dtype=torch.long, device="cuda")
            batch = {"input_ids": ids, "labels": ids}

        def closure():
            with torch.enable_grad():
                optimizer.zero_grad(set_to_none=name not in KEPT)
                for _ in range(2 if name in FROZEN else 1):
                    model(**batch).loss.backward()

        if name in CLOSED:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        del batch, closure
used = None
if "TURN" in os.environ:
    torch.cuda.synchronize()
    time.sleep(1.5)  # the watcher reads once a second
    used = turn.used()
for (name, device, model, optimizer), asked in zip(jobs, sys.argv[1:]):
    size = lambda tensors: sum(x.numel() * x.element_size() for x in tensors if x is not None and x.is_cuda)
    held = [x for state in optimizer.state.values() for x in state.values() if torch.is_tensor(x)]
    print(json.dumps({
        "name": asked,
        "driver_used": used,
        "reserved": torch.cuda.memory_reserved(device),
        "weights": size([*model.parameters(), *model.buffers()]),
        "gradients": size(p.grad for p in model.parameters()),
        "optimizer": size(held),
    }))
