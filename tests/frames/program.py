"""Allocates in every kind of frame and says, on stdout, what the stack was by the interpreter's own word.

    program.py FOLDER_OF_TORCH_LIB held|released CASE…
"""

import asyncio
import functools
import gc
import json
import re
import sys
import threading
import time

from allocator import Allocator

FIRST = 1000
lock = threading.Lock()
said = []
count = 0


def number():
    global count
    with lock:
        count += 1
        return FIRST + count


def note(size, block, frame):
    ALLOCATOR.delete(ALLOCATOR.this, block)
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append([code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)])
        frame = frame.f_back
    said.append({"size": size, "frames": frames})


def take():
    size = number()
    note(size, ALLOCATOR.alloc(ALLOCATOR.this, size), sys._getframe())


class Thing:
    def method(self):
        take()

    @classmethod
    def of_class(cls):
        take()

    @staticmethod
    def of_nobody():
        take()

    @property
    def attribute(self):
        take()

    def __enter__(self):
        take()

    def __exit__(self, *_):
        take()

    def __del__(self):
        take()


def größe():
    take()


def 函数():
    take()


exec(compile("def 𠀀():\n\n    take()\n", "<𠀀 astral>", "exec"))


def plain():
    take()
    (lambda: take())()
    [take() for _ in range(2)]
    {k: take() for k in range(2)}
    thing = Thing()
    thing.method(), Thing.of_class(), thing.of_nobody(), thing.attribute
    with thing:
        take()
    del thing
    größe(), 函数(), globals()["𠀀"]()
    list(map(lambda _: take(), range(2)))
    sorted(range(4), key=lambda n: take() or n)
    re.sub("a", lambda _: take() or "b", "aa")
    functools.partial(functools.reduce, lambda a, b: take(), range(3))()

    class Body:
        take()

    try:
        raise ValueError
    except ValueError:
        take()
    finally:
        take()
    for _ in (
        take(),
        take(),
    ):
        take(
        )
    exec("take()\n\ntake()")
    eval("(take(),\n take())")


def recursion():
    def down(n):
        if n % 100 == 0:
            take()
        if n:
            down(n - 1)

    sys.setrecursionlimit(2000)
    down(700)


def generators():
    def inner(n):
        for _ in range(n):
            take()
            yield take()

    def outer():
        yield from inner(3)
        try:
            yield
        finally:
            take()

    for _ in outer():
        take()
    unfinished = outer()
    next(unfinished)
    unfinished.close()
    list(take() for _ in range(3))
    two = [inner(2), inner(2)]
    [next(g) for _ in range(2) for g in two]


def coroutines():
    async def leaf(n):
        take()
        await asyncio.sleep(0)
        take()
        return n

    async def stream():
        for n in range(2):
            yield await leaf(n)

    async def main():
        await asyncio.gather(*(leaf(n) for n in range(4)))
        async for _ in stream():
            take()
        [await leaf(n) for n in range(2)]
        asyncio.get_running_loop().call_soon(take)
        await asyncio.sleep(0.001)

    asyncio.run(main())


def reuse():
    """Code objects that die, and others with the same names at the same addresses."""
    seen, again = set(), 0
    for n in range(400):
        space = {"take": take}
        exec(compile("\n" * (n % 50) + "def f(): take()\nf()\n", "<again>", "exec"), space)
        place = id(space["f"].__code__)
        again += place in seen
        seen.add(place)
        del space
    said.append({"reused": again})


def threads():
    def work(n):
        for _ in range(20):
            (take if n % 2 else größe)()

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [w.start() for w in workers]
    [w.join() for w in workers]


def observed():
    sys.setprofile(lambda *_: None)
    take()
    sys.setprofile(None)
    sys.settrace(lambda *_: None)
    take()
    sys.settrace(None)


def begun():
    """Frames that are made and do not run yet: a collection comes while their cells, or the generator, are made (up to 3.11)."""

    class Cycle:
        def __del__(self):
            gc.disable()
            take()

    def cells(a, b, c):
        return lambda: (a, b, c)

    def generator(a):
        yield lambda: a

    async def coroutine(a):
        return lambda: a

    before = gc.get_threshold()
    gc.collect()
    gc.disable()
    gc.set_threshold(1)
    for n in range(60):
        cycles = [Cycle() for _ in range(5)]
        for c in cycles:
            c.itself = c
        del cycles, c
        call = (cells, generator, coroutine)[n % 3]
        arguments = (n, n, n)[: 3 if n % 3 == 0 else 1]
        gc.enable()
        made = call(*arguments)
        gc.disable()
        if n % 3 == 2:
            made.close()
    gc.set_threshold(*before)
    gc.enable()
    gc.collect()


def wait():
    """Runs long enough for a thread that looks for the interpreter now and then, on a busy machine too."""
    for _ in range(20):
        time.sleep(0.05)


def settle():
    """Runs long enough for a pending call."""
    for _ in range(100_000):
        pass


folder, how, *cases = sys.argv[1:]
ALLOCATOR = Allocator(folder, held=how == "held")
for case in cases:
    globals()[case]()
    for row in said:
        print(json.dumps({"case": case, **row}))
    said.clear()
