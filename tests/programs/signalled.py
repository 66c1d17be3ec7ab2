"""A thread of the job's signals it while CUDA is initialized for the first time; the handler uses CUDA, and must not wait for the lock that is
held meanwhile. Python's version decides whether there is room for a handler: 3.11 has none."""

import os
import signal
import threading
import time

import torch

DONE = []


def handler(number, frame):
    DONE.append(torch.empty(3, device="cuda"))


def send():
    time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGUSR1)


signal.signal(signal.SIGUSR1, handler)
# It hung for ever once.
signal.alarm(60)
thread = threading.Thread(target=send)
thread.start()
torch.cuda.init()
thread.join()
time.sleep(0.01)
print("handled", len(DONE), flush=True)
