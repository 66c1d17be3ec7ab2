"""C code ends threads inside a call of Python's, so that Python has their states for ever, and their stacks are written over.

usage: cut_short.py        with STRANDLINE_PROBE=on:0

Up to Python 3.12 a thread's state points to its own stack. Odd threads leave words there that are no addresses, even ones those of memory in which no frame is.
"""
import _thread, ctypes, threading, time

import torch

libc, THREADS = ctypes.CDLL(None), 8
libc.pthread_self.restype = ctypes.c_void_p
ELSEWHERE = ctypes.create_string_buffer(4096)
STACK, TOP, DEPTH = 1 << 20, 1 << 16, 80
threading.stack_size(STACK)
ended = []
together, trained = threading.Barrier(THREADS + 1), threading.Event()


def end(_):
    ended.append(1)
    libc.pthread_exit(None)


def down(left):
    # `sorted` has an array of 2 KiB on the stack.
    sorted((0,), key=(lambda _: down(left - 1)) if left else end)


def write_over(i):
    together.wait()  # each has the stack of another
    attributes, base, size = ctypes.create_string_buffer(256), ctypes.c_void_p(), ctypes.c_size_t()
    assert libc.pthread_getattr_np(ctypes.c_void_p(libc.pthread_self()), attributes) == 0
    assert libc.pthread_attr_getstack(attributes, ctypes.byref(base), ctypes.byref(size)) == 0
    n = size.value - TOP
    word = 0x4141414141414141 if i % 2 else ctypes.addressof(ELSEWHERE)
    ctypes.memmove(base, (ctypes.c_uint64 * (n // 8))(*[word] * (n // 8)), n)
    together.wait()
    trained.wait()  # glibc empties a stack as its thread ends


for _ in range(THREADS):
    _thread.start_new_thread(down, (DEPTH,))
while len(ended) < THREADS:
    time.sleep(0.01)
time.sleep(0.1)
writers = [threading.Thread(target=write_over, args=(i,)) for i in range(THREADS)]
[w.start() for w in writers]
together.wait()
together.wait()


class Kept:
    pass


def train():
    kept, layer = Kept(), torch.nn.Linear(8, 8).cuda()
    kept.all, optimizer = [], torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(80):
        kept.all.append(torch.empty(1000, device="cuda"))
        layer(torch.ones(2, 8, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
    print(len(kept.all), flush=True)


train()
trained.set()
