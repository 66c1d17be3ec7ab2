#!/usr/bin/env python3
"""What cuDNN takes beside a convolution's result, asked of PyTorch's allocator: one JSON line for each convolution.

    workspaces.py OUT.jsonl SEED SECONDS [--benchmark]      shapes of the models of tests/gpu/models.py first (SEED 0), then drawn ones
    workspaces.py --against CARD.jsonl…      on a simulated GPU: how often it takes what that card took, of tensors of 16 MiB and more

A line: type, layout, sizes of input and weight, stride, padding, dilation, groups, and for the forward, the input's gradient and the weight's
gradient the bytes that each allocation of it asked for, in their order.
"""
import collections
import json
import math
import random
import sys
import time

import torch

TYPES = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16}
CHANNELS = (1, 3, 4, 8, 12, 16, 24, 32, 48, 64, 96, 100, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1280, 1536, 2048)
SIDES = (1, 2, 4, 7, 8, 14, 15, 16, 28, 32, 33, 56, 64, 100, 112, 128, 224, 256)
GiB = 2**30


def asked(work):
    """The sizes that `work` asks of the allocator, and what it returns."""
    torch.cuda.memory._record_memory_history(max_entries=1000, context=None)
    result = work()
    torch.cuda.synchronize()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return [e["size"] for e in trace if e["action"] == "alloc"], result


def measured(kind, last, x, w, stride, padding, dilation, groups):
    form = torch.channels_last if last else torch.contiguous_format
    if len(x) == 5:
        form = torch.channels_last_3d if last else torch.contiguous_format
    a = torch.empty(x, dtype=TYPES[kind], device="cuda").normal_().to(memory_format=form)
    b = torch.empty(w, dtype=TYPES[kind], device="cuda").normal_().to(memory_format=form)
    n = len(x) - 2
    rest = ([stride] * n, [padding] * n, [dilation] * n, False, [0] * n, groups)
    said = {"type": kind, "last": last, "x": x, "w": w, "stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    for again in range(2):
        said["forward"], y = asked(lambda: torch.ops.aten.convolution(a, b, None, *rest))
        said["y"] = list(y.shape)
        g = torch.empty_like(y)
        for name, mask in (("input", [True, False, False]), ("weight", [False, True, False])):
            said[name], _ = asked(lambda: torch.ops.aten.convolution_backward(g, a, b, None, *rest, mask))
    return said


def of_models():
    for batch in (2048, 512):
        sides = [(128, 1024, 4, 1, 0, 4), (1024, 512, 4, 2, 1, 8), (512, 256, 4, 2, 1, 16), (256, 128, 4, 2, 1, 32), (128, 64, 4, 2, 1, 64), (64, 3, 4, 2, 1, 128)]
        for a, b, r, stride, padding, side in sides:
            for n in (batch, 64):
                yield "float", False, [n, b, side, side], [a, b, r, r], stride, padding, 1, 1
        yield "float", False, [batch, 1024, 4, 4], [1, 1024, 4, 4], 1, 0, 1, 1
    for a, b in ((4, 256), (256, 256), (256, 512), (512, 512), (512, 768), (768, 768), (1536, 768), (1280, 512), (1024, 512), (768, 512), (768, 256), (512, 256), (256, 4)):
        for side in (64, 32, 16, 8):
            for r, stride in ((3, 1), (1, 1), (3, 2)):
                yield "bfloat16", False, [16, a, side, side], [b, a, r, r], stride, r // 2, 1, 1


def drawn():
    while True:
        kind = random.choice(("float", "float", "half", "bfloat16"))
        last = random.random() < 0.3
        n = random.choice((1, 2, 4, 8, 16, 16, 32, 64, 128, 256, 512, 2048))
        dims = random.choice((2,) * 9 + (3,))
        side = [random.choice(SIDES)] * dims
        if random.random() < 0.15:
            side = [random.choice(SIDES) for _ in range(dims)]
        r = random.choice((1, 2, 3, 3, 3, 3, 4, 4, 5, 7))
        c, k = random.choice(CHANNELS), random.choice(CHANNELS)
        groups = 1
        if random.random() < 0.15:
            groups = random.choice([g for g in (2, 4, 8, 32, c) if c % g == 0 and k % g == 0] or [1])
        yield kind, last, [n, c, *side], [k, c // groups, *[r] * dims], random.choice((1, 1, 1, 2, 2, 4)), random.choice((0, r // 2, 1)), random.choice((1,) * 9 + (2,)), groups


def fits(kind, x, w, stride, padding, dilation):
    size = 4 if kind == "float" else 2
    y = [(s + 2 * padding - dilation * (w[2] - 1) - 1) // stride + 1 for s in x[2:]]
    if min(y) < 1:
        return False
    inside, outside, kernel = x[0] * x[1], x[0] * w[0], w[0] * w[1]
    for s, t, r in zip(x[2:], y, w[2:]):
        inside, outside, kernel = inside * s, outside * t, kernel * r
    work = outside * kernel / w[0]
    return max(inside, outside) * size < 0.7 * GiB and work < 4e11


def against(paths):
    """Shares of the workspaces that differ from the card's by at most 5 % of the size of input, weight and result."""
    found = collections.defaultdict(list)
    for line in (line for path in paths for line in open(path)):
        card = json.loads(line)
        if "forward" not in card:
            continue
        size = 4 if card["type"] == "float" else 2
        tensors = sum(math.prod(card[t]) * size for t in "xwy")
        if tensors < 16 << 20:
            continue
        here = measured(*(card[k] for k in ("type", "last", "x", "w", "stride", "padding", "dilation", "groups")))
        kind = "groups" if card["groups"] > 1 else ("float" if size == 4 else "half") + (", channels last" if card["last"] else "")
        for what in ("forward", "input", "weight"):
            near = abs(sum(card[what][1:]) - sum(here[what][1:])) <= 0.05 * tensors
            found[kind].append(near)
            found["all"].append(near)
        torch.cuda.empty_cache()
    for kind, near in sorted(found.items()):
        print(f"{kind}: {100 * sum(near) / len(near):.1f} % of {len(near)}")


def main():
    if sys.argv[1] == "--against":
        return against(sys.argv[2:])
    path, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.backends.cudnn.benchmark = "--benchmark" in sys.argv
    random.seed(seed)
    until = time.monotonic() + seconds
    if seed == 0:
        print(torch.__version__, torch.backends.cudnn.version(), torch.cuda.get_device_name(), flush=True)
    with open(path, "a") as out:
        first = list(of_models()) if seed == 0 else []
        for case in first:
            out.write(json.dumps(measured(*case)) + "\n")
        for case in drawn():
            if time.monotonic() > until:
                break
            kind, last, x, w, stride, padding, dilation, groups = case
            if not fits(kind, x, w, stride, padding, dilation):
                continue
            try:
                out.write(json.dumps(measured(*case)) + "\n")
                out.flush()
            except RuntimeError as error:
                out.write(json.dumps({"case": case, "error": str(error)[:200]}) + "\n")
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
