"""What recording adds, with PyTorch's own history beside it in the same run: a process per mode, all alive together, of which one
works at a time, in turns of some milliseconds, in an order drawn anew for every turn; all are replaced after some rounds, since no
two processes are alike. Where there are eight processors or more, all that work share two, those that are quickest as a round begins; the
threads that write recordings have the others.

    overhead.py --library LIBSTRANDLINE [--command STRANDLINE] [--rounds 24] [--only pair,heavy,large,threads] [--out FILE.json]

Modes: nothing · torch's history with stacks="python" and "all" · strandline with --stacks none, python, native, both.
Works: an alloc/free pair of 4 KiB at Python depths 5, 23 and 100 (ns); a step with about 1,000 allocations (the median of some, ms);
a step of a transformer of 1.1 B parameters made from a config (`large`: for a real card); host memory with 16 threads that
allocate (`threads`). A round's value is the least of its turns: what else a machine does only ever adds to it.
Said of each mode: what it adds to the same round's `nothing`, the median of the rounds and the upper 95 % bound of that median
(from order statistics, no distribution assumed); for a step also pairs a step x ns a pair, 23 deep. Of a process that does nothing
but heavy steps: what the recording tells of its own cost beside both, bytes of recording per allocator trace entry, dirty memory added.

    overhead.py --worker WORK MODE …     one work in a process of its own, as JSON
    overhead.py --serve MODE             works as they are asked for, one a line on stdin, their values on stdout
"""

import argparse
import gc
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

TORCH = {"torch_python": "python", "torch_all": "all"}
OURS = {"none": "none", "python": "python", "native": "native", "both": "both"}
MODES = ["nothing", *TORCH, *OURS]
DEPTHS = [5, 23, 100]


# ---- works -----------------------------------------------------------------------------------------------------------

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
    best = min(at_depth(int(depth) - 3, int(n)) for _ in range(int(repetitions)))
    del keep
    return best


class Steps:
    def __init__(self, model, batch, loss_of):
        import torch
        self.model, self.batch, self.loss_of = model, batch, loss_of
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)
        [self.step() for _ in range(3)]
        gc.collect()
        gc.disable()  # a collection belongs to no step

    def step(self):
        import torch
        torch.cuda.synchronize()
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_of(self.model, self.batch).backward()
        self.optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3

    def median(self, count):
        """Milliseconds of a step."""
        return statistics.median(self.step() for _ in range(int(count)))


def made_heavy():
    import torch
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.1)
    model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda()
    return Steps(model, torch.randn(4, 64, 256, device="cuda"), lambda m, x: m(x).square().mean())


def made_large():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    small = os.environ.get("BENCH_SMALL")  # to try this program where there is no card
    size = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=4) if small else dict(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=22)
    config = LlamaConfig(num_attention_heads=32, num_key_value_heads=4, vocab_size=32000, **size)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    batch = torch.randint(0, 32000, (4, 1024) if not small else (1, 64), device="cuda")
    return Steps(model, batch, lambda m, x: m(input_ids=x, labels=x).loss)


MADE = {}


def steps(work, count):
    if work not in MADE:
        MADE[work] = {"heavy": made_heavy, "large": made_large}[work]()
    return MADE[work].median(count)


def threads(n):
    """16 threads that allocate at once; 0: only what they leave in memory matters."""
    started = threading.Barrier(16)

    def work():
        started.wait()
        at_depth(20, int(n))

    workers = [threading.Thread(target=work) for _ in range(16)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    return 0


WORKS = {"pair": pair, "heavy": lambda n: steps("heavy", n), "large": lambda n: steps("large", n), "threads": threads}


def dirty():
    """Bytes of this process that nobody else pays for, and what it has of memory files."""
    with open("/proc/self/smaps_rollup") as f:
        rows = dict(line.split(":") for line in f if ":" in line and "-" not in line.split(":")[0])
    return sum(int(rows.get(k, "0").split()[0]) * 1024 for k in ("Private_Dirty", "Pss_Shmem"))


def begin(mode):
    import torch
    torch.cuda.init()
    if mode in TORCH:
        torch.cuda.memory._record_memory_history("all", stacks=TORCH[mode], max_entries=100_000)


def worker(work, mode, *arguments):
    import torch
    start = time.perf_counter()
    begin(mode)
    value = WORKS[work](*arguments)
    stats = torch.cuda.memory_stats()
    entries = stats["allocation.all.allocated"] + 2 * stats["allocation.all.freed"]
    print(json.dumps({"value": value, "entries": entries, "dirty": dirty(), "seconds": time.perf_counter() - start}))


def serve(mode):
    begin(mode)
    for line in sys.stdin:
        work, *arguments = line.split()
        print(WORKS[work](*arguments), flush=True)


# ---- rounds of them --------------------------------------------------------------------------------------------------

def start(options, mode, folder, *words, **pipes):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_") or "_SIM_" in k}
    recording = tempfile.mktemp(f"-{mode}.strand", dir=folder)
    if mode in OURS:
        environment.update(LD_PRELOAD=os.path.abspath(options.library), STRANDLINE_STACKS=OURS[mode],
                           STRANDLINE_OUT=recording, STRANDLINE_QUIET="1")
    command = [sys.executable, os.path.abspath(__file__), *map(str, words)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **pipes), recording


def quickest(processors, repetitions=3):
    """Two processors on which a loop is done soonest just now, not of one core where neighbours in number are."""
    took = {}
    for cpu in processors:
        os.sched_setaffinity(0, [cpu])
        took[cpu] = math.inf
        for _ in range(repetitions):
            start = time.perf_counter()
            sum(range(50_000))
            took[cpu] = min(took[cpu], time.perf_counter() - start)
    os.sched_setaffinity(0, processors)
    first, *others = sorted(processors, key=took.get)
    return first, next(cpu for cpu in others if cpu // 2 != first // 2)


class Generation:
    """A process of each mode, ready to work."""

    def __init__(self, options, modes, folder):
        self.processes = {m: start(options, m, folder, "--serve", m, stdin=subprocess.PIPE) for m in modes}

    def ask(self, words, *modes):
        """The answers of these modes, which work at the same time."""
        processes = [self.processes[m][0] for m in modes]
        for process in processes:
            process.stdin.write(" ".join(map(str, words)) + "\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in processes]
        if not all(answers):
            raise SystemExit(f"{' '.join(map(str, words))} has failed in {' or '.join(m for m, a in zip(modes, answers) if not a)}")
        return [float(a) for a in answers]

    def settle(self, processors):
        """All that work share two processors, the quickest just now; the threads that write recordings have the others."""
        if len(processors) < 8:
            return
        chosen = quickest(processors)
        for process, _ in self.processes.values():
            for thread in os.listdir(f"/proc/{process.pid}/task"):
                try:
                    with open(f"/proc/{process.pid}/task/{thread}/comm") as f:
                        ours = f.read().startswith("strandline")
                    os.sched_setaffinity(int(thread), processors - set(chosen) if ours else chosen)
                except OSError:
                    pass  # it has ended

    def end(self):
        for process, recording in self.processes.values():
            process.stdin.close()
            process.wait()
            if os.path.exists(recording):
                os.remove(recording)


def rounds_of(options, works, modes, folder, deadline):
    """Values by work and mode, one of each round."""
    values, processors = {work: {m: [] for m in modes} for work in works}, os.sched_getaffinity(0)
    left = options.rounds
    while left > 0 and time.monotonic() < deadline:
        generation = Generation(options, modes, folder)
        [generation.ask(work, *modes) for work in works]  # models are made, caches are warm
        for _ in range(min(left, options.lifetime)):
            if time.monotonic() > deadline and len(values[works[0]]["nothing"]) > 0:
                left = 0
                break
            generation.settle(processors)
            least = {work: dict.fromkeys(modes, math.inf) for work in works}
            for work in works * options.turns:
                for mode in random.sample(modes, len(modes)):
                    least[work][mode] = min(least[work][mode], *generation.ask(work, mode))
            for work in works:
                [values[work][mode].append(v) for mode, v in least[work].items()]
            left -= 1
        generation.end()
    return values


def bound(values):
    """The upper 95 % confidence bound of the median: an order statistic, by the binomial distribution."""
    values, n = sorted(values), len(values)
    below = 0.0
    for k in range(n):
        below += math.comb(n, k) / 2**n
        if below >= 0.95:
            return values[min(k, n - 1)]
    return values[-1]


def show(name, unit, values, results):
    bare = values["nothing"]
    print(f"\n{name}: {statistics.median(bare):.4g} {unit} with nothing, {len(bare)} rounds")
    print(f"  {'mode':14}{'added ' + unit:>12}{'95 % bound':>12}{'share':>9}{'bound':>9}{'of torch':>10}")
    rows, torchs = {}, {"python": "torch_python", "none": "torch_python"}
    for mode in [m for m in values if m != "nothing"]:
        added = [v - b for v, b in zip(values[mode], bare)]
        share = [v / b - 1 for v, b in zip(values[mode], bare)]
        r = rows[mode] = {"added": statistics.median(added), "added_95": bound(added),
                          "share": statistics.median(share), "share_95": bound(share)}
        beside = rows.get(torchs.get(mode, "torch_all"))
        ratio = f"1/{beside['added'] / r['added']:.1f}" if mode in OURS and beside and r["added"] > 0 else ""
        print(f"  {mode:14}{r['added']:12.4g}{r['added_95']:12.4g}{r['share']:9.2%}{r['share_95']:9.2%}{ratio:>10}", flush=True)
    results[name] = {"nothing": statistics.median(bare), "rounds": len(bare), "modes": rows, "all": values}


def alone(options, work, arguments, modes, folder):
    """A process of each mode, one after the other, that does one work only."""
    rows = {}
    for mode in modes:
        process, recording = start(options, mode, folder, "--worker", work, mode, *arguments)
        out, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"{mode}: {work} has failed")
        row = rows[mode] = json.loads(out)
        if os.path.exists(recording):
            row["bytes"] = os.path.getsize(recording)
            if options.command:
                ask = lambda *words: subprocess.run([options.command, *words], stdout=subprocess.PIPE, text=True, check=True).stdout
                job = json.loads(ask("report", recording, "--format", "json"))["processes"][0]
                row["lost"] = job["events_lost"]
                said = [line for line in ask("dump", recording).splitlines() if '"timed_ns"' in line][-1]
                cost = json.loads(said[said.index("{"):])["cost"]
                row["told"], row["hooks"] = cost["timed_ns"] * cost["one_in"] / 1e9, cost["timed_hooks"] * cost["one_in"]
            os.remove(recording)
    return rows


def show_alone(options, measured, folder, results):
    count = 50 * options.steps
    ours = [mode for mode in OURS if mode in measured["modes"]]
    rows = alone(options, "heavy", [count], ["nothing", *ours], folder)
    bare, pair_of = results["heavy step"]["nothing"], results.get("pair, 23 frames deep")
    pairs_a_step = rows["nothing"]["entries"] / 3 / (count + 3)
    print(f"\n{count} heavy steps in a process of their own, {pairs_a_step:.0f} pairs each; ms a step by what the recording tells, by the turns, and by "
          "pairs x ns a pair")
    print(f"  {'mode':14}{'told':>8}{'turns':>8}{'pairs':>8}{'of step':>9}{'told/turns':>12}{'told/pairs':>12}{'hooks':>8}{'B/entry':>9}"
          f"{'MiB dirty added':>17}{'lost':>6}")
    for mode in ours:
        r = rows[mode]
        told, real = r.get("told", 0) * 1e3 / (count + 3), measured["modes"][mode]["added"]
        by_pairs = pairs_a_step * pair_of["modes"][mode]["added"] / 1e6 if pair_of else float("nan")
        factors = "".join(f"{told / of if of > 0 else float('nan'):12.2f}" for of in (real, by_pairs))
        print(f"  {mode:14}{told:8.3f}{real:8.3f}{by_pairs:8.3f}{by_pairs / bare:9.2%}{factors}{r.get('hooks', 0) / (count + 3):8.0f}"
              f"{r['bytes'] / r['entries']:9.1f}{(r['dirty'] - rows['nothing']['dirty']) / 2**20:17.1f}{r.get('lost', ''):>6}", flush=True)
    results["heavy steps alone"] = rows


def show_threads(options, folder, results):
    rows = alone(options, "threads", [options.pairs], ["nothing", *OURS], folder)
    print("\n16 threads that allocate, MiB of dirty memory added: " + " · ".join(
        f"{m} {(rows[m]['dirty'] - rows['nothing']['dirty']) / 2**20:.1f}" for m in OURS), flush=True)
    results["16 threads"] = rows


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(*sys.argv[2:])
    if sys.argv[1:2] == ["--serve"]:
        return serve(*sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", required=True, help="libstrandline.so")
    p.add_argument("--command", help="strandline: what recordings say of their own cost is read with it")
    p.add_argument("--rounds", type=int, default=24)
    p.add_argument("--turns", type=int, default=6, help="of each mode and work in a round")
    p.add_argument("--lifetime", type=int, default=6, help="rounds of a process")
    p.add_argument("--seconds", type=float, default=1e9, help="begin no round later than this, for each of pair,heavy and large")
    p.add_argument("--only", default="pair,heavy,threads", help="of pair, heavy, large, threads")
    p.add_argument("--modes", default=",".join(MODES))
    p.add_argument("--pairs", type=int, default=2000, help="in a turn")
    p.add_argument("--steps", type=int, default=4, help="in a turn")
    p.add_argument("--out", help="all figures as JSON")
    options = p.parse_args()
    only, modes, results = options.only.split(","), options.modes.split(","), {}
    with tempfile.TemporaryDirectory() as folder:
        works = [("pair", d, options.pairs, 1) for d in DEPTHS if "pair" in only] + [("heavy", options.steps)] * ("heavy" in only)
        for group in [works, [("large", options.steps)] * ("large" in only)]:
            values = rounds_of(options, group, modes, folder, time.monotonic() + options.seconds) if group else {}
            for work, of_modes in values.items():
                name = f"pair, {work[1]} frames deep" if work[0] == "pair" else f"{work[0]} step"
                show(name, "ns" if work[0] == "pair" else "ms", of_modes, results)
        if "heavy" in only:
            show_alone(options, results["heavy step"], folder, results)
        if "threads" in only:
            show_threads(options, folder, results)
    if options.out:
        with open(options.out, "w") as f:
            json.dump(results, f)


main()
