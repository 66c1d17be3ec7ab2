"""A job that tells what reaches it: one line for each signal, and facts about its terminal and its parent."""
import os
import signal
import sys
import time

NAMES = {getattr(signal, n): n for n in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGWINCH", "SIGCONT", "SIGILL", "SIGFPE")}
seen = []


def note(number, frame):
    seen.append(NAMES[number])
    os.write(1, f"got {NAMES[number]}\n".encode())
    if number == signal.SIGTERM:
        os.write(1, ("counts " + " ".join(f"{n}={seen.count(n)}" for n in sorted(set(seen))) + "\n").encode())
        os._exit(7)


for number in NAMES:
    signal.signal(number, note)
with open(os.environ["JOB_FACTS"], "w") as f:
    tty = [int(os.isatty(i)) for i in range(3)]
    try:
        foreground = int(tty[0] and os.tcgetpgrp(0) == os.getpgrp())
    except OSError:  # a session of its own has no terminal
        foreground = 0
    f.write(f"pid={os.getpid()} group={os.getpgrp()} parent={os.getppid()} tty={tty} foreground={foreground} argv={sys.argv[1:]}\n")
os.write(1, b"ready\n")
while True:
    time.sleep(3600)
