"""Shows snapshots to torch/cuda/_memory_viz.py in every way it has, without importing torch.

    memory_viz.py SNAPSHOT...
"""

import importlib.util
import os
import pickle
import sys


def reader():
    # The package is found, not imported: that would take seconds.
    torch = importlib.util.find_spec("torch").submodule_search_locations[0]
    path = os.path.join(torch, "cuda", "_memory_viz.py")
    spec = importlib.util.spec_from_file_location("_memory_viz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


viz = reader()
for path in sys.argv[1:]:
    with open(path, "rb") as f:
        snapshot = pickle.load(f)
    lines = viz.segsum(snapshot), viz.trace(snapshot), viz.trace_plot(snapshot), viz.segment_plot(snapshot)
    # Its flame graphs come from a script that it would download; what it feeds to that is what matters.
    flames = [f(snapshot, lambda text, **_: text) for f in (viz.segments, viz.memory)]
    assert all(lines) and all(flames), path
    print(os.path.basename(path), *(len(x) for x in (*lines, *flames)))
