"""What recording adds, with PyTorch's own history beside it in the same run, and whether that is as little as is promised.

    overhead.py --library LIBSTRANDLINE [--command STRANDLINE] [--parts pairs,heavy,told,threads,large] [--seconds 420] [--out FILE.json]

Modes: nothing · passed (the library is loaded and told to pass everything through: STRANDLINE_DISABLE) · torch's history with
stacks="python" and "all" · strandline with --stacks none, python, native, both.

A *group* is a process of each mode. Of a group one process works at a time, in turns of some steps, in an order drawn anew for every
turn; the first step of a turn does not count. Where there are eight processors or more, all that work share two, those that are quickest as a
round begins, and the threads that write recordings have the others. The value of a *round* is the lower quartile of a mode's steps in
it (of pairs: the least of its turns), against that of `nothing` in the same round: what else a machine does only ever adds. No two processes are alike
(where things lie in memory), so there are many groups: 20 and more of nothing, passed and python; a few that have all modes.
Said of each mode: the median over groups of what it adds, and the upper 95 % bound of that median, from order statistics, no
distribution assumed; over all rounds, where there are fewer than 20 groups. At the end: each promise, PASS, FAIL, or OPEN where the noise is too wide to tell.

    overhead.py --worker WORK MODE …     one work in a process of its own, as JSON
    overhead.py --serve MODE             works as they are asked for, one a line on stdin, their values on stdout
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

from works import TORCH, WORKS, begin

OURS = {"none": "none", "python": "python", "native": "native", "both": "both"}
MODES = ["nothing", "passed", *TORCH, *OURS]
LEAN = ["nothing", "passed", "python"]
DEPTHS = [5, 23, 100]
ENOUGH = 20  # groups, or rounds, for a bound


def dirty():
    """Bytes of this process that nobody else pays for, and what it has of memory files."""
    with open("/proc/self/smaps_rollup") as f:
        rows = dict(line.split(":") for line in f if ":" in line and "-" not in line.split(":")[0])
    return sum(int(rows.get(k, "0").split()[0]) * 1024 for k in ("Private_Dirty", "Pss_Shmem"))


def worker(work, mode, *arguments):
    import torch
    start = time.perf_counter()
    begin(mode)
    values = WORKS[work](*arguments)
    stats, (free, total) = torch.cuda.memory_stats(), torch.cuda.mem_get_info()
    entries = stats["allocation.all.allocated"] + 2 * stats["allocation.all.freed"]
    print(json.dumps({"value": statistics.median(values), "entries": entries, "dirty": dirty(), "used": total - free,
                      "seconds": time.perf_counter() - start}))


def serve(mode):
    begin(mode)
    for line in sys.stdin:
        work, *arguments = line.split()
        print(json.dumps(WORKS[work](*arguments)), flush=True)


# ---- groups of processes ---------------------------------------------------------------------------------------------

def start(options, mode, folder, *words, **pipes):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_") or "_SIM_" in k}
    recording = tempfile.mktemp(f"-{mode}.strand", dir=folder)
    if mode == "passed":
        environment.update(LD_PRELOAD=os.path.abspath(options.library), STRANDLINE_DISABLE="1")
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
            begun = time.perf_counter()
            sum(range(50_000))
            took[cpu] = min(took[cpu], time.perf_counter() - begun)
    os.sched_setaffinity(0, processors)
    first, *others = sorted(processors, key=took.get)
    return first, next(cpu for cpu in others if cpu // 2 != first // 2)


class Group:
    """A process of each mode, and what they have told: by work a list of rounds, each a value by mode."""

    def __init__(self, options, modes, folder):
        self.modes, self.rounds = modes, {}
        self.processes = {m: start(options, m, folder, "--serve", m, stdin=subprocess.PIPE) for m in modes}

    def say(self, words, mode):
        process = self.processes[mode][0]
        process.stdin.write(" ".join(map(str, words)) + "\n")
        process.stdin.flush()

    def hear(self, words, mode):
        answer = self.processes[mode][0].stdout.readline()
        if not answer:
            raise RuntimeError(f"{' '.join(map(str, words))} has failed in {mode}")
        return json.loads(answer)

    def ask(self, words, mode):
        self.say(words, mode)
        return self.hear(words, mode)

    def round(self, work, turns):
        told = {m: [] for m in self.modes}
        for _ in range(turns):
            for mode in random.sample(self.modes, len(self.modes)):
                told[mode] += self.ask(work, mode)
        value = min if work[0] == "pair" else lambda v: sorted(v)[len(v) // 4]
        self.rounds.setdefault(work, []).append({m: value(v) for m, v in told.items()})

    def end(self):
        for process, recording in self.processes.values():
            try:
                process.stdin.close()
            except OSError:
                pass  # it has died, and was asked all the same
            process.wait()
            if os.path.exists(recording):
                os.remove(recording)


def settle(groups, processors):
    """All that work share two processors, the quickest just now; the threads that write recordings have the others."""
    if len(processors) < 8:
        return
    chosen = quickest(processors)
    for process, _ in (p for g in groups for p in g.processes.values()):
        for thread in os.listdir(f"/proc/{process.pid}/task"):
            try:
                with open(f"/proc/{process.pid}/task/{thread}/comm") as f:
                    ours = f.read().startswith("strandline")
                os.sched_setaffinity(int(thread), processors - set(chosen) if ours else chosen)
            except OSError:
                pass  # it has ended


def wave(options, kinds, works, rounds, turns, folder, deadline):
    """Groups that are alive together, each of the modes given, and what they did: rounds until the deadline, one at least."""
    processors = os.sched_getaffinity(0)
    groups = [Group(options, modes, folder) for modes in kinds]
    try:
        for work in works:  # models are made, caches are warm; all at once
            asked = [(g, m) for g in groups for m in g.modes if work[0] != "pair" or len(g.modes) > len(LEAN)]
            [g.say(work, m) for g, m in asked]
            [g.hear(work, m) for g, m in asked]
        for number in range(rounds):
            for group in random.sample(groups, len(groups)):
                settle(groups, processors)
                for work in works:
                    if (work[0] != "pair" or len(group.modes) > len(LEAN)) and (number == 0 or time.monotonic() < deadline):
                        group.round(work, turns)
    finally:
        [g.end() for g in groups]
    return groups


# ---- what it says ----------------------------------------------------------------------------------------------------

def bound(values, upper=True):
    """The 95 % confidence bound of the median: an order statistic, by the binomial distribution."""
    values, n = sorted(values, reverse=not upper), len(values)
    below = 0.0
    for k in range(n):
        below += math.comb(n, k) / 2**n
        if below >= 0.95:
            return values[k]
    return values[-1]


def added(groups, work, mode):
    """What a mode adds: in units, and as a share, each with its bounds; and of how many groups and rounds that is."""
    each = [[(r[mode] - r["nothing"], r[mode] / r["nothing"] - 1) for r in g.rounds[work] if mode in r]
            for g in groups if work in g.rounds and mode in g.modes]
    each = [rounds for rounds in each if rounds]
    rounds = [r for g in each for r in g]
    medians = [tuple(statistics.median(r[i] for r in g) for i in (0, 1)) for g in each]
    of = medians if len(medians) >= ENOUGH else rounds
    row = {"groups": len(medians), "rounds": len(rounds), "by_group": medians}
    for i, name in enumerate(("added", "share")):
        values = [v[i] for v in of]
        row |= {name: statistics.median(values), f"{name}_95": bound(values), f"{name}_5": bound(values, upper=False)}
    return row


def show(name, unit, groups, work, results):
    bare = [r["nothing"] for g in groups for r in g.rounds.get(work, [])]
    modes = [m for m in MODES[1:] if any(m in g.modes and work in g.rounds for g in groups)]
    print(f"{name}: {statistics.median(bare):.4g} {unit} with nothing\n"
          f"  {'mode':14}{'added ' + unit:>12}{'95 % bound':>12}{'share':>9}{'bound':>9}{'of torch':>10}{'groups':>8}{'rounds':>8}")
    rows, torchs = {}, {"python": "torch_python", "none": "torch_python"}
    for mode in modes:
        r = rows[mode] = added(groups, work, mode)
        beside = rows.get(torchs.get(mode, "torch_all"))
        if mode in OURS and beside:
            r["of_torch"] = r["added"] / beside["added"]
        ratio = f"1/{1 / r['of_torch']:.1f}" if r.get("of_torch", 0) > 0 else ""
        print(f"  {mode:14}{r['added']:12.4g}{r['added_95']:12.4g}{r['share']:9.2%}{r['share_95']:9.2%}{ratio:>10}{r['groups']:8}{r['rounds']:8}", flush=True)
    results[name] = {"nothing": statistics.median(bare), "modes": rows, "all": [g.rounds.get(work, []) for g in groups]}


def alone(options, work, arguments, modes, folder, at_once):
    """A process of each mode that does one work only: all at once, or one after the other."""
    rows, processes = {}, {}
    for mode in modes:
        processes[mode] = start(options, mode, folder, "--worker", work, mode, *arguments)
        if not at_once:
            processes[mode][0].wait()
    for mode, (process, recording) in processes.items():
        out, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{mode}: {work} has failed")
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


def show_told(options, folder, results):
    count = 150
    rows = alone(options, "heavy", [count], ["nothing", *OURS], folder, len(os.sched_getaffinity(0)) >= 8)
    step, pair_of = results.get("heavy step"), results.get("pair, 23 deep")
    steps = count + 4  # three that warm up, and one that is not told
    pairs_a_step = rows["nothing"]["entries"] / 3 / steps
    print(f"{count} heavy steps in a process of their own, {pairs_a_step:.0f} pairs each; ms a step by what the recording tells, measured as above, and by pairs x ns a pair\n"
          f"  {'mode':14}{'told':>8}{'measured':>10}{'pairs':>8}{'of step':>9}{'told/meas.':>12}{'told/pairs':>12}{'hooks':>8}{'B/entry':>9}{'lost':>6}")
    nan = float("nan")
    for mode in OURS:
        r = rows[mode]
        r["told_ms"], r["bytes_an_entry"] = r.get("told", nan) * 1e3 / steps, r["bytes"] / r["entries"]
        real = r["measured_ms"] = step["modes"][mode]["added"] if step and mode in step["modes"] else nan
        by_pairs = r["pairs_ms"] = pairs_a_step * pair_of["modes"][mode]["added"] / 1e6 if pair_of else nan
        print(f"  {mode:14}{r['told_ms']:8.3f}{real:10.3f}{by_pairs:8.3f}{by_pairs / step['nothing'] if step else nan:9.2%}{r['told_ms'] / real:12.2f}"
              f"{r['told_ms'] / by_pairs:12.2f}{r.get('hooks', 0) / steps:8.0f}{r['bytes_an_entry']:9.1f}{r.get('lost', ''):>6}", flush=True)
    results["told"] = rows


def show_threads(options, folder, results):
    rows = alone(options, "threads", [options.pairs], ["nothing", "none", "python", "both"], folder, False)
    say = lambda of, unit: " · ".join(f"{m} {(rows[m][of] - rows['nothing'][of]) / unit:.1f}" for m in rows if m != "nothing")
    print(f"16 threads that allocate, MiB added: dirty memory: {say('dirty', 2**20)}; on the device: {say('used', 2**20)}", flush=True)
    results["threads"] = rows


def promises(results):
    """Each promise: PASS, FAIL or OPEN, with its figures; in brackets the 95 % bounds to both sides."""
    def line(state, what, figures):
        state = {True: "PASS", False: "FAIL", None: "OPEN"}[state]
        results.setdefault("promises", {})[what] = state
        print(f"  {state}  {what:58}{figures}", flush=True)

    def of(part, *path):
        value = results.get(part)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    print("must hold")
    for what, mode, most, goal in (("Python stacks 23 deep: 1/4 of torch's, goal 1/8", "python", 1 / 4, 1 / 8),
                                   ("native stacks: 1/3 of torch's \"all\", goal 1/5", "native", 1 / 3, 1 / 5)):
        ratio = of("pair, 23 deep", "modes", mode, "of_torch")
        line(ratio <= most if ratio else None, what, f"1/{1 / ratio:.1f}{' (goal)' if ratio <= goal else ''}" if ratio else "not measured")
    for what, part, most, goal in (("heavy step, Python stacks: bound +4 %, goal +2 %", "heavy step", 0.04, 0.02),
                                   ("1.1 B step, Python stacks: bound +0.5 %, goal +0.1 %", "large step", 0.005, 0.001)):
        r = of(part, "modes", "python")
        state = None if not r or r["rounds"] < ENOUGH else True if r["share_95"] <= most else False if r["share_5"] > most else None
        line(state, what, f"{r['share']:+.2%} ({r['share_5']:+.2%} to {r['share_95']:+.2%}), {r['groups']} groups, {r['rounds']} rounds"
             + (" (goal)" if state and r["share_95"] <= goal else "") if r else "not measured")
    rows = [r for m, r in (of("told") or {}).items() if m in OURS]
    line(max(r["bytes_an_entry"] for r in rows) <= 8 if rows else None, "bytes of recording per trace entry: 8, goal 5",
         f"{max(r['bytes_an_entry'] for r in rows):.1f}" if rows else "not measured")
    for mode in OURS:
        r = of("told", mode)
        step = of("heavy step", "modes", mode)
        if not r or not step or step["rounds"] < ENOUGH:
            line(None, f"told cost, {mode}: within 2x of the measured", "not measured")
            continue
        low, high = step["added_5"], step["added_95"]
        inside = lambda v: v > 0 and 0.5 <= r["told_ms"] / v <= 2
        can_be = high > 0 and r["told_ms"] <= 2 * high and r["told_ms"] >= 0.5 * max(low, 0)
        line(True if inside(step["added"]) else None if can_be else False, f"told cost, {mode}: within 2x of the measured",
             f"told {r['told_ms']:.3f} ms, measured {step['added']:.3f} ({low:.3f} to {high:.3f})")
    rows = of("threads")
    more = lambda of: max(rows[m][of] - rows["nothing"][of] for m in rows) / 2**20
    line(more("dirty") <= 48 if rows else None, "host memory, 16 threads: 48 MiB, goal 32", f"{more('dirty'):.1f} MiB" if rows else "not measured")
    line(more("used") <= 0 if rows else None, "device memory of ours: 0", f"{more('used'):.1f} MiB" if rows else "not measured")


def small(options, folder, results, deadline, parts):
    works = [("pair", d, options.pairs, 8) for d in DEPTHS if "pairs" in parts] + [("heavy", options.steps)] * ("heavy" in parts)
    groups = wave(options, [MODES] * options.full, works, options.rounds, options.turns, folder, deadline)
    while "heavy" in parts and len(groups) < options.groups and time.monotonic() < deadline:
        many = min(options.alive // len(LEAN), options.groups - len(groups))
        groups += wave(options, [LEAN] * many, works[-1:], 2, options.turns, folder, deadline)
    for work in works:
        name = f"pair, {work[1]} deep" if work[0] == "pair" else "heavy step"
        show(name, "ns" if work[0] == "pair" else "ms", groups, work, results)


def large(options, folder, results, deadline):
    """As many groups at once as the card has room for, twice."""
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"], stdout=subprocess.PIPE, text=True).stdout
        room = int(said.split()[0]) / 1024
    except (OSError, IndexError, ValueError):
        room = 0
    many = max(1, int(room // options.large_size) // 2)
    begun, groups = time.monotonic(), []
    for until in (begun + (deadline - begun) / 2, deadline):
        if not groups or time.monotonic() < deadline:
            groups += wave(options, [["nothing", "python"]] * many, [("large", options.steps)], 100, options.turns, folder, until)
    show("large step", "ms", groups, ("large", options.steps), results)
    print("  python by group: " + " · ".join(f"{share:+.2%}" for _, share in results["large step"]["modes"]["python"]["by_group"]), flush=True)


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(*sys.argv[2:])
    if sys.argv[1:2] == ["--serve"]:
        return serve(*sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", required=True, help="libstrandline.so")
    p.add_argument("--command", help="strandline: what recordings say of their own cost is read with it")
    p.add_argument("--parts", default="pairs,heavy,told,threads", help="of pairs, heavy, told, threads, large")
    p.add_argument("--seconds", type=float, default=420, help="for all of it: later waves and rounds are left out where the time is up")
    p.add_argument("--groups", type=int, default=22, help="groups that do heavy steps")
    p.add_argument("--full", type=int, default=4, help="of them, groups with all modes")
    p.add_argument("--alive", type=int, default=27, help="processes of the other groups that are alive together")
    p.add_argument("--rounds", type=int, default=6, help="of a group with all modes")
    p.add_argument("--turns", type=int, default=3, help="of each mode and work in a round")
    p.add_argument("--pairs", type=int, default=1000, help="in each of the eight loops of a turn")
    p.add_argument("--steps", type=int, default=3, help="in a turn, without the first")
    p.add_argument("--large-size", type=float, default=21.5, help="GiB of the card that a large model takes")
    p.add_argument("--out", help="all figures as JSON")
    options = p.parse_args()
    parts, results, begun = options.parts.split(","), {}, time.monotonic()
    until = lambda share: begun + options.seconds * share
    with tempfile.TemporaryDirectory() as folder:
        for part, run in (("pairs", lambda: small(options, folder, results, until(0.5 if "large" in parts else 0.8), parts)),
                          ("told", lambda: show_told(options, folder, results)), ("threads", lambda: show_threads(options, folder, results)),
                          ("large", lambda: large(options, folder, results, until(0.97)))):
            if part in parts or part == "pairs" and "heavy" in parts:
                try:
                    run()
                except (RuntimeError, OSError, subprocess.CalledProcessError) as e:
                    print(f"{part}: FAILED: {e}", flush=True)
                if options.out:
                    with open(options.out, "w") as f:
                        json.dump(results, f)
    promises(results)
    print(f"{time.monotonic() - begun:.0f} s", flush=True)
    if options.out:
        with open(options.out, "w") as f:
            json.dump(results, f)


main()
