"""Programs that use no PyTorch, on a real card: each bare and recorded, side by side; the verdicts against what was planted.

run.py STRANDLINE WORK SECONDS [ONLY]. One line for each run; the reports of what failed below. Ends with 1 where something did.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
strandline, work, seconds = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), sys.argv[3]
only = re.compile(sys.argv[4] if len(sys.argv) > 4 else ".")
python = sys.executable
# What takes memory in advance takes a little, since all run side by side: eight of these, and 36 contexts of half a GiB and more.
SMALL = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".05"}
PLATFORM, ASYNC = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", **SMALL}
cupy, jax, cu = str(HERE / "cupy_job.py"), str(HERE / "jax_job.py"), lambda how: str(work.parent / f"job-{how}")

# Name, words, environment, verdicts that are right, what must be in the report (a function, or the file whose line is marked LEAK)
RUNS = []
for how in ["static", "shared"]:
    for job in ["", "server-"] if how == "static" else [""]:
        RUNS += [(f"cuda-{how}-{job}leak", [cu(how), f"{job}leak", seconds], {}, ["growing"], "keep")]
        RUNS += [(f"cuda-{how}-{job}clean", [cu(how), f"{job}clean", seconds], {}, ["clean"], None)]
PACKAGE = {"PYTHONPATH": str(HERE.parents[2] / "tools/python")}
for pool, clean in [("pool", ["clean", "unknown"]), ("none", ["clean"]), ("start", ["clean"])]:
    RUNS += [(f"cupy-{pool}-leak", [python, cupy, "leak", pool, seconds], PACKAGE, ["growing"], cupy)]
    RUNS += [(f"cupy-{pool}-clean", [python, cupy, "clean", pool, seconds], PACKAGE, clean, None)]
for name, env in [("platform", PLATFORM), ("async", ASYNC)]:
    RUNS += [(f"jax-{name}-leak", [python, jax, "leak", seconds], env, ["growing"], jax)]
    RUNS += [(f"jax-{name}-clean", [python, jax, "clean", seconds], env, ["clean"], None)]
RUNS += [("jax-default-leak", [python, jax, "leak", seconds], SMALL, ["unknown"], "XLA_PYTHON_CLIENT_ALLOCATOR=platform")]
RUNS += [("jax-default-clean", [python, jax, "clean", seconds], SMALL, ["unknown"], "XLA_PYTHON_CLIENT_ALLOCATOR=platform")]
RUNS = [r for r in RUNS if only.search(r[0])]
for r in [r for r in RUNS if not os.access(r[1][0], os.X_OK)]:
    print("FAIL", r[0], "|", r[1][0], "was not made", flush=True)
    RUNS.remove(r)


def start(name, words, env, recorded):
    folder = work / name / ("recorded" if recorded else "bare")
    folder.mkdir(parents=True)
    if recorded:
        words = [str(strandline), "run", "-o", str(work / name / "rec"), "--", *words]
    out, err = [open(folder / f, "w") for f in ("out", "err")]
    return subprocess.Popen(words, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=out, stderr=err)


def planted(path):
    return next(i for i, l in enumerate(open(path), 1) if l.rstrip().endswith("# LEAK"))


def text(name, which, stream):
    return (work / name / which / stream).read_text(errors="replace")


running = [(r, start(r[0], r[1], r[2], False), start(r[0], r[1], r[2], True)) for r in RUNS]
failed = []
for (name, words, env, verdicts, where), bare, recorded in running:
    faults, said = [], "-"
    for p, which in [(bare, "bare"), (recorded, "recorded")]:
        try:
            if p.wait(180):
                faults.append(f"{which} ended with {p.returncode}")
        except subprocess.TimeoutExpired:
            p.kill()
            faults.append(f"{which} hung")
    if text(name, "bare", "out") != text(name, "recorded", "out"):
        faults.append("stdout differs")
    shown = subprocess.run([strandline, "report", work / name / "rec", "--format", "json"], capture_output=True, text=True)
    (work / name / "report.json").write_text(shown.stdout)
    try:
        run = json.loads(shown.stdout)
        p = run["processes"][0]
        found = [f for f in p["findings"] if f["kind"] not in ("opaque-pool", "live-at-exit")]
        first = found[0] if found else {}
        site = (first.get("sites") or [{}])[0]
        functions = [f["function"] for f in site.get("native_frames") or []]
        line = site.get("your_line") or {}
        at = f"{pathlib.Path(line.get('file') or '-').name}:{line.get('line')}"
        said = (
            f"{run['verdict']} [{run['reason'][:110]}] {p['framework']}/{p['allocator']}/{p['coverage']['level']}"
            f" steps {p['steps']} {p['step_source']} events {p['events']} lost {p['events_lost']} damage {len(p['damage'])}"
            f" | {first.get('kind')} {first.get('bytes_per_step')} at {at} {' < '.join(functions[:4])}"
        )
        if run["verdict"] not in verdicts:
            faults.append(f"verdict {run['verdict']}, not {'/'.join(verdicts)}")
        if p["events_lost"] or p["damage"]:
            faults.append("the recording is not whole")
        if where == "keep":
            if "keep" not in str(functions):
                faults.append("the function is not named")
        elif where and where.startswith("XLA"):
            if where not in run["reason"]:
                faults.append("what to set is not said")
        elif where and (line.get("line"), pathlib.Path(line.get("file") or "").name) != (planted(where), pathlib.Path(where).name):
            faults.append(f"line {at}, not {planted(where)}")
    except (ValueError, KeyError, IndexError) as e:
        faults.append(f"no report: {e!r} {shown.stderr[-300:]}")
    print("FAIL" if faults else "PASS", name, "|", "; ".join(faults), "|", said, flush=True)
    if faults:
        failed.append(name)
for name in failed:
    print(f"\n==== {name}: its stdout, and what strandline said")
    print(text(name, "bare", "err")[-800:], text(name, "recorded", "out")[-800:], text(name, "recorded", "err")[-5000:], sep="\n--\n")
print(f"\n{len(RUNS) - len(failed)} of {len(RUNS)} are as planted")
sys.exit(bool(failed))
