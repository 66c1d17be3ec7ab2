"""What the recorder does between two allocations, on threads that have never allocated before and on ones that have.

    windows.py FOLDER_OF_TORCH_LIB LIBRARY_OF_COUNTERS
    windows.py FOLDER_OF_TORCH_LIB traced
    windows.py FOLDER_OF_TORCH_LIB LIBRARY_OF_COUNTERS calls     CUDA calls one by one, beside that allocator
    windows.py FOLDER_OF_TORCH_LIB LIBRARY_OF_COUNTERS torch     a step of PyTorch, with the allocator that it was told to use
"""

import ctypes
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "frames"))
from allocator import Allocator  # noqa: E402

folder, counters, *what = sys.argv[1:]
A = None if what == ["torch"] else Allocator(folder)
SIZE = 4096
NEXT = list(range(8))


def address(function):
    return ctypes.cast(function, ctypes.c_void_p)


def window(pairs):
    """One line for all windows: the stack of an allocation is where its thread called us, and it shall be the same."""
    C.counted_window(address(A.alloc), address(A.delete), ctypes.c_void_p(A.this), ctypes.c_size_t(SIZE), pairs)
    calls = {C.counted_name(i).decode(): C.counted_hits(i) for i in range(imports) if C.counted_hits(i)}
    return {"calls": calls, "system_call": C.counted_refused()}


def unseen(n, depth):
    """A window at the end of functions that did not exist before: in files and by names of every width of character."""
    letter = "aé函𠀀"[n % 4]
    space = {"window": window}
    for d in range(depth):
        inner = f"f{letter.replace('𠀀', '𐌰')}{d - 1}()" if d else "window(1)"
        source = "\n" * n + f"def f{letter.replace('𠀀', '𐌰')}{d}():\n    return {inner}\n"
        exec(compile(source, f"<{letter} {n} {d}>", "exec"), space)
    return space[f"f{letter.replace('𠀀', '𐌰')}{depth - 1}"]()


def thread(name):
    said = []

    def work():
        for pairs in (1, 1000):
            said.append(window(pairs))
        said.extend(unseen(NEXT.pop(), depth) for depth in (1, 3, 30, 300))
        done.set()
        threading.Event().wait()  # it stays: the next one gets a place that nobody had

    done = threading.Event()
    threading.Thread(target=work, daemon=True).start()
    done.wait()
    for which, row in zip(("first", "later", "unseen", "unseen", "unseen", "unseen"), said):
        print(json.dumps({"thread": name, "window": which, **row}))


def cuda_calls():
    """Every kind of hook that a step may meet, on a thread that has never called CUDA, and again."""
    word, everything = ctypes.c_void_p, ctypes.CDLL(None)
    cudart = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "/libcudart.so" in line))
    memory, stream, event, pinned, words = word(), word(), word(), word(), (ctypes.c_size_t * 2)()

    def at(place):
        return lambda: ctypes.addressof(place)

    def of(place):
        return lambda: place.value

    calls = [
        ("cudaMallocAsync", at(memory), 4096, 0),  # the first event
        ("cudaFreeAsync", of(memory), 0),
        ("cudaStreamCreateWithFlags", at(stream), 1),
        ("cudaEventCreate", at(event)),
        ("cudaEventRecord", of(event), of(stream)),
        ("cudaStreamWaitEvent", of(stream), of(event), 0),
        ("cudaEventQuery", of(event)),
        ("cudaEventSynchronize", of(event)),
        ("cudaStreamQuery", of(stream)),
        ("cudaStreamSynchronize", of(stream)),
        ("cudaDeviceSynchronize",),
        ("cudaMalloc", at(memory), 1 << 20),
        ("cudaMemGetInfo", at(words), ctypes.addressof(words) + 8),
        ("cudaFree", of(memory)),
        ("cudaMalloc", at(memory), 1 << 50),  # refused
        ("cudaGetLastError",),
        ("cudaHostAlloc", at(pinned), 4096, 0),
        ("cudaMemcpyAsync", of(pinned), of(pinned), 16, 0, of(stream)),
        ("cudaFreeHost", of(pinned)),
        ("cudaSetDevice", 0),
        ("_ZN3c104cuda20getCurrentCUDAStreamEa", 0),
        ("cudaEventDestroy", of(event)),
        ("cudaStreamDestroy", of(stream)),
    ]
    for name, *arguments in calls:
        values = [word(a() if callable(a) else a) for a in arguments]
        with_ = (word * 5)(*values)
        # By the global scope, where hooks are; what is not hooked is there for nobody.
        function = getattr(everything, name, None) or getattr(cudart, name)
        status = C.counted_call(address(function), with_)
        hits = {C.counted_name(i).decode(): C.counted_hits(i) for i in range(imports) if C.counted_hits(i)}
        yield {"call": name, "status": status, "calls": hits}


def step(torch, model, optimizer):
    """Blocks, streams, a backward and an optimizer's step; 200 of them, so that some events are timed."""
    side = torch.cuda.Stream()
    for n in range(200):
        block = torch.empty(1000 * (n + 1), device="cuda")
        with torch.cuda.stream(side):
            other = torch.empty(1000, device="cuda")
        other.record_stream(torch.cuda.current_stream())
        side.synchronize()
        del block, other
    optimizer.zero_grad()
    model(torch.ones(4, 8, device="cuda")).sum().backward()
    optimizer.step()


def torch_steps():
    import torch

    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):  # hooks are put on optimizers, code that loads itself is loaded
        step(torch, model, optimizer)
    said = []

    def work():
        for _ in range(2):
            C.counted_from_here()
            step(torch, model, optimizer)
            C.counted_to_here()
            said.append({C.counted_name(i).decode(): C.counted_hits(i) for i in range(imports) if C.counted_hits(i)})

    for _ in range(2):
        t = threading.Thread(target=work)
        t.start()
        t.join()
    for calls in said:
        print(json.dumps({"call": "a step", "status": 0, "calls": calls}))


if A:
    A.delete(A.this, A.alloc(A.this, SIZE))  # the segment
if counters == "traced":
    for _ in range(200):
        A.delete(A.this, A.alloc(A.this, SIZE))
    os._exit(0)
time.sleep(0.3)  # what waits for this thread and the GIL runs: a window refuses to wake who waits for the loader's lock
C = ctypes.CDLL(counters)
C.counted_name.restype = ctypes.c_char_p
C.counted_hits.restype = ctypes.c_uint64
C.counted_refused.restype = C.counted_self_test.restype = ctypes.c_long
imports = C.counted_begin()
print(json.dumps({"imports": imports, "kept": C.counted_kept(), "self_test": C.counted_self_test()}))
if what == ["torch"]:
    torch_steps()
    sys.exit()
if what == ["calls"]:
    said = []
    for _ in range(2):
        t = threading.Thread(target=lambda: said.extend([*cuda_calls(), *cuda_calls()]))
        t.start()
        t.join()
    print(*map(json.dumps, said), sep="\n")
    sys.exit()
thread("one that is the first in its stack")
thread("another")
