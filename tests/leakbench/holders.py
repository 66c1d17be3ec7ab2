#!/usr/bin/env python3
"""Asks leakbench's four leaks with a holder who holds them, under `strandline run`, and compares with what their scripts say.

usage: holders.py --strandline BIN [--python PY] [--wheels DIR] --out DIR [--only REGEX] [--jobs N] [--times N] [--simulated] [--objects N] [--hold SECONDS] [--longest SECONDS]

For every run: is the expected holder named by the report, how much of what was looked for does it keep, how long was the job paused in
all and at once; and are the job's own numbers those of a run that is not looked into (STRANDLINE_PROBE=off). --objects: so many
tracked objects more in each job. Prints a line for each, writes OUT/holders.json; exit status 1 where a line that must hold does not.
"""
import argparse, concurrent.futures, json, os, re, shutil, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [  # run, script and arguments, a holder that must be among those named first
    ("a_offload_vl", "trl_offload_streams.py", r"^OffloadActivations\.bwd_tensor_stash \(dict"),
    ("b_tracker", "trl_stale_tracker.py", r"^OffloadActivations\.tracker \(dict"),
    ("c_fastllm", "fastllm_loss_retention.py", r"^autograd graphs of __main__\.losses \("),
    ("d_losslist_graph", "loss_list.py --variant graph", r"^autograd graphs of __main__\.losses \(list"),
]
# What a job says of itself that does not depend on where its blocks lie.
SAME = ["case", "steps", "true_leak", "released_blocks", "released_bytes", "leak_bytes_per_step", "leak_blocks_per_step"]
# TRL keeps blocks by address: its bare runs differ by so much.
SPREAD = {"a_offload_vl": 0.1, "b_tracker": 0.1}

p = argparse.ArgumentParser()
p.add_argument("--strandline", required=True)
p.add_argument("--python", default=sys.executable)
p.add_argument("--wheels", default="")
p.add_argument("--out", required=True)
p.add_argument("--only", default=".")
p.add_argument("--jobs", type=int, default=1)
p.add_argument("--times", type=int, default=1)
p.add_argument("--hold", default="3")
p.add_argument("--objects", type=int, default=0)
p.add_argument("--longest", type=float, default=0.1, help="seconds at once; on a machine with a processor to spare 0.05")
p.add_argument("--simulated", action="store_true")
args = p.parse_args()
os.makedirs(args.out, exist_ok=True)


def run(name, script, probe):
    folder = os.path.join(args.out, f"{name}.{probe}")
    shutil.rmtree(folder, ignore_errors=True)
    file, *rest = script.split()
    job = [os.path.join(HERE, file), *rest]
    if args.wheels and file.startswith("trl_"):
        job += ["--wheels", args.wheels]
    if args.objects:  # the script runs beside so many lists that the collector tracks
        source = f"import runpy, sys; more = [[i] for i in range({args.objects})]; sys.argv = {job!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
        job = ["-c", source]
    env = dict(os.environ, PYTHONPATH=HERE, LEAKBENCH_HOLD=args.hold, STRANDLINE_PROBE=probe)
    if args.simulated:
        env["LEAKBENCH_NO_CUDNN"] = "1"
    ran = subprocess.run([args.strandline, "run", "-o", folder, "--", args.python, *job], env=env, capture_output=True, text=True, timeout=600)
    told = subprocess.run([args.strandline, "report", folder, "--format", "json"], env=env, capture_output=True, text=True, timeout=300)
    open(folder + ".txt", "w").write(ran.stdout + ran.stderr + told.stderr)
    lines = [l for l in ran.stdout.splitlines() if l.startswith('{"case"')]
    report = json.loads(told.stdout) if told.returncode in (0, 81) and told.stdout else None
    return (json.loads(lines[-1]) if lines else None), report


def one(case):
    name, script, expected, number = case
    name = f"{name}.{number}" if args.times > 1 else name
    began = time.time()
    (off, _), (on, report) = run(name, script, "off"), run(name, script, "on")
    bad, row = [], dict(run=name)
    if not (off and on and report):
        return dict(row, problems=["no JSON line from the job or the report, see its .txt"])
    kind = case[0]
    for key in SAME:
        a, b, spread = off.get(key), on.get(key), SPREAD.get(kind, 0)
        is_number = isinstance(a, (int, float)) and not isinstance(a, bool)
        if a != b and not (is_number and abs(a - b) <= spread * max(abs(a), abs(b))):
            bad.append(f"the job's {key} is {b}, not looked into {a}")
    process = report["processes"][0]
    found = [f for f in process["findings"] if f["withdrawn_step"] is None and f["bytes_now"]]
    largest = max(found, key=lambda f: f["bytes_now"], default=None)
    held = largest["held_by"] if largest else {}
    row["holders"], row["status"], row["why"] = held.get("holders", []), held.get("status"), held.get("reason")
    if not (row["holders"] and re.search(expected, row["holders"][0])):
        bad.append(f"held by {row['holders'] or [row['status'], row['why']]}, expected {expected}")
    probe = process["cost"].get("probe") or {}
    row.update(probe=probe, wall=round(time.time() - began, 1))
    if probe.get("longest_seconds", 0) > args.longest:
        bad.append(f"paused for {probe['longest_seconds']} s at once")
    return dict(row, problems=bad)


todo = [(*c, n) for c in CASES if re.search(args.only, c[0]) for n in range(args.times)]
rows = []
with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
    for f in [pool.submit(one, c) for c in todo]:
        r = f.result()
        rows.append(r)
        cost = r.get("probe") or {}
        ms = lambda key: round(cost.get(key, 0) * 1000)
        pause = f"paused {ms('paused_seconds')} ms in {cost.get('pauses')}, longest {ms('longest_seconds')} ms, {cost.get('objects')} objects"
        print(f"{'FAIL' if r['problems'] else 'PASS'} {r['run']:20s} {'; '.join(r.get('holders', []))[:120]} | {pause} {'; '.join(r['problems'])}", flush=True)
json.dump(rows, open(os.path.join(args.out, "holders.json"), "w"), indent=1)
bad = [r for r in rows if r["problems"]]
print(f"{len(rows) - len(bad)} passed, {len(bad)} failed")
sys.exit(1 if bad else 0)
