#!/usr/bin/env python3
"""torch.compile: is a compiled job recorded as PyTorch counts it, left as it is, and judged right? Lines of PASS and FAIL.

usage: compile.py CARRY OUT [--python PY] [--jobs N] [--simulated] [PART…]

PARTs: inductor reduce-overhead aot_eager cudagraphs (default: all; on the simulated device the last two, since inductor needs Triton).
Of each: a bare run and a recorded one with the same losses, peaks, graphs and graph breaks; a planted leak, which is named; with a
compiled optimizer, too. Each job has caches of its own, so that each compiles; `again` has its twin's. Exit status 1 where a line is FAIL.
"""
import concurrent.futures, importlib.util, os, shutil, sysconfig

from carried import MIB, asked, loud, planted, whole

PARTS = ["inductor", "reduce-overhead", "aot_eager", "cudagraphs"]
args, parts, c = asked(__doc__, PARTS, simulated=PARTS[2:], jobs=5)
SCRIPT, STEPS = "tests/python/compiled.py", 40
ENV = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TORCHINDUCTOR_DETERMINISTIC": "1", "TORCHINDUCTOR_COMPILE_THREADS": "4", "TOKENIZERS_PARALLELISM": "false"}
# What a recorded job must have in common with a bare one. Values are none on the simulated device: no kernel is run.
ALIKE = ["losses", "peak", "reserved", "graphs", "breaks", "skips"][args.simulated :]


def job(name, backend, *options, preload=True, caches=None):
    at = os.path.join(c.work, caches or name)
    env = dict(ENV, TORCHINDUCTOR_CACHE_DIR=os.path.join(at, "inductor"), TRITON_CACHE_DIR=os.path.join(at, "triton"))
    return c.job(name, SCRIPT, backend, *options, STEPS, preload=preload, seconds=240, **env)


def recorded(ran):
    """The training process, and complaints: what compiles for it does nothing with GPU memory."""
    all_of_it = [p for p in ran.report()["processes"] if p["coverage"]["level"] != "none"]
    wrong = whole(ran) + [f"{len(all_of_it)} processes are recorded"] * (len(all_of_it) != 1)
    return max(all_of_it, key=lambda p: p["events"], default={}), wrong


def as_torch_counts(process, said):
    d = (process.get("devices") or [{}])[0]
    ours = {"peak": d.get("peak_allocated_bytes"), "reserved": d.get("peak_reserved_bytes")}
    return [f"{k} {v}, PyTorch says {said.get(k)}" for k, v in ours.items() if v != said.get(k)]


def figures(ran, process, said):
    found = [f"{f['kind']} {f['bytes_per_step'] / MIB:.1f} MiB/step" for f in loud(process)]
    counts = f"{process.get('steps')} steps ({process.get('step_source')}), {process.get('microbatches')} backwards, {process.get('events')} events"
    compiled = f"{said.get('graphs')} graphs, {said.get('breaks')} breaks, {said.get('skips')} without CUDA graphs"
    return " · ".join([ran.report()["verdict"], *found, counts, compiled, f"peak {said.get('peak', 0) / MIB:.0f} MiB", f"{ran.seconds:.0f} s"])


def steps_are(process, source, allowed):
    right = process.get("steps") in allowed and process.get("step_source") == source
    return [] if right else [f"{process.get('steps')} steps by {process.get('step_source')}, not {allowed} by {source}"]


def twins(backend, *options):
    """Bare and recorded."""
    name = "-".join([backend, *options])
    with concurrent.futures.ThreadPoolExecutor(2) as both:
        runs = [both.submit(job, f"{name}-{how}", backend, *options, preload=how == "recorded") for how in ("bare", "recorded")]
        bare, ran = (f.result() for f in runs)
    is_like(name, bare, ran, options)
    if backend == "inductor" and not options:  # from caches: nothing is traced
        again = [job(f"{name}-{how}-again", backend, preload=how == "recorded", caches=f"{name}-recorded") for how in ("bare", "recorded")]
        is_like(f"{name} from its caches", *again, options)


def is_like(name, bare, ran, options):
    said, alone = ran.said(), bare.said()
    process, wrong = recorded(ran)
    wrong += [f"the bare run's status is {bare.status}"] * (bare.status != 0)
    wrong += [f"{k}: {str(said.get(k))[:90]}, bare {str(alone.get(k))[:90]}" for k in ALIKE if said.get(k) != alone.get(k)]
    wrong += as_torch_counts(process, said)
    # A compiled step runs no hooks.
    wrong += steps_are(process, "backward" if "optimizer" in options else "optimizer", [STEPS])
    if ran.report()["verdict"] != "clean" or loud(process):
        wrong.append(f"verdict {ran.report()['verdict']}: {[f['kind'] for f in loud(process)]}")
    c.check(f"{name}: as it is alone, and clean", wrong, figures(ran, process, said) + f" (bare {bare.seconds:.0f} s)", ran, bare)


def leaks(backend, what):
    """`copies` are one line's; a kept output's graph was allocated by the compiled code of a `forward`, and what else is kept is noise."""
    ran = job(f"{backend}-{what}", backend, what)
    process, wrong = recorded(ran)
    said, found = ran.said(), loud(process)
    wrong += as_torch_counts(process, said) + steps_are(process, "optimizer", [STEPS])
    lines = [(s["your_line"] or {}) for f in found for s in f["sites"]]
    if ran.report()["verdict"] != "leak" or not lines:
        wrong.append(f"verdict {ran.report()['verdict']}, {len(found)} findings")
    elif what == "copies":
        if lines[0].get("line") != planted(SCRIPT) or found[0]["bytes_per_step"] != 64 * MIB or len(found) != 1:
            wrong.append(f"named {lines}, {[f['bytes_per_step'] for f in found]} bytes a step")
    elif not (str(lines[0].get("file", "")).endswith("compiled.py") and str(lines[0].get("function")).endswith("forward")):
        wrong.append(f"named {lines[:2]}")
    where = f" · at line {lines[0].get('line')} {lines[0].get('function')}" if lines else ""
    c.check(f"{backend}: a leak of {what} is named", wrong, figures(ran, process, said) + where, ran)


def triton_lacks():
    """What Triton, which inductor compiles with, needs and has not here: it builds a small library of C for the driver."""
    compiler = any(map(shutil.which, [os.environ.get("CC") or "cc", "gcc", "clang"]))
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    there = {"Triton": importlib.util.find_spec("triton"), "a C compiler (cc, gcc, clang or CC)": compiler, header: os.path.exists(header)}
    return [name for name, is_there in there.items() if not is_there]


jobs, skipped, lacks = [], [], triton_lacks()
for part in parts:
    if part in ("inductor", "reduce-overhead") and lacks:
        skipped.append(part)
        continue
    jobs += [lambda b=part: twins(b), lambda b=part: twins(b, "optimizer"), lambda b=part: leaks(b, "copies")]
    if part in ("inductor", "aot_eager"):
        jobs.append(lambda b=part: leaks(b, "graphs"))
if skipped:
    print(f"SKIP {', '.join(skipped)}: there is no {', no '.join(lacks)}", flush=True)
c.together(jobs, args.jobs)
c.end("compile", len(skipped))
