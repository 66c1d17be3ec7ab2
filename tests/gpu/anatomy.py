"""Compares what `anatomy.sh` recorded with what its jobs said of themselves; a line for each, PASS or FAIL.

    anatomy.py STRANDLINE WORK MODEL…
"""

import json
import pathlib
import subprocess
import sys

MIB, GIB = 1 << 20, 1 << 30
# What the anatomy finds within torch's own memory.
TORCHS = ("weights", "gradients", "optimizer", "activations", "temporaries", "left_behind", "other", "pending", "cached")
strandline, work = sys.argv[1], pathlib.Path(sys.argv[2])
failed = 0


def report(name, *options):
    words = [strandline, "report", work / name, "--format", "json", *options]
    told = subprocess.run(words, capture_output=True, text=True)
    if told.returncode:
        raise RuntimeError(told.stderr.strip() or f"report ended with {told.returncode}")
    return json.loads(told.stdout)


def line(name, good, text):
    global failed
    failed += not good
    print("PASS" if good else "FAIL", name.ljust(14), text, flush=True)


def model(name):
    said = [l for l in (work / f"{name}.out").read_text().splitlines() if l.startswith("{")]
    if not said:
        status = (work / f"{name}.status").read_text().strip()
        last = (work / f"{name}.err").read_text().strip()[-200:]
        return line(name, False, f"not measured: {'the time was up' if status == '124' else f'it ended with {status}: {last}'}")
    own = json.loads(said[0])
    peak = report(name)["processes"][0]["devices"][0]["anatomy"]
    good, text = True, []
    for kind in ("weights", "gradients", "optimizer"):
        off = peak[kind] / own[kind] - 1
        good &= abs(off) <= 0.02
        text.append(f"{kind} {own[kind] / MIB:.1f} MiB {off:+.2%}")
    # The driver was asked after the last step: the same moment of ours.
    device = report(name, "--at", "step:3")["processes"][0]["devices"][0]
    end = device["anatomy"]
    used = own["driver_used"]
    if used is None or end["free"] is None:
        return line(name, False, " · ".join(text) + f" · the driver was not asked: it {used}, we {end['free']}")
    ours = device["capacity_bytes"] - end["free"]
    torchs = sum(end[k] for k in TORCHS)
    off = ours / used - 1
    good &= abs(off) <= 0.02 and torchs == own["reserved"]
    told = "by NVML" if end["other_processes"] is not None else "processes not told apart"
    text.append(f"driver {used / GIB:.2f} GiB, parts {ours / GIB:.2f} {off:+.2%} (torch {torchs / GIB:.2f}, itself {own['reserved'] / GIB:.2f}; {device['free_source']}, {told})")
    line(name, good, " · ".join(text))


def death(cause, want):
    name = f"oom-{cause}"
    run = report(name)
    oom = run["processes"][0]["devices"][0]["oom"]
    if oom is None:
        return line(name, False, f"no failure was recorded: {run['verdict']}: {run['reason']}; it said {(work / f'{name}.out').read_text()[-200:]!r}")
    good = (run["verdict"], oom["cause"]) == ("oom", want) and oom["holders"] and oom["holders"][0]["line"] is not None
    text = f"{oom['cause']} in step {oom['step']}, {oom['phase']}: {run['reason']}"
    if cause == "other":
        held = int((work / f"{name}.out").read_text().split("another process holds")[1].split()[0])
        good &= oom["outside_bytes"] >= held
        text += f" · it held {held / GIB:.2f} GiB, outside {oom['outside_bytes'] / GIB:.2f} GiB"
        others = oom["other_processes_bytes"]
        if others is not None:
            # The other process's context is a part of what it holds.
            good &= held <= others <= held + 2 * GIB
            text += f", other processes {others / GIB:.2f} GiB"
    line(name, good, text)


for name in sys.argv[3:]:
    try:
        model(name)
    except Exception as e:  # one job that cannot be judged is one line
        line(name, False, f"{type(e).__name__}: {e}; status {(work / f'{name}.status').read_text().strip()}")
for cause, want in {"batch": "batch", "fragments": "fragmentation", "state": "optimizer-state", "other": "other-processes"}.items():
    try:
        death(cause, want)
    except Exception as e:
        line(f"oom-{cause}", False, f"{type(e).__name__}: {e}")
print(f"anatomy: {failed} failed" if failed else "anatomy: all passed")
sys.exit(failed > 0)
