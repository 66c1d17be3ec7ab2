#!/usr/bin/env python3
"""through.py SCRIPT [ARGUMENT…]: a script of leakbench whose device memory comes through PyTorch's pluggable allocator."""
import os, runpy, sys

import strandline

strandline.use_allocator()
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")
