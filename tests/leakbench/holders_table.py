#!/usr/bin/env python3
"""Runs leaks for about three seconds each under `strandline run`, and prints for each: how certain, who holds it, and whether `kept_at` is
the statement that keeps it.

usage: holders_table.py --strandline BIN [--python PY] [--wheels DIR] --out DIR [--only REGEX] [--jobs N] [--times N] [--seconds S] [--card SIZE] [--keeps]

The truth is the text of the statement, below, or a line's mark `# KEEPS CASE` (--keeps: MARKED; `# NONE CASE` there). Where it is None the leak has no line of the user's own: a package keeps it, a cycle or the allocator. `right`: the report names that very line.
WRONG, another line, must never be. Exit status 1 where something is wrong, or less was found than must be: 90 % of holders, 80 % of lines.
"""
import argparse, concurrent.futures, json, os, re, shutil, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(HERE, "..", "python")
MARKED = ("keeps.py", "kept_more.py", "kept_by_others.py", "kept_by_graphs.py")
# Name, script with its arguments, steps that it makes, what the first holder's name begins with, and the statement that keeps.
# Nobody holds what has no name: that is left out of the count of holders.
LEAKS = [
    ("hook_outputs", "more.py hook_outputs", 60, "acts, a local of hook_outputs|a closure of hook_outputs", "lambda m, i, o: acts.append(o)"),
    ("param_groups", "more.py param_groups", 90, "ads, a local of param_groups|ModuleList|AdamW.param_groups|AdamW.state", "ads.append(ad)"),
    ("tbptt_no_detach", "more.py tbptt_no_detach", 50, "h, a local of tbptt_no_detach", "h = cell(torch.randn(512, 256"),
    ("retain_graph_total", "more.py retain_graph_total", 60, "total, a local of retain_graph_total", "total = total + loss"),
    ("val_only", "more.py val_only", 350, "kept, a local of val_only", "kept.append(h)"),
    ("nan_batches", "more.py nan_batches", 400, "bad, a local of nan_batches", "bad.append(x)"),
    ("side_prefetch_07", "more.py side_prefetch_07", 250, "d, a local of side_prefetch_07", "d[(i, j)] = torch.randn"),
    ("storages_kept", "more.py storages_kept", 80, "reg, a local of storages_kept", "reg[x.data_ptr()] = x.untyped_storage()"),
    ("a_offload_vl", "trl_offload_streams.py", 32, "OffloadActivations.bwd_tensor_stash", None),
    ("b_tracker", "trl_stale_tracker.py", 30, "OffloadActivations.tracker", None),
    ("c_fastllm", "fastllm_loss_retention.py", 64, "__main__.losses", 'losses["language_model_loss"].append('),
    ("d_losslist_graph", "loss_list.py --variant graph", 60, "__main__.losses", "losses.append(forward(x))"),
    ("d_losslist_tiny", "loss_list.py --variant tiny --steps 100", 100, "__main__.losses", "losses.append(loss.item() if"),
    ("needle", "slow_leak.py --variant needle", 600, "__main__.kept", "kept.append(torch.zeros(args.leak_kib"),
    ("g_refcycle_never", "slow_leak.py --variant refcycle --never", 100, None, None),
    ("e_deferred", "sidestream_record.py", 40, None, None),
]

p = argparse.ArgumentParser()
p.add_argument("--strandline", required=True)
p.add_argument("--python", default=sys.executable)
p.add_argument("--wheels", default=os.path.join(HERE, "wheels"))
p.add_argument("--out", required=True)
p.add_argument("--only", default=".")
p.add_argument("--jobs", type=int, default=1)
p.add_argument("--times", type=int, default=1)
p.add_argument("--seconds", type=float, default=3, help="that the steps of a job take, beside their own work")
p.add_argument("--card", default="24GiB", help="size of the simulated card")
p.add_argument("--keeps", action="store_true", help="the jobs of tests/python as well")
p.add_argument("--no-leakbench", action="store_true")
args = p.parse_args()

# A script of leakbench's own harness waits at the end of each step, as one of t.py's does by SLOW.
PACED = """
import os, runpy, sys, time
sys.path.insert(0, {here!r})
sys.argv = {argv!r}
import leakbench
step = leakbench.Bench.step
def paced(self, i):
    step(self, i)
    time.sleep(float(os.environ["SLOW"]))
leakbench.Bench.step = paced
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def marked(path):
    """Cases of a script of tests/python: name, script, steps, nothing said of the holder, and the line that keeps."""
    text = open(path).read()
    cases = re.findall(r"# KEEPS (\w+)$", text, re.M)
    none = re.findall(r"# NONE (\w+)$", text, re.M)
    script = os.path.basename(path)
    return [(c, f"{script} {c}", 120, "", f"# KEEPS {c}") for c in cases] + [(c, f"{script} {c}", 120, "", None) for c in none]


def line_of(file, text):
    """The only line with this text (a case's mark ends its line)."""
    is_it = (lambda l: l.endswith(text)) if text.startswith("# KEEPS") else (lambda l: text in l)
    lines = [i for i, l in enumerate(open(file).read().splitlines(), 1) if is_it(l)]
    assert len(lines) == 1, (file, text, lines)
    return lines[0]


def run(case, number):
    name, script, steps, holder, truth = case
    file, *rest = script.split()
    path = os.path.join(HERE, file) if os.path.exists(os.path.join(HERE, file)) else os.path.join(PYTHON, file)
    argv = [path, *rest] + (["--wheels", args.wheels] if file.startswith("trl_") else [])
    is_bench = "from leakbench import" in open(path).read()
    job = ["-c", PACED.format(here=HERE, argv=argv)] if is_bench else argv
    folder = os.path.abspath(os.path.join(args.out, f"{name}.{number}"))
    shutil.rmtree(folder, ignore_errors=True)
    wait = str(args.seconds / steps)
    env = dict(os.environ, PYTHONPATH=HERE, SLOW=wait, WAIT=wait, LEAKBENCH_NO_CUDNN="1", FAKE_CUDA_TOTAL=args.card, STRANDLINE_SIM_TOTAL=args.card)
    ran = subprocess.run([args.strandline, "run", "-o", folder, "--", args.python, *job], env=env, capture_output=True, text=True, timeout=600)
    told = subprocess.run([args.strandline, "report", folder, "--format", "json"], env=env, capture_output=True, text=True, timeout=300)
    open(folder + ".txt", "w").write(ran.stdout + ran.stderr + told.stderr)
    open(folder + ".json", "w").write(told.stdout)
    row = dict(run=name, expected=truth and f"{file}:{line_of(path, truth)}")
    try:
        process = json.loads(told.stdout)["processes"][0]
    except (ValueError, LookupError):
        return dict(row, error="no report", found=False, line="none")
    stands = [f for f in process["findings"] if f["withdrawn_step"] is None and f["certainty"] in ("leak", "growing", "bounded")]
    grows = [f for f in stands if f["kind"] in ("step-growth", "live-after-stream-exit", "cycle-garbage")] or stands
    f = max(grows, key=lambda f: f["bytes_now"] or 0, default=None)
    held = (f or {}).get("held_by") or {}
    details = held.get("details") or [{}]
    kept = (f or {}).get("kept_at")
    # Any other line that the report names is as wrong as the first.
    lines = {f"{os.path.basename(k['file'])}:{k['line']}" for k in (g.get("kept_at") for g in stands) if k}
    wrong = {l for l in lines if l != row["expected"]}
    named = details[0].get("name") or ""
    row.update(
        certainty=f and f["certainty"], kind=f and f["kind"], holder=(held.get("holders") or [""])[0], why=held.get("reason") or held.get("status"),
        found=bool(named) and (holder is None or bool(re.match(holder, named))), named=named,
        kept=kept and f"{os.path.basename(kept['file'])}:{kept['line']}", wrong=sorted(wrong),
        line="WRONG" if wrong else "right" if kept else "none", counts=details[0].get("counts"), cost=process["cost"].get("probe") or {},
    )
    return row


cases = [] if args.no_leakbench else list(LEAKS)
if args.keeps:
    cases += [case for file in MARKED for case in marked(os.path.join(PYTHON, file))]
cases = [c for c in cases if re.search(args.only, c[0])]
os.makedirs(args.out, exist_ok=True)
rows = []
with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
    for case, future in [(c, pool.submit(run, c, n)) for c in cases for n in range(args.times)]:
        r = future.result()
        rows.append(dict(r, counted=(case[3] is not None, case[4] is not None)))
        cost = r.get("cost") or {}
        holder = ("found" if r["found"] else "MISSED") if case[3] is not None else "nobody"
        what = r.get("holder") or r.get("error") or r.get("why")
        print(f"{r['run']:34s} {r.get('certainty') or '-':8s} {holder:7s} {r['line'] if case[4] else '(' + r['line'] + ')':7s} {r.get('kept') or '-':28s} "
              f"{round(cost.get('paused_seconds', 0) * 1000):4d} ms | {(what or '')[:90]} {' '.join(r.get('wrong') or [])}", flush=True)
json.dump(rows, open(os.path.join(args.out, "holders_table.json"), "w"), indent=1)
held = [r["found"] for r in rows if r["counted"][0]]
kept = [r["line"] == "right" for r in rows if r["counted"][1]]
wrong = [r["run"] for r in rows if r["line"] == "WRONG"]
print(f"holders found: {sum(held)} of {len(held)}; kept_at right: {sum(kept)} of {len(kept)}; wrong: {len(wrong)} {' '.join(wrong)}")
sys.exit(0 if not wrong and sum(held) >= 0.9 * len(held) and sum(kept) >= 0.8 * len(kept) else 1)
