"""Exceptions that come from outside while CUDA starts: each is caught where it would be without us.

    interrupted.py sent|timer      from another thread's call, or from a signal's handler again and again
"""

import ctypes
import functools
import operator
import signal
import sys
import threading

import torch


class Late(Exception):
    pass


def sent():
    python = ctypes.PyDLL(None)
    for number, kind in enumerate((Late, TimeoutError, RuntimeError, KeyboardInterrupt)):
        send = functools.partial(
            python.PyThreadState_SetAsyncExc, ctypes.c_ulong(threading.get_ident()), ctypes.py_object(kind)
        )
        first = torch._C._cuda_init if number == 0 else lambda: torch.zeros(1, device="cuda")
        try:
            list(map(operator.call, [send, first]))
            print("nothing came")
        except BaseException as e:
            print(type(e).__name__)


def timer():
    raised = caught = 0
    work = [torch._C._cuda_init]

    def interrupted():
        while work:
            work.pop()()
        while raised < 400:
            pass

    def handler(_, frame):
        nonlocal raised
        below = set()
        while frame:
            below.add(frame.f_code)
            frame = frame.f_back
        if interrupted.__code__ in below and handler.__code__ not in below and raised < 400:
            raised += 1
            raise Late(raised)

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
    while raised < 400:
        try:
            interrupted()
        except Late:
            caught += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(caught, raised)


{"sent": sent, "timer": timer}[sys.argv[1]]()
torch.zeros(2, device="cuda")
print("end")
