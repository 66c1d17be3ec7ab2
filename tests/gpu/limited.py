"""`a_offload_vl` with no more memory than it has allocated at most in its first 25 steps, once limited by the allocator's settings
and once by `torch.cuda.set_per_process_memory_fraction`. tests/gpu/limited.sh calls it; ends with 1 where something does not hold.
"""

import argparse
import glob
import json
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "tests", "leakbench", "trl_offload_streams.py")
# The fraction is set by a call, and then the script is run as if alone.
CALLED = """
import os, runpy, sys, torch
torch.cuda.set_per_process_memory_fraction(float(sys.argv[1]))
sys.argv = sys.argv[2:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""

p = argparse.ArgumentParser()
p.add_argument("--strandline", required=True)
p.add_argument("--wheels", required=True)
p.add_argument("--work", required=True)
args = p.parse_args()
began = time.monotonic()
bad = []


def holds(what, fine, figures=""):
    print(f"{'PASS' if fine else 'FAIL'}  {what}{': ' if figures else ''}{figures}", flush=True)
    if not fine:
        bad.append(what)


def job(steps):
    return [SCRIPT, "--steps", str(steps), "--wheels", args.wheels]


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_") or k.startswith("STRANDLINE_SIM")}
    return dict(kept, **more)


def report(recording, *more):
    out = subprocess.run([args.strandline, "report", recording, "--format", "json", *more], stdout=subprocess.PIPE, check=True)
    return json.loads(out.stdout)["processes"][0]


# What it needs, told by torch, without us.
bare = subprocess.run([sys.executable, *job(25)], stdout=subprocess.PIPE, check=True, env=environment())
truth = json.loads(bare.stdout.splitlines()[-1])
total = subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.mem_get_info()[1])"], stdout=subprocess.PIPE, check=True)
fraction = truth["alloc_peak"] / int(total.stdout)
print(f"{truth['gpu']}, torch {truth['torch']}: peak of 25 steps {truth['alloc_peak'] / 2**20:.1f} MiB allocated "
      f"({truth['reserved_peak'] / 2**20:.1f} MiB reserved), {fraction:.9f} of the card")


def limited(how):
    """One run; what must hold of it."""
    folder = os.path.join(args.work, how)
    os.makedirs(folder)
    print(f"-- limited by {how} ({time.monotonic() - began:.0f} s)")
    options = ["-o", "rec", "--alert-oom-within", "60", "--on-alert", "exec:cat >> fired.jsonl", "--on-alert", "snapshot"]
    conf, script = {}, job(60)
    if how == "setting":
        conf = dict(PYTORCH_CUDA_ALLOC_CONF=f"per_process_memory_fraction:{fraction!r}")
    else:
        script = ["-c", CALLED, repr(fraction), *script]
    ran = subprocess.run([args.strandline, "run", *options, "--", sys.executable, *script], cwd=folder, text=True,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(**conf))
    with open(os.path.join(folder, "said.txt"), "w") as f:
        f.write(ran.stderr)
    holds("it dies as it would alone", ran.returncode == 1 and "OutOfMemoryError" in ran.stderr, f"status {ran.returncode}")
    [recording] = glob.glob(f"{folder}/rec/*.strand")
    device = report(recording)["devices"][0]
    if not device["oom"]:
        return holds("an allocation failed", False)
    died = device["oom"]["step"]
    holds("why is told", device["oom"]["cause"] in ("limit", "leak") or "LEAK" in ran.stderr, device["oom"]["cause"])

    # What is printed at each step, from the first alert on.
    told = []
    for step in range(1, died):
        leaks = [f for f in report(recording, "--at", f"step:{step}")["findings"]
                 if f["severity"] == "alert" and f["withdrawn_step"] is None and f["steps_to_oom"] and f["steps_to_oom"]["mid"]]
        if leaks:
            when = min((f["steps_to_oom"] for f in leaks), key=lambda w: w["mid"])
            told.append((step, step + when["low"], step + when["mid"], step + when["high"] if when["high"] else None))
    text = ", ".join(f"{s}: {m} ({lo}-{hi})" for s, lo, m, hi in told)
    holds("told by step 7", bool(told) and told[0][0] <= 7, f"step {told[0][0] if told else None}")
    inside = [lo <= died <= (hi or died) for _, lo, _, hi in told]
    holds("it dies inside every interval", bool(inside) and all(inside), f"died in step {died}; {text}")
    near = [hi - lo if hi else 10**9 for s, lo, _, hi in told if died - s <= 8]
    holds("at most 8 wide when 8 steps remain", bool(near) and max(near) <= 8, str(near))

    alert = [line for line in ran.stderr.splitlines() if line.startswith("strandline: ALERT")]
    print("      " + "\n      ".join(ran.stderr[ran.stderr.find("strandline: ALERT"):].splitlines()[:4]))
    numbers = re.search(r"full at step (\d+) \((\d+)-(\d+)\)", alert[0].replace(",", "")) if alert else None
    holds("the printed interval has the step", bool(numbers) and int(numbers[2]) <= died <= int(numbers[3]))
    fired = os.path.join(folder, "fired.jsonl")
    verdict = json.JSONDecoder().raw_decode(open(fired).read())[0] if os.path.exists(fired) else {}
    holds("the action ran, with the verdict", verdict.get("event") == "alert" and verdict["steps"] <= 7, f"step {verdict.get('steps')}")
    made = glob.glob(f"{folder}/rec/*.alert-1.pickle") + glob.glob(f"{folder}/rec/bundle-1-*/snapshot.pickle")
    opened = [subprocess.run([sys.executable, "-m", "torch.cuda._memory_viz", "stats", s], capture_output=True, text=True) for s in made]
    whole = all(os.path.getsize(f"{folder}/rec/bundle-1-{b}/{f}") for b in ("alert", "oom") for f in ("report.txt", "report.json"))
    holds("snapshot and bundles open", whole and len(made) == 3 and all(o.returncode == 0 and "segments" in o.stdout for o in opened),
          ", ".join(os.path.relpath(m, f"{folder}/rec") for m in made) + "".join(o.stderr[-300:] for o in opened if o.returncode))


for how in ("setting", "call"):
    limited(how)
print(f"{'FAIL: ' + '; '.join(bad) if bad else 'PASS: all of it'} ({time.monotonic() - began:.0f} s)")
sys.exit(1 if bad else 0)
