#!/usr/bin/env python3
"""Ranks of one host: torchrun with DDP and FSDP2, one recording a rank, in lines of PASS and FAIL.

usage: ranks.py CARRY OUT [--gpus N] [--python PY] [--simulated] [PART…]

PARTs: ddp fsdp attributed equality accelerate predicted (default: all). CARRY as in tests/gpu/all.sh, and ranks.json
(tests/gpu/predict_simulated.py --ranks) for the last. NVLink multicast is left off. --simulated: N
simulated devices, gloo for DDP and ranks that send nothing for FSDP2, no equality. Exit status 1 where a line is FAIL.
"""
import glob, json, os, subprocess, sys

from carried import MIB, ROOT, accused, asked, attributed, cards, loud, measure_context, names, own_context, same_numbers, whole, within

PARTS = ["ddp", "fsdp", "attributed", "equality", "accelerate", "predicted"]
JOB = "tests/python/ranks.py"
args, parts, c = asked(__doc__, PARTS, gpus={"type": int, "default": 0})
N = args.gpus or cards()
if args.simulated:
    os.environ["STRANDLINE_SIM_DEVICES"] = str(N)


def ranks(name, kind, *more):
    """A job of N ranks under `strandline run torchrun`; what the ranks said themselves comes beside it."""
    said = os.path.join(c.work, name, "said")
    os.makedirs(said, exist_ok=True)
    backend = {"ddp": "gloo", "fsdp": "fake"}[kind] if args.simulated else "nccl"
    words = [c.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(N), os.path.join(ROOT, JOB), kind, said]
    ran = c.run(name, [*words, "--backend", backend, *map(str, more)], seconds=170)
    told = {}
    for path in glob.glob(os.path.join(said, "*.json")):
        with open(path) as f:
            told[json.load(f)["rank"]] = json.load(open(path))
    return ran, told


def each_rank(ran, told, steps):
    """Every rank in a recording of its own, whole, with PyTorch's own numbers."""
    wrong = whole(ran)
    processes = ran.report()["processes"]
    if sorted(p["rank"] for p in processes if p["rank"] is not None) != list(range(N)):
        wrong.append(f"recordings of ranks {[p['rank'] for p in processes]}, not 0 to {N - 1}")
    files = sorted(os.path.basename(f) for f in glob.glob(os.path.join(ran.out, "*.strand")))
    if len(files) != N or any(not f.endswith(f"-r{i}.strand") for i, f in enumerate(files)):
        wrong.append(f"files {files}")
    for p in processes:
        wrong += [f"rank {p['rank']}: {w}" for w in same_numbers(p, told.get(p["rank"], {}), p["rank"])]
        if (p["steps"], p["step_source"]) != (steps, "optimizer"):
            wrong.append(f"rank {p['rank']}: {p['steps']} steps by {p['step_source']}, not {steps}")
    return wrong


def brief(ran):
    report = ran.report()
    beside = {p["rank"]: sum(l["bytes"] for l in p["libraries"] or []) >> 20 for p in report["processes"]}
    return f"{report['verdict']} · events {[p['events'] for p in report['processes']]} · libraries, MiB {beside} · {ran.seconds:.0f} s"


def healthy(kind):
    ran, told = ranks(f"{kind}-healthy", kind)
    wrong = each_rank(ran, told, 24)
    if ran.report()["verdict"] != "clean":
        wrong.append(f"verdict {ran.report()['verdict']}: {ran.report().get('reason')}")
    wrong += [f"rank {p['rank']}: {f['kind']}" for p in ran.report()["processes"] for f in loud(p)]
    c.check(f"{kind}, {N} GPUs: a healthy job is clean in every rank", wrong, brief(ran), ran)


def leaky(kind):
    guilty = N - 1
    ran, told = ranks(f"{kind}-leak", kind, "--leak", guilty)
    wrong = each_rank(ran, told, 24)
    # It ends at once, so that who keeps it may not have been found: what keeps growing is then no proven leak.
    if ran.report()["verdict"] not in ("leak", "growing"):
        wrong.append(f"verdict {ran.report()['verdict']}: {ran.report().get('reason')}")
    for p in ran.report()["processes"]:
        found = accused(p)
        if p["rank"] != guilty and found:
            wrong.append(f"rank {p['rank']} is accused: {[f['kind'] for f in found]}")
        if p["rank"] == guilty:
            if [f["kind"] for f in found] != ["live-after-stream-exit"] or not names(found[0], JOB):
                wrong.append(f"rank {guilty}: {[(f['kind'], f['sites'][:1]) for f in found]}")
            elif found[0]["bytes_per_step"] != 64 * MIB or found[0]["device"] != guilty:
                wrong.append(f"rank {guilty}: {found[0]['bytes_per_step']} bytes a step on GPU {found[0]['device']}")
    text = ran.ask("report", ran.out).stdout
    c.check(f"{kind}, {N} GPUs: a leak in rank {guilty} alone is named there", wrong, brief(ran), ran)
    print("\n".join("     > " + l for l in text.splitlines()[:24]), flush=True)


def attributed_parts():
    context = c.job("context", "tests/python/context.py", preload=False).said().get("used", [0] * N)
    print(f"     context alone: {[u >> 20 for u in context]} MiB\n     " + measure_context(c).replace("\n", "\n     "), flush=True)
    # Weights, gradients, Adam's two moments, DDP's buckets: five times 0.5 GiB a layer.
    large = ("--width", 4096, "--layers", 12, "--steps", 12) if not args.simulated else ("--width", 256, "--steps", 12)
    for size, more in (("a small model", ("--steps", 12)), ("a large model", large)):
        ran, told = ranks(f"attributed-{size.split()[1]}", "ddp", *more)
        wrong, lines = each_rank(ran, told, 12), []
        for p in ran.report()["processes"]:
            rank = p["rank"]
            own = own_context(p, rank)
            figure, off = within(attributed(p, rank, context[rank] if own is None else own), told.get(rank, {}).get("used", 0))
            # A small model is told, not judged: what is not attributed is kernels' code and NCCL's buffers, of any size of job.
            wrong += off if size == "a large model" else []
            lines.append(f"     rank {rank}: {figure}; {[(l['name'], l['bytes'] >> 20) for l in p['libraries'] or []]}")
        c.check(f"attributed and used, DDP of {size} on {N} GPUs", wrong, f"{ran.seconds:.0f} s", ran)
        print("\n".join(lines), flush=True)


def equality():
    env = c.environment(
        STRANDLINE_TEST_ROOT=ROOT, STRANDLINE_TEST_SO=c.library, STRANDLINE_TEST_COMMAND=c.command, STRANDLINE_TEST_PYTHON=c.python,
        STRANDLINE_TEST_DEVICES=str(N),
    )
    env.pop("PYTHONPATH")
    for binary in sorted(glob.glob(os.path.join(args.carry, "tests", "*_equality*"))):
        os.chmod(binary, 0o755)
        what = "two_devices" if "preload" in binary else "snapshots_are_torchs_own"
        ran = subprocess.run([binary, what, "--test-threads", "1"], env=env, cwd=ROOT, capture_output=True, text=True, timeout=170)
        result = next((l for l in ran.stdout.splitlines() if l.startswith("test result")), "no result")
        wrong = [] if ran.returncode == 0 and " 1 passed" in result else (ran.stdout + ran.stderr).splitlines()[-40:]
        c.check(f"{os.path.basename(binary)} {what}", wrong, result)


def accelerated():
    """The last rank grows, and the verdict is the same with strandline's callbacks in the loop."""
    verdicts = []
    for callbacks in ([], ["--callbacks"]):
        job = [os.path.join(ROOT, "tests/gpu/accelerated.py"), *callbacks]
        words = [c.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(N), *job]
        name = "callbacks" if callbacks else "plain"
        ran = c.run(f"accelerate-{name}", words, seconds=170)
        wrong, report = whole(ran), ran.report()
        grow = [p["rank"] for p in report["processes"] if accused(p)]
        verdicts.append((report["verdict"], grow, [p["steps"] for p in report["processes"]]))
        if report["verdict"] not in ("leak", "growing") or grow != [N - 1]:
            wrong.append(f"verdict {report['verdict']}, ranks {grow} accused")
        c.check(f"accelerate, {N} GPUs, {name}: what rank {N - 1} keeps is named there", wrong, brief(ran), ran)
    same = [] if verdicts[0] == verdicts[1] else [f"plain {verdicts[0]}, with callbacks {verdicts[1]}"]
    c.check("accelerate: the same verdict with callbacks", same, str(verdicts[0]))


def predicted():
    """What `strandline predict` said of the healthy jobs elsewhere, against what PyTorch and the driver say of each rank here."""
    path = os.path.join(args.carry, "ranks.json")
    if not os.path.exists(path):
        print(f"     not compared with what was predicted: there is no {path}", flush=True)
        return
    with open(path) as f:
        said = json.load(f)
    for kind, told in said.items():
        _, ranked = ranks(f"predicted-{kind}", kind)
        lines, wrong = [], [] if sorted(ranked) == list(range(len(told))) else [f"ranks {sorted(ranked)}, not {len(told)}"]
        for rank, found in sorted(ranked.items()):
            # With the first buckets or without: which, is a matter of 0.1 s.
            more = min((0, told[rank]["buckets"]), key=lambda more: abs(told[rank]["allocated"] + more - found["peak"]))
            with_them = " with DDP's first buckets" if more else ""
            for what, key, most in (("allocated", "peak", 2), ("reserved", "reserved", 3), ("used", "used", 3)):
                off = 100 * ((told[rank][what] + more) / found[key] - 1)
                lines.append(f"rank {rank} {what} {off:+.2f} %{with_them}")
                wrong += [lines[-1]] if abs(off) > most else []
        c.check(f"predicted, {kind} on {N} GPUs", wrong, ", ".join(lines))


if N < 2:
    sys.exit(f"ranks.py: {N} GPUs here, and at least two are needed")
for kind in ("ddp", "fsdp"):
    if kind in parts:
        healthy(kind)
        leaky(kind)
if "attributed" in parts:
    attributed_parts()
if "equality" in parts and not args.simulated:
    equality()
if "accelerate" in parts and not args.simulated:
    accelerated()
if "predicted" in parts and not args.simulated:
    predicted()
c.end(f"ranks on {N} GPUs")
