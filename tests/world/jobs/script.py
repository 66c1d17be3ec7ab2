"""script.py PACKAGE/PATH.py [ARGUMENT…]: a script out of an installed package, run as it is, as a main program.

What it prints is compared as it is; the last line says the peak of this process.
"""
import importlib.util
import os
import runpy
import sys

import seen


def _find(name):
    package, _, rest = name.partition("/")
    found = importlib.util.find_spec(package)
    if found is None:
        sys.exit(f"{package} is not installed")
    return os.path.join(os.path.dirname(found.origin), rest)


seen.start()
path = _find(sys.argv[1])
sys.argv = [path, *sys.argv[2:]]
sys.path.insert(0, os.path.dirname(path))
try:
    runpy.run_path(path, run_name="__main__")
finally:
    seen.end()
