#!/usr/bin/env python3
"""What a CUDA context takes, as the command measures it, and what that makes of a job's memory, in lines of PASS and FAIL.

usage: context.py CARRY OUT [--python PY] [--simulated]

CARRY as in tests/gpu/all.sh, on idle cards. `strandline doctor --context` against what PyTorch says is used by a process that has
nothing but a context; then a job whose report must attribute what the device says is used, within 2 %. Exit status 1 where a line is
FAIL. --simulated: on a simulated card that processes share.
"""
import argparse, glob, os, sys

from carried import MIB, Carried, measure_context, own_context, whole

p = argparse.ArgumentParser()
p.add_argument("carry")
p.add_argument("out")
p.add_argument("--python", default=sys.executable)
p.add_argument("--simulated", action="store_true")
args = p.parse_args()
c = Carried(args.carry, args.out, args.python, args.simulated)
os.chmod(c.command, 0o755)
os.environ["XDG_CACHE_HOME"] = os.path.join(c.work, "cache")  # what another day knew is not asked
JOB = "tests/python/context.py"


def simulate():
    """The driver that is found is the one beside this Python's torch; every process on one card."""
    import importlib.util

    card = os.path.join(c.work, "card")
    os.makedirs(card, exist_ok=True)
    site = os.path.dirname(os.path.dirname(importlib.util.find_spec("torch").origin))
    os.environ.update(LD_LIBRARY_PATH=os.path.join(site, "nvidia/cu13/lib"), STRANDLINE_SIM_CARD=card, STRANDLINE_SIM_CONTEXT="526MiB")


if args.simulated:
    simulate()
said = measure_context(c)
print("\n".join("     > " + line for line in said.splitlines()), flush=True)
c.check("a context is measured", [] if said.startswith("strandline: a CUDA context takes ") else ["it is not"])
alone = c.job("alone", JOB, preload=False).said().get("used", [0])[0]
large = (256, 4) if args.simulated else (8192, 30)
ran = c.job("held", JOB, "hold", *large)
process, used = ran.process(), ran.said().get("used", [0])[0]
own = own_context(process, 0) or 0
for path in glob.glob(os.path.join(ran.out, "*.watch")):
    with open(path) as f:
        print("     > " + f.readline().strip(), flush=True)  # what the watcher knew of the card: name and driver must be those above
off = (own - alone) / alone if alone else 1.0
# What the first context of a card brings with it is in the second figure alone.
c.check("it is what PyTorch's context takes", [] if abs(off) <= 0.1 else ["more than 10 % off"], f"{own >> 20} MiB, PyTorch's {alone >> 20} ({100 * off:+.1f} %)", ran)
attributed = next((d["attributed_bytes"] for d in process.get("devices", [])), 0) or 0
off = (attributed - used) / used if used else 1.0
figure = f"used {used >> 20} MiB, attributed {attributed >> 20} ({100 * off:+.2f} %)"
c.check("attributed and used, a large model", whole(ran) + ([] if abs(off) <= 0.02 else ["more than 2 % off"]), figure, ran)
print("\n".join("     > " + line for line in ran.ask("report", ran.out).stdout.splitlines()[:8]), flush=True)
print(f"{'FAIL' if c.failed else 'PASS'} context: {c.failed} failed")
sys.exit(1 if c.failed else 0)
