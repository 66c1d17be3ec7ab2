"""Five variants of one training step, three runs of each, and what `strandline diff` says of them: tests/gpu/diff_ranks.sh calls it.

    diff_ranks.py CARRY OUT [--python PYTHON] [--simulated]
    diff_ranks.py step VARIANT SEED WIDTH      one run: prints PyTorch's own peak
"""

import json
import os
import subprocess
import sys

VARIANTS = ("base", "checkpointed", "renamed", "wider", "keeps")
SEEDS = (1, 2, 3)
STEPS = 24
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def step(variant, seed, width):
    """A run of a variant: a small transformer with batches of a length that the seed decides."""
    import random

    import torch
    from torch.utils.checkpoint import checkpoint

    random.seed(seed)
    layers = [torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True).cuda() for _ in range(6)]
    optimizer = torch.optim.AdamW([p for layer in layers for p in layer.parameters()], foreach=False)
    kept = []

    def loss_of(batch):
        hidden = batch
        for layer in layers:
            hidden = checkpoint(layer, hidden, use_reentrant=False) if variant == "checkpointed" else layer(hidden)
        return hidden.square().mean()

    def loss_of_renamed(tokens):
        # The patch without effect: other names, and a function of its own.
        def through(x):
            for block in layers:
                x = block(x)
            return x

        return through(tokens).square().mean()

    for _ in range(STEPS):
        rows = 16 if variant == "wider" else 8
        length = 248 + random.randrange(9)
        batch = torch.randn(rows, length, width, device="cuda")
        loss = (loss_of_renamed if variant == "renamed" else loss_of)(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if variant == "keeps":
            kept.append(batch)
    print(torch.cuda.max_memory_allocated())


def main():
    from carried import asked

    args, _, c = asked(__doc__, ["all"])
    width = "64" if args.simulated else "512"
    runs = os.path.join(c.work, "runs")
    peaks = {v: [] for v in VARIANTS}
    # The base is the first by name.
    name = {v: f"{i}-{v}" for i, v in enumerate(VARIANTS)}
    for variant in VARIANTS:
        for seed in SEEDS:
            out = os.path.join(runs, f"{name[variant]}-{seed}")
            words = [c.command, "run", "--quiet", "-o", out, "--", c.python, os.path.abspath(__file__), "step", variant, str(seed), width]
            ran = subprocess.run(words, env=c.environment(), capture_output=True, text=True, check=True)
            peaks[variant].append(int(ran.stdout.split()[-1]))

    def diff(*more):
        return subprocess.run([c.command, "diff", runs, *more], env=c.environment(), capture_output=True, text=True)

    text, told = diff().stdout, json.loads(diff("--format", "json").stdout)
    print(text)
    with open(os.path.join(c.work, "diff.html"), "w") as page:
        page.write(diff("--format", "html").stdout)
    rows = {v["name"]: v for v in told["variants"]}
    c.check("each variant has its three runs", [n for n in name.values() if len(rows.get(n, {}).get("runs", [])) != 3])
    ours = {v: [r["peak_bytes"] for r in rows[name[v]]["runs"]] for v in VARIANTS}
    c.check("peaks are PyTorch's own", [f"{v}: {ours[v]}, PyTorch says {peaks[v]}" for v in VARIANTS if sorted(ours[v]) != sorted(peaks[v])])
    middle = {v: sorted(peaks[v])[1] for v in VARIANTS}
    saved = middle["base"] - middle["checkpointed"]
    figures = ", ".join(f"{v} {middle[v] / 2**20:.0f} MiB" for v in VARIANTS)
    order = [v["name"] for v in told["variants"]]
    expected = [name[v] for v in ("base", "checkpointed", "renamed", *sorted(("wider", "keeps"), key=middle.get))]
    c.check("the best first, the worst last", [] if order == expected else [f"{order}, not {expected}"], figures)
    effects = {"base": "base", "checkpointed": "saved", "renamed": "no_measurable_effect", "wider": "worse", "keeps": "worse"}
    wrong = [f"{v}: {rows[name[v]]['effect']}, not {e}" for v, e in effects.items() if rows[name[v]]["effect"] != e]
    c.check("each effect is called what it is", wrong)
    c.check("what is saved is what PyTorch's peaks say", [] if rows[name["checkpointed"]]["saved_bytes"] == saved > 0 else [f"{saved} bytes"])
    batch = rows[name["keeps"]]["growth_bytes_per_step"]
    each = 8 * 252 * int(width) * 4
    c.check("the growth of the one that keeps its batches", [] if abs(batch / each - 1) < 0.1 else [f"{batch} bytes a step, {each} are kept"])
    gate = diff("--fail-if-worse", "2%")
    wrong = [] if gate.returncode == 85 and name["renamed"] not in gate.stderr else [f"status {gate.returncode}: {gate.stderr}"]
    c.check("--fail-if-worse names the two that are worse", wrong + [v for v in ("wider", "keeps") if name[v] not in gate.stderr])
    c.end("diff_ranks")


if sys.argv[1] == "step":
    step(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    main()
