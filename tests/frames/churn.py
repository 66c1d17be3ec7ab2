"""Eight threads allocate in functions that are made, run once and thrown away, so that addresses of code objects are used
again all the time. The size of each allocation says which function it was made in.

    churn.py FOLDER_OF_TORCH_LIB SECONDS
"""

import sys
import threading
import time

from allocator import Allocator

FIRST, LINES, NAMES, THREADS = 1000, 100, 48, 8
A = Allocator(sys.argv[1])
end = time.monotonic() + float(sys.argv[2])
sys.setswitchinterval(0.0002)

PLAIN = "def f{0}(size):\n    return alloc(this, size)\nblock = f{0}(size)\n"
GENERATOR = "def f{0}(size):\n    yield alloc(this, size)\nblock = next(f{0}(size))\n"
COROUTINE = """async def f{0}(size):
    return alloc(this, size)
try:
    f{0}(size).send(None)
except StopIteration as e:
    block = e.value
"""


def work(thread):
    space = {"alloc": A.alloc, "this": A.this}
    kept, n = [], thread
    while time.monotonic() < end:
        n = (n * 1103515245 + 12345) & 0x7FFFFFFF
        line, name = (n >> 8) % LINES, (n >> 16) % NAMES
        source = "\n" * line + (PLAIN, GENERATOR, COROUTINE)[name % 3].format(name)
        space["size"] = FIRST + (line * NAMES + name) * THREADS + thread
        exec(compile(source, f"<churn {name}>", "exec"), space)
        kept.append(space["block"])
        del space[f"f{name}"]
        if len(kept) > 20:
            A.delete(A.this, kept.pop((n >> 4) % 20))


workers = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
[w.start() for w in workers]
[w.join() for w in workers]
