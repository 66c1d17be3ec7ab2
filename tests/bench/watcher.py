#!/usr/bin/env python3
"""What the watcher costs, and how fast an alert is.

    watcher.py --strandline BIN --python PYTHON [--seconds 60] [--rate 10e6] [--alerts 10]

A release build of the command. PYTHON has torch; without a GPU: strandline simulate --python.
1. A job makes --rate events a minute on its card; `strandline watch` follows it in a process of its own, whose processor time (user and
   system) and memory are read from /proc: at 20 % of the time and at its end.
2. Jobs that leak at each step, which is 50 ms long: from the end of the step at which the alert was found (by the job's own clock, before
   it tells the step) to the first thing that the action does. --alerts of them, one after the other.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

JOB = r"""
import ctypes, json, sys, time
import torch
what, arg = sys.argv[1], float(sys.argv[2])
step = ctypes.CDLL(None).strandline_step
step.argtypes = [ctypes.c_uint64]
torch.zeros(1, device="cuda")
ends, kept, n = [], [], 0
begin = time.monotonic()
deadline = begin + float(sys.argv[3])
window = [torch.empty(1 << 12, device="cuda") for _ in range(256)]
while time.monotonic() < deadline:
    n += 1
    if what == "rate":  # a step of 100 ms; a pair is three events: allocated, asked back, free
        for part in range(10):
            for _ in range(int(arg / 600 / 10 / 3)):
                window[_ & 255] = torch.empty(1 << 12, device="cuda")
            rest = begin + (n - 1) * 0.1 + (part + 1) * 0.01 - time.monotonic()
            if rest > 0:
                time.sleep(rest)
    else:
        kept.append(torch.empty(2 << 20, device="cuda"))
        time.sleep(0.05)
    ends.append(time.time_ns())
    step(n)
print(json.dumps(dict(steps=n, ends=ends)))
"""

p = argparse.ArgumentParser()
p.add_argument("--strandline", required=True)
p.add_argument("--python", required=True)
p.add_argument("--seconds", type=float, default=60)
p.add_argument("--rate", type=float, default=10e6)
p.add_argument("--alerts", type=int, default=10)
args = p.parse_args()
here = tempfile.mkdtemp(prefix="strandline-watcher-")
library = subprocess.run([args.strandline, "doctor", "--library"], capture_output=True, text=True, check=True).stdout.strip()
env = dict(os.environ, LD_PRELOAD=library, STRANDLINE_SIM_TOTAL="24GiB")


def usage(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    rss = [int(l.split()[1]) for l in open(f"/proc/{pid}/status") if l.startswith("VmRSS")][0]
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), rss / 1024


def job(folder, what, arg, seconds):
    words = [args.python, "-c", JOB, what, str(arg), str(seconds)]
    return subprocess.Popen(words, env=dict(env, STRANDLINE_OUT=os.path.join(here, folder)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def watch(folder, *options):
    os.makedirs(os.path.join(here, folder), exist_ok=True)  # it waits for the job
    return subprocess.Popen([args.strandline, "watch", *options, folder], cwd=here, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


try:
    running = job("rate", "rate", args.rate, args.seconds + 5)
    watcher = watch("rate", "--metrics", "file:figures.prom")
    time.sleep(args.seconds * 0.2)
    events = lambda: next(float(l.rsplit(" ", 1)[1]) for l in open(os.path.join(here, "figures.prom")) if l.startswith("strandline_events_total"))
    (cpu, before), at, seen = usage(watcher.pid), time.monotonic(), events()
    time.sleep(args.seconds * 0.8)
    (cpu2, after), at2, seen2 = usage(watcher.pid), time.monotonic(), events()
    rate = (seen2 - seen) / (at2 - at) * 60
    share = (cpu2 - cpu) / (at2 - at)
    print(f"{rate / 1e6:.2f} million events a minute: the watcher needs {100 * share:.2f} % of a core ({(cpu2 - cpu) / (seen2 - seen) * 1e9:.0f} ns an event); "
          f"{before:.1f} MiB resident after {args.seconds * 0.2:.0f} s, {after:.1f} MiB after {args.seconds:.0f} s", flush=True)
    running.communicate()
    watcher.wait()
    waits = []
    for n in range(args.alerts):
        folder = f"alert{n}"
        running = job(folder, "leak", 0, 4)
        watcher = watch(folder, "--alert-growth", "1MiB/step", "--on-alert", f"exec:date +%s%N >> {folder}.at; cat > {folder}.json")
        ends = json.loads(running.communicate()[0])["ends"]
        watcher.wait()
        at = int(open(os.path.join(here, folder + ".at")).readline())
        step = json.load(open(os.path.join(here, folder + ".json")))["steps"]
        waits.append((at - ends[step - 1]) / 1e6)
    if waits:
        print(f"from the end of the step to the action: {statistics.median(waits):.0f} ms ({min(waits):.0f} to {max(waits):.0f}, {len(waits)} alerts)")
finally:
    shutil.rmtree(here)
