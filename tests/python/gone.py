"""What cells and generators have dies while a probe is on its way up to who has them.

usage: gone.py SECONDS        with STRANDLINE_PROBE=on:0, best with PYTHONMALLOC=debug

Lays a question about blocks that functions have closed over and generators have in variables, and lets those go in the middle of it: the functions
get new ones, the generators end and are kept.
"""
import json, os, random, sys, time

import torch

ends = time.time() + float(sys.argv[1])


class Box:
    def __init__(self):
        self.t = torch.empty(512, device="cuda")


def make():
    box = Box()

    def change():
        nonlocal box
        before, box = box, Box()
        return address(before)

    return change


def generator():
    box = Box()
    yield address(box)
    del box


def kept():
    box = Box()
    yield address(box)


def address(box):
    return box.t.untyped_storage().data_ptr()


def place():
    folder = os.environ["STRANDLINE_TAIL"]
    tails = [os.path.join(folder, n) for n in os.listdir(folder) if n.startswith("strandline-") and "." not in n]
    return tails[0] + ".ask", tails[0] + ".asking"


closed = [make() for _ in range(64)]
many = [[i] for i in range(200_000)]
ask, asking = place()
asked = 0
random.seed(1)
while time.time() < ends:
    boxes = [change.__closure__[0].cell_contents for change in closed]
    running = [kind() for kind in (generator, kept) * 32]
    findings = [("closures", [address(box) for box in boxes]), ("generators", [next(g) for g in running])]
    del boxes
    if not os.path.exists(ask):
        asked += 1
        with open(asking, "w") as f:
            json.dump({"number": asked, "findings": [{"about": about, "blocks": blocks} for about, blocks in findings]}, f)
        os.rename(asking, ask)
    until = time.time() + random.uniform(0.02, 0.3)
    while time.time() < until:
        time.sleep(0.001)
    for change in closed:
        change()
    for g in running:
        list(g)
    until = time.time() + 0.05
    while time.time() < until:
        time.sleep(0.001)
print("asked", asked, file=sys.stderr)
