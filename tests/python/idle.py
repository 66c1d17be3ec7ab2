"""Beside a process that asks CUDA for a device and its stream, and does nothing with its memory, as processes that compile for a job do.

    idle.py [alone]     a healthy training job of 20 steps; alone: nothing else
"""

import subprocess
import sys

ASKS = "import torch; print(torch.cuda.get_device_properties(0).name, torch.cuda.current_stream()); torch.cuda.synchronize()"
print(subprocess.run([sys.executable, "-c", ASKS], check=True, capture_output=True, text=True).stdout)
if sys.argv[1:] != ["alone"]:
    import launched

    launched.train(20)
