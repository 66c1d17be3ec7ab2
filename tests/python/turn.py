"""The card for one of several jobs at a time."""

import fcntl
import os
import shutil
import subprocess
import time

# What a card is used for when nobody uses it, at most: bytes.
IDLE = 2 << 30
_lock = None


def used():
    """Bytes of the first card that are used, as its driver says, without this process's preload; `None` where nobody can be asked."""
    if not shutil.which("nvidia-smi"):
        return None
    bare = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(ask, env=bare, capture_output=True, text=True, check=True).stdout) << 20


def take():
    """Where `TURN` names a file: waits for the lock on it, and until what the last process held has gone back: that takes the driver a moment
    longer than the process."""
    global _lock
    if "TURN" not in os.environ:
        return
    _lock = open(os.environ["TURN"])
    fcntl.flock(_lock, fcntl.LOCK_EX)
    until = time.monotonic() + 20
    while (used() or 0) > IDLE and time.monotonic() < until:
        time.sleep(0.2)
