"""What recording adds, with PyTorch's own history beside it: every mode in a process of its own, interleaved in rounds.

    overhead.py --library LIBSTRANDLINE [--command STRANDLINE] [--rounds 20] [--only pair,heavy,large] [--out FILE.json]

Modes: nothing · torch's history with stacks="python" and "all" · strandline with --stacks none, python, native, both.
Works: an alloc/free pair of 4 KiB at Python depths 5, 23 and 100 (the least of 15 repetitions, ns); a step with about 1,000
allocations; a step of a transformer of 1.1 B parameters made from a config (`large`: for a real card).
Said of each mode: what it adds to the same round's `nothing`, the median of the rounds and the upper 95 % bound of that
median (from order statistics, no distribution assumed); bytes of recording per allocator trace entry; dirty memory added.

    overhead.py --worker WORK MODE …     one measurement, as JSON (the rounds are made of these)
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

TORCH = {"torch_python": "python", "torch_all": "all"}
OURS = {"none": "none", "python": "python", "native": "native", "both": "both"}
MODES = ["nothing", *TORCH, *OURS]
DEPTHS = [5, 23, 100]


# ---- one measurement -------------------------------------------------------------------------------------------------

def pairs(n):
    import torch
    empty, device, clock = torch.empty, torch.device("cuda"), time.perf_counter_ns
    start = clock()
    for _ in range(n):
        empty(1024, device=device)
    return (clock() - start) / n


def at_depth(depth, n):
    return pairs(n) if depth <= 0 else at_depth(depth - 1, n)


def pair(depth, n, repetitions=15):
    """Nanoseconds of a pair."""
    import torch
    keep = torch.empty(1024, device="cuda")
    best = min(at_depth(int(depth) - 3, int(n)) for _ in range(repetitions))
    del keep
    return best


def steps(model, batch, loss_of, count):
    """Milliseconds of a step, the median."""
    import torch
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)
    times = []
    for i in range(int(count) + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, batch).backward()
        optimizer.step()
        torch.cuda.synchronize()
        if i >= 3:
            times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def heavy(count):
    import torch
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.1)
    model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda()
    return steps(model, torch.randn(4, 64, 256, device="cuda"), lambda m, x: m(x).square().mean(), count)


def large(count):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
                         num_key_value_heads=4, vocab_size=32000)
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to("cuda", torch.bfloat16)
    batch = torch.randint(0, 32000, (4, 1024), device="cuda")
    return steps(model, batch, lambda m, x: m(input_ids=x, labels=x).loss, count)


WORKS = {"pair": pair, "heavy": heavy, "large": large}


def dirty():
    """Bytes of this process that nobody else pays for, and what it has of memory files."""
    with open("/proc/self/smaps_rollup") as f:
        rows = dict(line.split(":") for line in f if ":" in line and "-" not in line.split(":")[0])
    return sum(int(rows.get(k, "0").split()[0]) * 1024 for k in ("Private_Dirty", "Pss_Shmem"))


def worker(work, mode, *arguments):
    import torch
    torch.cuda.init()
    if mode in TORCH:
        torch.cuda.memory._record_memory_history("all", stacks=TORCH[mode], max_entries=100_000)
    value = WORKS[work](*arguments)
    stats = torch.cuda.memory_stats()
    entries = stats["allocation.all.allocated"] + 2 * stats["allocation.all.freed"]
    print(json.dumps({"value": value, "entries": entries, "dirty": dirty()}))


# ---- rounds of them --------------------------------------------------------------------------------------------------

def measure(options, work, mode, arguments, folder):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_") or "_SIM_" in k}
    recording = os.path.join(folder, f"{mode}.strand")
    if mode in OURS:
        environment.update(LD_PRELOAD=os.path.abspath(options.library), STRANDLINE_STACKS=OURS[mode],
                           STRANDLINE_OUT=recording, STRANDLINE_QUIET="1")
    command = [sys.executable, os.path.abspath(__file__), "--worker", work, mode, *map(str, arguments)]
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    result = json.loads(out)
    if os.path.exists(recording):
        result["bytes"] = os.path.getsize(recording)
        if options.command:
            report = subprocess.run([options.command, "report", recording, "--format", "json"], stdout=subprocess.PIPE, check=True)
            process = json.loads(report.stdout)["processes"][0]
            result["lost"], result["cost"] = process["events_lost"], process["cost"]
        os.remove(recording)
    return result


def bound(values):
    """The upper 95 % confidence bound of the median: an order statistic, by the binomial distribution."""
    values, n = sorted(values), len(values)
    below = 0.0
    for k in range(n):
        below += math.comb(n, k) / 2**n
        if below >= 0.95:
            return values[min(k, n - 1)]
    return values[-1]


def summary(rounds):
    rows = {}
    for mode in MODES[1:]:
        added = [r[mode]["value"] - r["nothing"]["value"] for r in rounds]
        share = [r[mode]["value"] / r["nothing"]["value"] - 1 for r in rounds]
        row = {"added": statistics.median(added), "added_95": bound(added), "share": statistics.median(share), "share_95": bound(share)}
        row["dirty_bytes"] = statistics.median(r[mode]["dirty"] - r["nothing"]["dirty"] for r in rounds)
        if mode in OURS:
            row["bytes_per_entry"] = statistics.median(r[mode]["bytes"] / r[mode]["entries"] for r in rounds)
            told = [r[mode]["cost"]["step_time_fraction"] for r in rounds if r[mode].get("cost")]
            row["told_fraction"] = statistics.median(t for t in told if t is not None) if any(told) else None
            row["lost"] = sum(r[mode].get("lost", 0) for r in rounds)
        rows[mode] = row
    return {"nothing": statistics.median(r["nothing"]["value"] for r in rounds), "rounds": len(rounds), "modes": rows}


def show(name, unit, s):
    print(f"\n{name}: {s['nothing']:.4g} {unit} with nothing, {s['rounds']} rounds")
    print(f"  {'mode':14}{'added ' + unit:>12}{'95 % bound':>12}{'share':>9}{'bound':>9}{'told':>9}{'B/entry':>9}{'MiB dirty':>11}{'lost':>7}")
    for mode, r in s["modes"].items():
        mine = mode in OURS
        told = f"{r['told_fraction']:.2%}" if mine and r["told_fraction"] is not None else ""
        size = f"{r['bytes_per_entry']:.1f}" if mine else ""
        print(f"  {mode:14}{r['added']:12.4g}{r['added_95']:12.4g}{r['share']:9.1%}{r['share_95']:9.1%}{told:>9}{size:>9}"
              f"{r['dirty_bytes'] / 2**20:11.1f}{r['lost'] if mine else '':>7}", flush=True)


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(*sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", required=True, help="libstrandline.so")
    p.add_argument("--command", help="strandline: what recordings say of their own cost is read with it")
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--only", default="pair,heavy", help="of pair, heavy, large")
    p.add_argument("--pairs", type=int, default=3000, help="in a repetition")
    p.add_argument("--steps", type=int, default=30, help="in a process")
    p.add_argument("--out", help="all figures as JSON")
    options = p.parse_args()
    works = []
    for work in options.only.split(","):
        works += [("pair", d) for d in DEPTHS] if work == "pair" else [(work, options.steps)]
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for work, n in works:
            arguments = (n, options.pairs) if work == "pair" else (n,)
            rounds = []
            for _ in range(options.rounds):
                order = random.sample(MODES, len(MODES))
                rounds.append({mode: measure(options, work, mode, arguments, folder) for mode in order})
            name = f"pair, {n} frames deep" if work == "pair" else f"{work} step"
            results[name] = summary(rounds) | {"all": rounds}
            show(name, "ns" if work == "pair" else "ms", results[name])
    if options.out:
        with open(options.out, "w") as f:
            json.dump(results, f)


main()
