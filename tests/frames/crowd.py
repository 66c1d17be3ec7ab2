"""More different stacks than there is room for: every one in a file with a name of its own, 16 KiB long.

    crowd.py FOLDER_OF_TORCH_LIB FILES
"""

import sys
import time

from allocator import Allocator

A = Allocator(sys.argv[1])
LONG = "x" * (16 << 10)
for n in range(int(sys.argv[2])):
    space = {"A": A}
    exec(compile(f"A.delete(A.this, A.alloc(A.this, {1000 + n}))", f"{n} {LONG}", "exec"), space)
    time.sleep(0.001)
