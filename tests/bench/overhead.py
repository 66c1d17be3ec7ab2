"""What recording adds, with PyTorch's own history beside it in the same run, and whether that is as little as is promised.

    overhead.py --library LIBSTRANDLINE [--command STRANDLINE] [--parts pairs,heavy,told,threads,large] [--seconds 420] [--out FILE.json]

Modes: nothing · passed (the library is loaded and told to pass everything through: STRANDLINE_DISABLE) · torch's history with
stacks="python" and "all" · strandline with --stacks none, python, native, both.

A *group* is a process of each of some modes. Of all groups one process works at a time, in turns of some steps, in an order drawn anew for
every other turn and gone through backwards in the one between; the first step of a turn does not count. Where there are eight processors or
more, all that work has one, the quickest as a round begins, and its core for itself; threads that write recordings, and processes that are
still being loaded, have the other half of the cores. The value of a *round* is the lower quartile of a mode's steps in it (of pairs: the least
of its turns), against that of `nothing` in the same round: what else a machine does only ever adds. No two processes are alike (where things
lie in memory), so there are many groups: all modes are in those that do pairs; for heavy steps come 24 more, of nothing, none,
python and one of passed, native and both.
Said of each mode: what it adds, from the medians of groups over their rounds, or from all rounds, where there are fewer than 20 groups:
the Hodges-Lehmann estimate (the median of the means of any two), and its upper 95 % bound by the signed-rank distribution, which takes no more
for granted than that noise adds as often as it takes away. Beside it the same by medians of steps in place of quartiles.
At the end: each promise, PASS, FAIL, or OPEN where the noise is too wide to tell.

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
from concurrent.futures import ThreadPoolExecutor

from works import TORCH, WORKS, begin, begin_late

OURS = {"none": "none", "python": "python", "native": "native", "both": "both"}
MODES = ["nothing", "passed", *TORCH, *OURS]
LEAN = ["nothing", "none", "python"]  # of every group that does heavy steps, and one of these in turn:
BESIDE = ["passed", "native", "passed", "both"]
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
    import torch
    asked = iter(sys.stdin.readline, "")
    for number, line in enumerate(asked):
        if number == 0:
            begin(mode)
        work, *arguments = line.split()
        if work == "record":
            value = begin_late(*arguments)
        elif work == "entries":
            stats = torch.cuda.memory_stats()
            value = stats["allocation.all.allocated"] + 2 * stats["allocation.all.freed"]
        else:
            value = WORKS[work](*arguments)
        print(json.dumps(value), flush=True)


# ---- groups of processes ---------------------------------------------------------------------------------------------

def start(options, mode, folder, *words, **pipes):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_") or "_SIM_" in k}
    environment["PYTHONHASHSEED"] = "0"  # one thing less in which processes differ
    recording = tempfile.mktemp(f"-{mode}.strand", dir=folder)
    if mode == "passed":
        environment.update(LD_PRELOAD=os.path.abspath(options.library), STRANDLINE_DISABLE="1")
    if mode in OURS:
        environment.update(LD_PRELOAD=os.path.abspath(options.library), STRANDLINE_STACKS=OURS[mode],
                           STRANDLINE_OUT=recording, STRANDLINE_QUIET="1")
    command = [sys.executable, os.path.abspath(__file__), *map(str, words)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, **pipes), recording


def halves(processors):
    """The processors of one half of the cores, and those of the other."""
    cores = {}
    for cpu in sorted(processors):
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as f:
                core = f.read().strip()
        except OSError:
            core = str(cpu)
        # Where a machine does not say: neighbours in number are of one core.
        cores.setdefault(core if core != str(cpu) else cpu // 2, set()).add(cpu)
    sets = list(cores.values())
    return set().union(*sets[:len(sets) // 2]), set().union(*sets[len(sets) // 2:])


def quickest(processors, repetitions=3):
    """The processor on which a loop is done soonest just now."""
    took, before = {}, os.sched_getaffinity(0)
    for cpu in processors:
        os.sched_setaffinity(0, [cpu])
        took[cpu] = math.inf
        for _ in range(repetitions):
            begun = time.perf_counter()
            sum(range(50_000))
            took[cpu] = min(took[cpu], time.perf_counter() - begun)
    os.sched_setaffinity(0, before)
    return min(took, key=took.get)


class Group:
    """A process of each mode, and what they have told: by work a list of rounds, each the steps of a mode, and its value by mode."""

    def __init__(self, options, modes, folder):
        self.modes, self.rounds, self.steps, self.asked, self.ends = modes, {}, {}, {m: 0 for m in modes}, {}
        self.processes = {m: start(options, m, folder, "--serve", m, stdin=subprocess.PIPE) for m in modes}

    def say(self, words, mode):
        process = self.processes[mode][0]
        process.stdin.write(" ".join(map(str, words)) + "\n")
        process.stdin.flush()
        if words[0] in ("heavy", "large"):
            self.asked[mode] += words[1] + 1 + (0 if self.asked[mode] else 3)

    def hear(self, words, mode):
        answer = self.processes[mode][0].stdout.readline()
        if not answer:
            raise RuntimeError(f"{' '.join(map(str, words))} has failed in {mode}")
        return json.loads(answer)

    def ask(self, words, mode):
        self.say(words, mode)
        return self.hear(words, mode)

    def round(self, work, turns):
        told, order = {m: [] for m in self.modes}, []
        for turn in range(turns):
            order = order[::-1] if turn % 2 else random.sample(self.modes, len(self.modes))
            for mode in order:
                told[mode] += self.ask(work, mode)
        value = min if work[0] == "pair" else lambda v: sorted(v)[len(v) // 4]
        self.steps.setdefault(work, []).append(told)
        self.rounds.setdefault(work, []).append({m: value(v) for m, v in told.items()})

    def end(self, entries=False):
        """Ends the processes; before, those that did steps say how many entries their allocator had."""
        if entries:
            self.ends = {m: {"entries": self.ask(["entries"], m), "steps": self.asked[m]} for m in self.modes if self.asked[m]}
        for process, recording in self.processes.values():
            try:
                process.stdin.close()
            except OSError:
                pass  # it has died, and was asked all the same

    def gone(self, options):
        """Waits for the end, and reads what recordings tell of their own cost."""
        for mode, (process, recording) in self.processes.items():
            process.wait()
            if os.path.exists(recording):
                if mode in self.ends and process.returncode == 0:
                    self.ends[mode] |= told_by(options, recording)
                os.remove(recording)


def told_by(options, recording):
    row = {"bytes": os.path.getsize(recording)}
    if options.command:
        ask = lambda *words: subprocess.run([options.command, *words], stdout=subprocess.PIPE, text=True, check=True).stdout
        row["lost"] = json.loads(ask("report", recording, "--format", "json"))["processes"][0]["events_lost"]
        said = [line for line in ask("dump", recording).splitlines() if '"timed_ns"' in line][-1]
        cost = json.loads(said[said.index("{"):])["cost"]
        row["told"], row["hooks"] = cost["timed_ns"] * cost["one_in"] / 1e9, cost["timed_hooks"] * cost["one_in"]
    return row


def settle(groups, processors):
    """All that work share a processor, the quickest just now; the threads that write recordings have the other half of the cores."""
    if len(processors) < 8:
        return
    here, others = halves(processors)
    chosen = [quickest(here)]
    for process, _ in (p for g in groups for p in g.processes.values()):
        for thread in os.listdir(f"/proc/{process.pid}/task"):
            try:
                with open(f"/proc/{process.pid}/task/{thread}/comm") as f:
                    ours = f.read().startswith("strandline")
                os.sched_setaffinity(int(thread), others if ours else chosen)
            except OSError:
                pass  # it has ended


def started(options, kinds, folder, aside=False):
    """Groups of the modes given, whose processes begin to load; aside: where they are in nobody's way."""
    processors = os.sched_getaffinity(0)
    if aside and len(processors) >= 8:
        os.sched_setaffinity(0, halves(processors)[1])
    try:
        return [Group(options, modes, folder) for modes in kinds]
    finally:
        os.sched_setaffinity(0, processors)


def wave(options, groups, works, rounds, deadline, halfway=None):
    """What groups that are alive together do: rounds until the deadline, one at least. `halfway` is called halfway."""
    processors, entries, at = os.sched_getaffinity(0), False, time.monotonic()
    try:
        for work in works:  # models are made, caches are warm; all at once
            asked = [(g, m) for g in groups for m in g.modes]
            [g.say(work, m) for g, m in asked]
            [g.hear(work, m) for g, m in asked]
        at = (time.monotonic() + deadline) / 2
        for number in range(rounds):
            for group in random.sample(groups, len(groups)):
                if halfway and time.monotonic() > at:
                    halfway = halfway()
                for work in works:
                    if number == 0 or time.monotonic() < deadline:
                        settle([group], processors)
                        group.round(work, max(1, options.turns // 2) if work[0] == "pair" else options.turns)
        entries = True
    finally:
        [g.end(entries) for g in groups]
        with ThreadPoolExecutor(max(1, len(processors) // 2)) as pool:
            list(pool.map(lambda g: g.gone(options), groups))
    return groups


# ---- what it says ----------------------------------------------------------------------------------------------------

def least_rank(n):
    """How many of the means of any two of n values lie beyond a 95 % bound at least: by the signed-rank distribution."""
    if n > 60:
        return max(0, int(n * (n + 1) / 4 - 1.645 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)))
    ways = [1] + [0] * (n * (n + 1) // 2)  # to make a sum of ranks
    for rank in range(1, n + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    below, k = 0, 0
    while k < len(ways) // 2 and below + ways[k] <= 0.05 * 2**n:
        below, k = below + ways[k], k + 1
    return max(0, k - 1)


def centre(values):
    """The Hodges-Lehmann estimate of what values lie about, and its 95 % bounds to both sides."""
    means = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    k = least_rank(len(values))
    return statistics.median(means), means[k], means[-1 - k]


def added(groups, work, mode):
    """What a mode adds: in units, and as a share, each with its bounds; and of how many groups and rounds that is."""
    middle = lambda r, m: statistics.median(r[m])
    each = [[(r[mode] - r["nothing"], r[mode] / r["nothing"] - 1, middle(s, mode) / middle(s, "nothing") - 1)
             for r, s in zip(g.rounds[work], g.steps[work])] for g in groups if work in g.rounds and mode in g.modes]
    rounds = [r for g in each for r in g]
    medians = [tuple(statistics.median(r[i] for r in g) for i in range(3)) for g in each]
    of = medians if len(medians) >= ENOUGH else rounds
    row = {"groups": len(medians), "rounds": len(rounds), "by_group": medians}
    for i, name in enumerate(("added", "share", "median")):
        row[name], row[f"{name}_5"], row[f"{name}_95"] = centre([v[i] for v in of])
    return row


def show(name, unit, groups, work, results):
    bare = [r["nothing"] for g in groups for r in g.rounds.get(work, [])]
    modes = [m for m in MODES[1:] if any(m in g.modes and work in g.rounds for g in groups)]
    print(f"{name}: {statistics.median(bare):.4g} {unit} with nothing\n"
          f"  {'mode':14}{'added ' + unit:>12}{'95 % bound':>12}{'share':>9}{'bound':>9}{'median':>9}{'of torch':>10}{'groups':>8}{'rounds':>8}")
    rows, torchs = {}, {"python": "torch_python", "none": "torch_python"}
    for mode in modes:
        r = rows[mode] = added(groups, work, mode)
        beside = rows.get(torchs.get(mode, "torch_all"))
        if mode in OURS and beside:
            r["of_torch"] = r["added"] / beside["added"]
        ratio = f"1/{1 / r['of_torch']:.1f}" if r.get("of_torch", 0) > 0 else ""
        print(f"  {mode:14}{r['added']:12.4g}{r['added_95']:12.4g}{r['share']:9.2%}{r['share_95']:9.2%}{r['median']:9.2%}{ratio:>10}{r['groups']:8}{r['rounds']:8}", flush=True)
    results[name] = {"nothing": statistics.median(bare), "modes": rows, "all": [g.rounds.get(work, []) for g in groups],
                     "steps": [g.steps.get(work, []) for g in groups] if work[0] != "pair" else []}


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
            os.remove(recording)
    return rows


def show_told(groups, results):
    """What the recordings of the groups tell that did nothing but heavy steps."""
    rows = {}
    for mode in ("nothing", *OURS):
        ends = [g.ends[mode] for g in groups if mode in g.ends]
        rows[mode] = {k: sum(e[k] for e in ends) for k in ("steps", "entries", "bytes", "lost", "told", "hooks") if ends and all(k in e for e in ends)}
    if not rows["nothing"]:
        raise RuntimeError("no heavy steps were done to their end")
    step, pair_of = results.get("heavy step"), results.get("pair, 23 deep")
    pairs_a_step = rows["nothing"]["entries"] / 3 / rows["nothing"]["steps"]
    print(f"the same heavy steps, {pairs_a_step:.0f} pairs each; ms a step by what recordings tell, measured as above, and by pairs x ns a pair\n"
          f"  {'mode':14}{'told':>8}{'measured':>10}{'pairs':>8}{'of step':>9}{'told/meas.':>12}{'told/pairs':>12}{'hooks':>8}{'B/entry':>9}{'lost':>6}{'steps':>8}")
    nan = float("nan")
    for mode in filter(rows.get, OURS):
        r, steps = rows[mode], rows[mode]["steps"]
        r["told_ms"], r["bytes_an_entry"] = r.get("told", nan) * 1e3 / steps, r["bytes"] / r["entries"]
        real = r["measured_ms"] = step["modes"][mode]["added"] if step and mode in step["modes"] else nan
        by_pairs = r["pairs_ms"] = pairs_a_step * pair_of["modes"][mode]["added"] / 1e6 if pair_of else nan
        print(f"  {mode:14}{r['told_ms']:8.3f}{real:10.3f}{by_pairs:8.3f}{by_pairs / step['nothing'] if step else nan:9.2%}{r['told_ms'] / real:12.2f}"
              f"{r['told_ms'] / by_pairs:12.2f}{r.get('hooks', 0) / steps:8.0f}{r['bytes_an_entry']:9.1f}{r.get('lost', ''):>6}{steps:8}", flush=True)
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
    rows = [r for m, r in (of("told") or {}).items() if m in OURS and r]
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
    """Pairs, and the heavy step beside them, in groups of all modes; then the heavy step in many groups that do nothing else."""
    heavy, begun, groups, many = ("heavy", options.steps), time.monotonic(), [], []
    works = [("pair", d, options.pairs, 8) for d in options.depths if "pairs" in parts] + [heavy] * ("heavy" in parts)
    waves = -(-options.groups // options.alive) if "heavy" in parts else 0
    ahead = []
    kinds = lambda: [LEAN + [BESIDE[(len(many) + i) % len(BESIDE)]] for i in range(min(options.alive, options.groups - len(many)))]

    def load():
        ahead.extend(started(options, kinds(), folder, aside=True))

    try:
        if "pairs" in parts:
            until = begun + (deadline - begun) * (options.share if waves else 1)
            groups += wave(options, started(options, [MODES] * options.full, folder), works, options.rounds, until, load if waves else None)
        for left in range(waves, 0, -1):
            if not ahead and (left < waves and time.monotonic() > deadline):
                break
            now = ahead or started(options, kinds(), folder)
            ahead, many = [], many + now
            until = time.monotonic() + (deadline - time.monotonic()) / left
            wave(options, now, [heavy], 1000, until, load if left > 1 else None)
    finally:
        [g.end() for g in ahead]
        [g.gone(options) for g in ahead]
    for work in works:
        name = f"pair, {work[1]} deep" if work[0] == "pair" else "heavy step"
        show(name, "ns" if work[0] == "pair" else "ms", groups + many, work, results)
    if "told" in parts:
        show_told(many, results)


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
            groups += wave(options, started(options, [["nothing", "python"]] * many, folder), [("large", options.steps)], 100, until)
    show("large step", "ms", groups, ("large", options.steps), results)
    print("  python by group: " + " · ".join(f"{share:+.2%}" for _, share, _ in results["large step"]["modes"]["python"]["by_group"]), flush=True)


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
    p.add_argument("--groups", type=int, default=24, help="groups that do heavy steps only")
    p.add_argument("--alive", type=int, default=8, help="of these, how many are alive together, four processes each")
    p.add_argument("--full", type=int, default=4, help="groups with all modes, which do pairs, too")
    p.add_argument("--share", type=float, default=0.5, help="of the time of pairs and heavy steps, for the groups with all modes")
    p.add_argument("--depths", type=lambda text: [int(d) for d in text.split(",")], default=DEPTHS, help="of pairs")
    p.add_argument("--rounds", type=int, default=6, help="of a group with all modes")
    p.add_argument("--turns", type=int, default=8, help="of each mode in a round, half as many of pairs: turns differ more (5 %% on an H200) than the steps in one (2 %%)")
    p.add_argument("--pairs", type=int, default=1000, help="in each of the eight loops of a turn")
    p.add_argument("--steps", type=int, default=2, help="in a turn, without the first")
    p.add_argument("--large-size", type=float, default=21.5, help="GiB of the card that a large model takes")
    p.add_argument("--out", help="all figures as JSON")
    options = p.parse_args()
    parts, results, begun = options.parts.split(","), {}, time.monotonic()
    until = lambda share: begun + options.seconds * share
    with tempfile.TemporaryDirectory() as folder:
        for part, run in (("pairs", lambda: small(options, folder, results, until(0.5 if "large" in parts else 0.8 if "threads" in parts else 0.92), parts)),
                          ("threads", lambda: show_threads(options, folder, results)),
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


if __name__ == "__main__":
    main()
