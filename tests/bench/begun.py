"""What recording adds to an allocation-heavy step, each process compared with itself: before it was recorded, and after it has begun.

    begun.py --library LIBSTRANDLINE [--command STRANDLINE] [--groups 24] [--seconds 480] [--stacks python[,none,both]] [--torch] [--out FILE.json]

No two processes are alike: where things lie in memory makes steps of one 5 % longer than those of another, more than recording adds.
A *group* is two processes that do the same steps in turns, of which one is recorded from the middle of the time on, by
`strandline.start()`, whose hooks and tracker are those of the preload; before, nothing of strandline is in it. A round is as in overhead.py:
turns of two steps in an order drawn anew, the first step of a turn not counted, all on one processor; its value is the lower quartile of
one's steps against that of the other's. What recording adds, by a group: the mean of its rounds after against the mean before (of
logarithms). Said of all groups: the Hodges-Lehmann estimate, and the 95 % bounds to both sides by the signed-rank distribution.
The same by medians of steps and by the least ones, and of the two halves of the rounds after: whether it grows.

--stacks: of more than one, groups have one after the other.
--command: what the recordings tell of their own cost, a step, beside what they have added to one: PASS, FAIL or OPEN, too.
--torch: of every fourth group it is torch's own history (stacks="python") that begins: the same measure of a known cost.
"""

import argparse
import json
import math
import os
import random
import statistics
import tempfile
import time

from overhead import ENOUGH, centre, settle, started, told_by

WORK, WARM = ("heavy", 2), ("heavy", 20)
VALUES = {"lower quartile": lambda v: sorted(v)[len(v) // 4], "median": statistics.median, "least": min}


def added(group, value, after=slice(None)):
    """What recording adds in a group, as a share."""
    ratios = [[math.log(value(s["late"]) / value(s["nothing"])) for s in half] for half in (group.before, group.after[after])]
    return math.exp(statistics.mean(ratios[1]) - statistics.mean(ratios[0])) - 1


def say(name, groups, results):
    groups = [g for g in groups if g.before and len(g.after) > 1]
    if len(groups) < 2:
        return print(f"{name}: too few groups")
    rounds = [len(g.before) + len(g.after) for g in groups]
    alone = statistics.median(x for g in groups for s in g.before + g.after for x in s["nothing"])
    print(f"{name}: {len(groups)} groups, {min(rounds)} to {max(rounds)} rounds each, a step of {alone:.2f} ms")
    rows = results.setdefault(name, {})
    for what, value in VALUES.items():
        shares = [added(g, value) for g in groups]
        middle, low, high = centre(shares)
        rows[what] = {"share": middle, "share_5": low, "share_95": high, "groups": shares}
        print(f"  {what:16}{middle:+8.2%}  ({low:+.2%} to {high:+.2%})", flush=True)
    quartile = VALUES["lower quartile"]
    half = lambda which: centre([added(g, quartile, slice(*((0, len(g.after) // 2), (len(g.after) // 2, None))[which])) for g in groups])[0]
    print(f"  of the rounds after, the first half {half(0):+.2%}, the second {half(1):+.2%}")
    rows["rounds"] = [{"before": g.before, "after": g.after} for g in groups]
    told = [g.told / 1e3 for g in groups if g.told]
    if told and rows["lower quartile"]["share"] > 0:
        real, low, high = (rows["lower quartile"][what] * alone * 1e3 for what in ("share", "share_5", "share_95"))
        rows["told_us"], middle = told, statistics.median(told)
        state = "PASS" if real / 2 <= middle <= 2 * real else "OPEN" if low / 2 <= middle <= 2 * high else "FAIL"
        print(f"  {state}  told of a step, within 2x of the measured: {middle:.0f} µs ({min(told):.0f} to {max(told):.0f}),"
              f" measured {real:.0f} ({low:.0f} to {high:.0f}): {middle / real:.2f} of it")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", required=True, help="libstrandline.so")
    p.add_argument("--command", help="strandline: what recordings say of their own cost is read with it")
    p.add_argument("--groups", type=int, default=24)
    p.add_argument("--seconds", type=float, default=480, help="for all of it")
    p.add_argument("--turns", type=int, default=8, help="of each process in a round")
    p.add_argument("--stacks", default="python", type=lambda text: text.split(","), help="of none, python, native, both")
    p.add_argument("--torch", action="store_true", help="torch's history begins in every fourth group")
    p.add_argument("--out", help="all figures as JSON")
    options = p.parse_args()
    begun, results, processors = time.monotonic(), {}, os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as folder:
        groups = started(options, [["nothing", "late"]] * options.groups, folder)
        try:
            every = [(g, m) for g in groups for m in g.modes]
            # After the beginning, too: a ring's pages are new to the process once.
            warm = lambda: [g.hear(WARM, m) for g, m in every if not g.say(WARM, m)]
            warm()
            print(f"{2 * len(groups)} processes are ready after {time.monotonic() - begun:.0f} s", flush=True)
            middle = time.monotonic() + (begun + options.seconds * 0.97 - time.monotonic()) / 2
            for phase, until in (("before", middle), ("after", begun + options.seconds * 0.97)):
                for g in groups:
                    setattr(g, phase, [])
                while time.monotonic() < until:
                    for g in random.sample(groups, len(groups)):
                        if time.monotonic() < until:
                            settle([g], processors)
                            g.round(WORK, options.turns)
                            getattr(g, phase).append(g.steps[WORK].pop())
                if phase == "before":
                    for i, g in enumerate(groups):
                        g.stacks = "torch" if options.torch and i % 4 == 3 else options.stacks[i % len(options.stacks)]
                        g.recording, g.asked["late"] = os.path.join(folder, f"{i}.strand"), 0
                        library = os.path.abspath(options.library) if g.stacks != "torch" else g.stacks
                        g.ask(("record", library, g.recording, g.stacks), "late")
                    warm()
        finally:
            [g.end() for g in groups]
            for g in groups:
                g.gone(options)
        for g in groups:
            # Its model was made before: of the steps that were asked for, three were not done.
            g.told = told_by(options, g.recording)["told"] / (g.asked["late"] - 3) * 1e9 if options.command and g.stacks != "torch" else None
    ours = "strandline, --stacks {}".format
    for stacks in options.stacks:
        say(ours(stacks), [g for g in groups if g.stacks == stacks], results)
    if options.torch:
        say('torch, stacks="python"', [g for g in groups if g.stacks == "torch"], results)
    r = results.get(ours("python"), {}).get("lower quartile")
    if r and len(r["groups"]) >= ENOUGH:
        state = "PASS" if r["share_95"] <= 0.04 else "FAIL" if r["share_5"] > 0.04 else "OPEN"
        print(f"  {state}  heavy step, Python stacks: bound +4 %, goal +2 %: {r['share']:+.2%} ({r['share_5']:+.2%} to {r['share_95']:+.2%})")
    print(f"{time.monotonic() - begun:.0f} s", flush=True)
    if options.out:
        with open(options.out, "w") as f:
            json.dump(results, f)


main()
