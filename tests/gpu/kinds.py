#!/usr/bin/env python3
"""What grows and is no block, and jobs without steps that end within seconds, on a card, each with a healthy twin.

usage: kinds.py STRANDLINE WORK        exit status 1 where a verdict is another one
"""
import concurrent.futures
import json
import os
import subprocess
import sys

CASES = [
    ("findings", "graphs", "clean", None), ("findings", "graphs-kept", "growing", "pool-growth"),
    ("findings", "pools", "clean", None), ("findings", "pools-kept", "growing", "pool-growth"),
    ("findings", "outside", "clean", None), ("findings", "outside-kept", "growing", "outside-growth"),
    ("iterations", "answers", "clean", None), ("iterations", "collects", "growing", "step-growth"),
    ("iterations", "loads", "unknown", None),
]


def judged(case):
    script, what, verdict, kind = case
    recording = os.path.join(WORK, what)
    job = [STRANDLINE, "run", "-o", recording, "--", sys.executable, f"tests/python/{script}.py", what]
    ran = subprocess.run(job, capture_output=True, text=True, timeout=200)
    if ran.returncode:
        return False, f"{what}: exit status {ran.returncode}\n{ran.stderr[-2000:]}"
    report = subprocess.run([STRANDLINE, "report", recording, "--format", "json"], capture_output=True, text=True)
    p = json.loads(report.stdout)["processes"][0]
    grows = {f["kind"]: (f.get("kept_at") or {}).get("source") for f in p["findings"] if f["certainty"] in ("growing", "leak")}
    right = p["verdict"] == verdict and list(grows) == ([kind] if kind else [])
    rates = [f"{f['bytes_per_step'] / 2**20:.1f} MiB" for f in p["findings"] if f["kind"] in grows]
    return right, f"{what}: {p['verdict']}, {p['steps']} ({p['step_source']}), grows {grows} {' '.join(rates)}{'' if right else '  WRONG'}"


STRANDLINE, WORK = (os.path.abspath(a) for a in sys.argv[1:3])
with concurrent.futures.ThreadPoolExecutor(5) as pool:
    results = list(pool.map(judged, CASES))
print("\n".join(text for _, text in results))
sys.exit(not all(right for right, _ in results))
