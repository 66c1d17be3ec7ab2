"""What a region leaves behind is told with the statement that keeps it: the line with `# keeps it`, or none."""

import collections
import functools
import pathlib

import torch

import strandline

history = []
table = {}
queue = collections.deque()
losses = []


def block():
    return torch.zeros(1 << 20, device="cuda")


class Trainer:
    seen = []

    def __init__(self):
        self.log, self.state = [], {}


class Slots:
    __slots__ = ("rows",)

    def __init__(self):
        self.rows = []


trainer = Trainer()
slots = Slots()


def list_of_a_module():
    history.append(block())  # keeps it


def attribute():
    x = block()
    trainer.log.append(x)  # keeps it


def entry():
    trainer.state[3] = block()  # keeps it


def slot():
    slots.rows.append(block())  # keeps it


def list_of_a_class():
    Trainer.seen.append(block())  # keeps it


def make():
    held = []

    def inner():
        held.append(block())  # keeps it

    return inner


inner = make()


@functools.lru_cache(maxsize=8)
def cached(key):
    return torch.zeros(1 << 20, device="cuda")


def called_once():
    cached(1)


def dictionary_in_a_queue():
    queue.append({"x": block()})  # keeps it


def loss_with_its_graph():
    w = torch.ones(1000, 1000, device="cuda", requires_grad=True)
    losses.append((w * 2).sum(dim=0))  # keeps it


def one_of_two():
    # Which of the two it is cannot be told.
    history.append(block()) if len(history) > 99 else history.insert(0, block())


source = pathlib.Path(__file__).read_text().splitlines()


def statement_of(function):
    """The number of its line that keeps it."""
    first = function.__code__.co_firstlineno
    return next(n for n in range(first, len(source) + 1) if source[n - 1].endswith("# keeps it"))


for function in (list_of_a_module, attribute, entry, slot, list_of_a_class, inner, dictionary_in_a_queue, loss_with_its_graph):
    try:
        with strandline.watch_region(limit="16 KiB"):
            function()
        raise SystemExit(f"{function.__name__} left nothing")
    except strandline.Leaked as leaked:
        kept = [line.kept_at for line in leaked.left.lines if line.kept_at]
        number = statement_of(function)
        wanted = f"{__file__}:{number}: {source[number - 1].partition('  #')[0].strip()}"
        assert kept == [wanted], (function.__name__, kept, wanted)
        assert f"kept at {wanted}" in str(leaked)

# A cache that is called from elsewhere, and two lines whose blocks one dictionary has.
try:
    with strandline.watch_region():
        called_once()
except strandline.Leaked as leaked:
    assert leaked.left.lines[0].kept_at.endswith(": @functools.lru_cache(maxsize=8)"), leaked
try:
    with strandline.watch_region():
        table["a"] = torch.zeros(1 << 20, device="cuda")
        table["b"] = torch.zeros(1 << 19, device="cuda")
except strandline.Leaked as leaked:
    print(leaked)
    assert [line.kept_by for line in leaked.left.lines] == ["__main__.table (dict with 2 entries)"] * 2, leaked
# What cuBLAS keeps for itself from the first matrix product on is not what the dictionary keeps.
weight = torch.ones(256, 256, device="cuda")
table.clear()
try:
    with strandline.watch_region(limit="1 KiB"):
        for i in range(10):
            table[i] = weight @ weight
except strandline.Leaked as leaked:
    (line,) = leaked.left.lines
    apart = line.without_tensor
    assert apart is not None and line.blocks - apart[0] == 10 and line.bytes - apart[1] == 10 * 256 * 1024, leaked
    assert f"{apart[0]} of these" in str(leaked) or f"{apart[0]} block" in str(leaked), leaked
# Where it could be one of several, none is named; nor where nothing is over the limit.
history.clear()
try:
    with strandline.watch_region():
        one_of_two()
except strandline.Leaked as leaked:
    assert leaked.left.lines[0].kept_at is None, leaked
    assert leaked.left.lines[0].kept_by == "__main__.history (list with 1 entry)", leaked
with strandline.watch_region(limit=None) as region:
    history.append(block())
assert region.left.lines[0].kept_at is None
# Lines of a file that was modified since are not what ran.
pathlib.Path(__file__).touch()
try:
    with strandline.watch_region():
        list_of_a_module()
    raise SystemExit("it left nothing")
except strandline.Leaked as leaked:
    line = leaked.left.lines[0]
    assert (line.kept_at, line.modified_source) == (None, __file__), leaked
    assert f"kept at unknown: {__file__} was modified after the run began" in str(leaked)
print("done")
