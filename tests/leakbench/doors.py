#!/usr/bin/env python3
"""leakbench through every door: is what is said of a job the same, whichever allocator its memory comes from?

usage: doors.py --strandline BIN --python PY --wheels DIR --out DIR [--only REGEX] [--jobs N] [--simulated]

Cases and their fixed twins through PyTorch's own allocator, the same with expandable segments, `backend:cudaMallocAsync`, and the
pluggable allocator with preload. Of each run: the verdict, the finding that must be there and its line, the steps, losses and drift, and
the peak against torch's own. What the native allocator's run says is what the others must say, and it must be the script's truth. Writes OUT/doors.md; exit status 1 where a line is BAD.
"""
import argparse, concurrent.futures, json, os, re, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [  # case, script, steps the script makes, what must be found (nothing: clean)
    ("a_offload_vl", "trl_offload_streams.py", 32, "live-after-stream-exit"),
    ("a_offload_vl_fixed", "trl_offload_streams.py --fixed", 32, None),
    ("b_tracker", "trl_stale_tracker.py", 30, "step-growth"),
    ("b_tracker_fixed", "trl_stale_tracker.py --fixed", 30, None),
    ("c_fastllm", "fastllm_loss_retention.py", 64, "step-growth"),
    ("c_fastllm_fixed", "fastllm_loss_retention.py --fixed", 64, None),
]
DOORS = {  # door: the environment, and whether the script goes through through.py
    "native": ({}, False),
    "expandable": ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, False),
    "cudaMallocAsync": ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, False),
    "pluggable": ({}, True),
}

p = argparse.ArgumentParser()
p.add_argument("--strandline", required=True)
p.add_argument("--python", default=sys.executable)
p.add_argument("--wheels", default="")
p.add_argument("--out", required=True)
p.add_argument("--only", default=".")
p.add_argument("--jobs", type=int, default=1)
p.add_argument("--simulated", action="store_true")
args = p.parse_args()
os.makedirs(args.out, exist_ok=True)
ENV = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
ENV["PYTHONPATH"] = os.pathsep.join([HERE, os.path.join(HERE, "../../tools/python")])
if args.simulated:
    ENV["LEAKBENCH_NO_CUDNN"] = "1"


def last_json(text):
    lines = [l for l in text.splitlines() if l.startswith('{"case"')]
    return json.loads(lines[-1]) if lines else None


def place(frame):
    return f"{os.path.basename(frame['file'])}:{frame['line']}"


def one(case, door):
    name, script, steps, must = case
    more, through = DOORS[door]
    file, *rest = script.split()
    words = [os.path.join(HERE, "through.py")] * through + [os.path.join(HERE, file), *rest]
    if file.startswith("trl_") and args.wheels:
        words += ["--wheels", args.wheels]
    folder = os.path.join(args.out, f"{name}-{door}")
    run = [args.strandline, "run", "-o", folder, "--", args.python, *words]
    ran = subprocess.run(run, env=dict(ENV, **more), capture_output=True, text=True, timeout=400, stdin=subprocess.DEVNULL)
    asked = subprocess.run([args.strandline, "report", folder, "--format", "json"], env=ENV, capture_output=True, text=True, timeout=120)
    row = dict(case=name, door=door, text=ran.stderr, problems=[])
    bad = row["problems"].append
    got = last_json(ran.stdout)
    try:
        report = json.loads(asked.stdout)
    except ValueError:
        report = None
    if ran.returncode or not got or not report:
        bad(f"status {ran.returncode}, {'no line from the job' if not got else asked.stderr.strip()}")
        return row
    pr = report["processes"][0]
    loud = [f for f in pr["findings"] if f["certainty"] in ("leak", "growing") and f["withdrawn_step"] is None]
    row.update(verdict=report["verdict"], allocator=pr["allocator"], steps=pr["steps"], events=pr["events"], drift=pr["accounting_drift_bytes"])
    row["kinds"] = sorted({f["kind"] for f in loud})
    row["rate"] = sum(f["bytes_per_step"] for f in loud)
    # Of the finding that must be there: the line of its largest share.
    first = next((f for f in loud if f["kind"] == must), None)
    frame = first["sites"][0]["frames"][0] if first and first["sites"] else None
    row["line"] = place(frame) if frame else "-"
    row["lines"] = {place(s["frames"][0]) for s in first["sites"] if s["frames"]} if first else {"-"}
    row["side"] = bool(first and first["stream"] and first["stream"]["side"])
    row["peak"], row["torchs_peak"] = pr["devices"][0]["peak_allocated_bytes"], got["alloc_peak"]
    if pr["events_lost"] or pr["damage"]:
        bad(f"lost {pr['events_lost']}, damage {pr['damage']}")
    if pr["accounting_drift_bytes"] != (None if door == "cudaMallocAsync" else 0):
        bad(f"drift {pr['accounting_drift_bytes']}")
    if pr["steps"] != steps:
        bad(f"steps {pr['steps']}, the script makes {steps}")
    if report["verdict"] not in (("leak", "growing") if must else ("clean",)):
        bad(f"verdict {report['verdict']}: {report.get('reason')}")
    if must and must not in row["kinds"]:
        bad(f"{must} was not found")
    if not must and loud:
        bad(f"false alarm {row['kinds']}")
    # The driver's pool counts blocks as they were asked for, we round each up to 512 bytes.
    more = row["peak"] - row["torchs_peak"]
    if not 0 <= more <= (max(64 << 10, row["torchs_peak"] // 1000) if door == "cudaMallocAsync" else 0):
        bad(f"peak {row['peak']}, torch's own {row['torchs_peak']}")
    return row


todo = [(c, d) for c in CASES if re.search(args.only, c[0]) for d in DOORS]
with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
    rows = [f.result() for f in [pool.submit(one, c, d) for c, d in todo]]
native = {r["case"]: r for r in rows if r["door"] == "native"}
failed = 0
with open(os.path.join(args.out, "doors.md"), "w") as t:
    t.write("| case | door | verdict | loud findings | line | on a side stream | MiB a step | steps | events | drift | peak = torch's |\n|" + "---|" * 11 + "\n")
    for r in rows:
        truth = native[r["case"]]
        # Whether what else is found is loud hangs on rates, and TRL's hang on which addresses come again.
        for key in ("verdict", "side"):
            if key in truth and key in r and r[key] != truth[key]:
                r["problems"].append(f"{key} {r[key]}, native {truth[key]}")
        if "line" in truth and "lines" in r and truth["line"] not in r["lines"]:
            r["problems"].append(f"lines {sorted(r['lines'])}, native {truth['line']}")
        failed += bool(r["problems"])
        rate = r.get("rate", 0) / (1 << 20)
        print(f"{'BAD ' if r['problems'] else 'ok  '} {r['case']:20s} {r['door']:16s} {r.get('verdict', '-'):8s} {','.join(r.get('kinds', [])) or 'none'} {r.get('line', '-')} {rate:.1f} MiB/step  {'; '.join(r['problems'])}")
        if r["problems"]:
            print("\n".join("     | " + l for l in r["text"].splitlines()[-45:]))
        same = "yes" if r.get("peak") == r.get("torchs_peak") else f"{r.get('peak')}, {r.get('torchs_peak')}"
        t.write(f"| {r['case']} | {r['door']} | {r.get('verdict')} | {', '.join(r.get('kinds', [])) or 'none'} | {r.get('line')} | {'yes' if r.get('side') else 'no'} | {rate:.1f} | {r.get('steps')} | {r.get('events')} | {r.get('drift')} | {same} |\n")
print(f"{'FAIL' if failed else 'PASS'} leakbench through the doors: {len(rows) - failed} as native and true, {failed} not")
sys.exit(1 if failed else 0)
