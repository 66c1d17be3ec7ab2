#!/usr/bin/env python3
"""The world's jobs, bare and recorded: do they end, print, train, and write alike, and is any healthy one called a leak?

usage: world.py --out OUT --strandline BIN [--python PY] [--simulated] [--path DIR] [--wheels DIR] [--only REGEX] [--tags T,…]
                [--modes python,none,…] [--jobs N] [--seconds N] [--grace N] [--limit N] [--patience N] [--keep]
       world.py --list

Each job of manifest.toml runs bare twice and recorded once in each mode; where the recorded run differs from bare ones that agree,
two more bare runs are asked before it is said. OUT/results.jsonl gets a line for each job as it ends, OUT/table.md the table.
--simulated: jobs tagged `sim-ok` alone, on PY's simulated device. --path: a folder of packages beside PY's own; below its apart/ those that others do not go with. --wheels: the folder
of trl-1.16*.whl for the job that needs no more of TRL than its wheel. --seconds: no job is begun later than that, and none goes on for more than --grace longer. --limit: no run is given more seconds; --patience: so many times what the manifest gives.
Exit status: 0 where all agree, 1 where any differs, is accused, does not run bare, or was not tried for want of time; 2 for a wrong request.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib

import compared
import observed

MODES = {"python": [], "none": ["--stacks", "none"], "native": ["--stacks", "native"], "both": ["--stacks", "both"]}
TAGS = {"needs-card", "sim-ok", "quick", "two-cards"}


def manifest():
    with open(os.path.join(observed.HERE, "manifest.toml"), "rb") as f:
        jobs = tomllib.load(f)["job"]
    names = set()
    for job in jobs:
        job.setdefault("limit", 150)
        job.setdefault("status", 0)
        missing = {"name", "package", "version", "run", "data", "tags", "varies"} - set(job)
        if missing or job["name"] in names or set(job["tags"]) - TAGS or not {"needs-card", "sim-ok"} & set(job["tags"]):
            sys.exit(f"manifest.toml: {job.get('name')}: missing {sorted(missing)}, or twice there, or unknown tags {job.get('tags')}")
        names.add(job["name"])
    return jobs


def installed(setting, jobs):
    """Versions of the jobs' packages, as PY has them; a package that is not there is absent. A job that needs none of --path goes without it."""
    packages = sorted({p for j in jobs for p in [j["package"], *j.get("needs", [])]})
    source = (
        "import importlib.metadata as m, json, sys\nfound = {}\nfor p in sys.argv[1:]:\n    try: found[p] = m.version(p)\n"
        "    except m.PackageNotFoundError: pass\nprint(json.dumps(found))"
    )

    def versions(path):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        asked = subprocess.run([setting.python, "-c", source, *packages], env=env, capture_output=True, text=True)
        if asked.returncode:
            sys.exit(f"{setting.python}: {asked.stderr.strip()}")
        return {**json.loads(asked.stdout), **({"trl-wheel": "1.16.0"} if setting.wheels else {})}

    own = versions([])
    for j in jobs:
        j["beside"] = not {j["package"], *j.get("needs", [])} <= set(own)
    return {**versions(setting.beside()), **own} if setting.path else own


def ran(setting, job, tag, mode=None):
    """A run, made again where PyTorch has aborted it, as it does with one of several bare ones."""
    for again in ("", "-again", "-once-more", "-at-last"):
        run = observed.Run(setting, job, tag + again, mode)
        if job["status"] == 134 or not run.is_torchs_abort():
            break
    return run


def one(setting, job, version, modes):
    """All runs of one job; what came of them."""
    name, began = job["name"], time.monotonic()
    bares = [ran(setting, job, f"bare{k}") for k in (1, 2)]
    result = {"job": name, "package": job["package"], "version": version, "status": bares[0].status, "modes": {}}
    if any(b.status != job["status"] for b in bares):
        result["broken"] = f"bare: {[b.status for b in bares]}, not {job['status']}: {bares[0].why()}"
        modes = []
    for mode in modes:
        run = ran(setting, job, f"recorded-{mode}", MODES[mode])
        found = compared.differs(bares, run)
        if found and len(bares) == 2:
            bares += [ran(setting, job, f"bare{k}") for k in (3, 4)]
            found = compared.differs(bares, run)
        judged = run.judged(setting)
        for what, right in (("lost", 0), ("drift", 0), ("damage", 0)):
            if judged[what] != right:
                found.append((what, right, judged[what]))
        if judged["verdict"] == "leak":
            found.append(("accused", "a healthy job", judged["reason"]))
        result["modes"][mode] = {**judged, "differs": [[w, str(b)[:300], str(r)[:300]] for w, b, r in found], "seconds": round(run.seconds, 1), "ours": run.ours()}
    result["varies"], result["peak"] = compared.varies(bares), bares[0].peak
    result["losses"] = len(bares[0].losses or [])
    result["bare_runs"], result["bare_seconds"] = len(bares), round(min(b.seconds for b in bares), 1)
    result["wall"] = round(time.monotonic() - began, 1)
    differs = [d for m in result["modes"].values() for d in m["differs"]]
    result["outcome"] = "BROKEN" if "broken" in result else "DIFFERS" if differs else "same"
    if result["outcome"] == "same" and not setting.keep:
        shutil.rmtree(os.path.join(setting.out, "runs", name), ignore_errors=True)
    return result


def row(r):
    """A line of the table."""
    verdicts = ", ".join(sorted({m["verdict"] for m in r["modes"].values()})) or "–"
    wrong = r.get("broken") or "; ".join(f"{mode}: {w}: {b} → {x}" for mode, m in r["modes"].items() for w, b, x in m["differs"])
    peak = "–" if not r.get("peak") else f"{r['peak'] / (1 << 20):.1f}"
    cells = [r["job"], f"{r['package']} {r['version']}", r["outcome"] + (f": {wrong[:200]}" if wrong else ""), verdicts, str(r.get("losses") or "–"), peak, ", ".join(r["varies"]) or "–"]
    return "| " + " | ".join(c.replace("|", "/").replace("\n", " ") for c in cells) + " |"


HEAD = "| job | package | recorded against bare | verdict | losses | peak MiB | differs from bare run to bare run |\n|---|---|---|---|---|---|---|"


def asked():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out")
    p.add_argument("--strandline")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--simulated", action="store_true")
    p.add_argument("--path", default="")
    p.add_argument("--wheels", default="")
    p.add_argument("--only", default="")
    p.add_argument("--tags", default="")
    p.add_argument("--modes", default="python")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seconds", type=float, default=1e9)
    p.add_argument("--grace", type=float, default=90)
    p.add_argument("--limit", type=int)
    p.add_argument("--patience", type=int, default=1)
    p.add_argument("--cards", type=int, default=1)
    p.add_argument("--keep", action="store_true")
    p.add_argument("--list", action="store_true")
    args = p.parse_args()
    modes = args.modes.split(",")
    if set(modes) - set(MODES):
        p.error(f"no such mode: {args.modes}; there are {' '.join(MODES)}")
    if not args.list and not (args.out and args.strandline):
        p.error("--out and --strandline are needed")
    return args, modes


def chosen(args, jobs):
    tags = {t for t in args.tags.split(",") if t} | ({"sim-ok"} if args.simulated else set())
    if tags - TAGS:
        sys.exit(f"no such tag: {' '.join(sorted(tags - TAGS))}; there are {' '.join(sorted(TAGS))}")
    jobs = [j for j in jobs if re.search(args.only, j["name"]) and tags <= set(j["tags"])]
    return [j for j in jobs if "two-cards" not in j["tags"] or args.cards > 1]


def main():
    args, modes = asked()
    jobs = chosen(args, manifest())
    if args.list:
        for j in manifest():
            print(f"{j['name']:28} {j['package']:24} {j['version']:12} {' '.join(j['tags'])}")
        return 0
    jobs = [{**j, "limit": min(j["limit"] * args.patience, args.limit or 1 << 30)} for j in jobs]
    setting = observed.Setting(args.python, args.strandline, args.out, args.simulated, args.path, args.wheels, keep=args.keep, end=time.monotonic() + args.seconds + args.grace)
    os.makedirs(setting.out, exist_ok=True)
    there, began, lock = installed(setting, jobs), time.monotonic(), threading.Lock()
    results, skipped, late = [], [], []

    def do(job):
        missing = [p for p in [job["package"], *job.get("needs", [])] if p not in there]
        if missing or time.monotonic() - began > args.seconds:
            with lock:
                (skipped if missing else late).append(f"{job['name']} ({', '.join(missing)})" if missing else job["name"])
            return
        try:
            result = one(setting, job, there[job["package"]], modes)
        except observed.OutOfTime:
            with lock:
                late.append(job["name"])
            return
        except Exception as e:  # a runner that breaks is a job that failed; the others go on
            result = {"job": job["name"], "package": job["package"], "version": "", "modes": {}, "varies": [], "outcome": "BROKEN", "broken": f"the runner: {e!r}"}
        with lock:
            results.append(result)
            with open(os.path.join(setting.out, "results.jsonl"), "a") as f:
                f.write(json.dumps(result) + "\n")
            verdicts = ",".join(m["verdict"] for m in result["modes"].values())
            print(f"{result['outcome']:8} {job['name']:26} {verdicts:14} {result.get('wall', 0):5.0f} s  varies: {', '.join(result['varies']) or '-'}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(do, sorted(jobs, key=lambda j: -j["limit"])))
    return summary(setting, results, skipped, late, time.monotonic() - began)


def summary(setting, results, skipped, late, seconds):
    results.sort(key=lambda r: r["job"])
    with open(os.path.join(setting.out, "table.md"), "w") as f:
        f.write("\n".join([HEAD, *map(row, results)]) + "\n")
    wrong = [r for r in results if r["outcome"] != "same"]
    for r in wrong:
        print(row(r)[:600])
        for m in r["modes"].values():
            print("    ", " / ".join(m["ours"])[:300])
    accused = sum(any(d[0] == "accused" for d in m["differs"]) for r in results for m in r["modes"].values())
    count = lambda o: sum(r["outcome"] == o for r in results)
    verdicts = {}
    for r in results:
        for m in r["modes"].values():
            verdicts.setdefault(m["verdict"], []).append(r["job"])
    for verdict, names in sorted(verdicts.items()):
        print(f"verdict {verdict}: {len(names)}" + (f" ({', '.join(names)})"[:500] if verdict not in ("clean", "unknown") else ""))
    loose = {what: [r["job"] for r in results if what in r["varies"]] for r in results for what in r["varies"]}
    for what, names in sorted(loose.items()):
        print(f"differs from bare run to bare run: {what}: {', '.join(names)}"[:500])
    if skipped:
        print("not installed:", ", ".join(sorted(skipped)))
    if late:
        print("no time was left for:", ", ".join(sorted(late)))
    print(
        f"world: {len(results)} jobs, {count('same')} same, {count('DIFFERS')} differ, {count('BROKEN')} do not run bare, {accused} healthy accused, "
        f"{len(skipped)} not installed, {len(late)} not begun, {seconds:.0f} s"
    )
    return 1 if wrong or late or not results else 0


if __name__ == "__main__":
    sys.exit(main())
