"""A job in whatever surroundings it is put: it uses the device, and says what it can see of its process.

    surrounded.py [threads] [another] [closes] [loader] [alloc] [delete] [stalls] [floods] [goes] [descriptors] [fails] [kill]

It allocates through the driver alone, so that it starts in no time; with `loader` it is PyTorch that reads batches from workers.
`stalls`: its recording's disk does, while it allocates; `floods`: more than waits in memory; `goes`: then the disk goes on.
"""

import ctypes
import glob
import os
import resource
import shutil
import signal
import sys
import threading

words = sys.argv[1:]
if "loader" in words:
    import torch

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, i):
            return torch.full((1 << 20,), float(i))  # 4 MiB


def load():
    """Batches of 8 MiB, up to five on the way: 40 MiB."""
    batches = torch.utils.data.DataLoader(Data(), 2, num_workers=2, prefetch_factor=2)
    print("read", sum(float(b.cuda()[0, 0]) for b in batches), flush=True)
    for thread in threading.enumerate():  # those that feed the workers' queues close them as they end
        if thread is not threading.current_thread():
            thread.join(30)


def loaded():
    """The simulated device's driver, where this Python has one, or the machine's own."""
    found = [p for path in sys.path for p in glob.glob(os.path.join(path, "nvidia", "*", "lib", "libcuda.so.1"))]
    return ctypes.CDLL((found or ["libcuda.so.1"])[0])


def driver(cuda):
    device, context = ctypes.c_int(), ctypes.c_void_p()
    said = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0)]
    said += [cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context)]
    return said


def allocate(cuda, times=1):
    """So many hundred events."""
    said, blocks = [], [ctypes.c_uint64() for _ in range(50)]
    for _ in range(times):
        for i, block in enumerate(blocks):
            said.append(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1000 * (i + 1))))
        said += [cuda.cuMemFree_v2(block) for block in blocks]
    print("allocated", said.count(0), flush=True)


def main():
    cuda = None if "loader" in words else loaded()  # while its folder can be read
    if "threads" in words:  # not one thread more than there are
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    if "another" in words and os.getuid() == 0:  # another user
        os.setuid(12345)
    if "loader" in words:
        load()
    else:
        print("driver", driver(cuda), flush=True)
        allocate(cuda)
        if "closes" in words:
            os.closerange(3, 65536)
            allocate(cuda)
    if "stalls" in words:
        open(os.environ["DISK_STALLS"], "w").close()
        allocate(cuda, 2000 if "floods" in words else 1)
        if "goes" in words:
            os.remove(os.environ["DISK_STALLS"])
    if "delete" in words and "STRANDLINE_OUT" in os.environ:
        shutil.rmtree(os.environ["STRANDLINE_OUT"])
    if "descriptors" in words:
        # What a job would count on: the standard ones, and the lowest that is free.
        free = os.open("/dev/null", os.O_RDONLY)
        print("descriptors", free, sorted(int(n) for n in os.listdir("/proc/self/fd") if int(n) < 700), flush=True)
    print("SIGXFSZ", signal.getsignal(signal.SIGXFSZ), flush=True)
    if "kill" in words:
        os.kill(os.getpid(), signal.SIGKILL)
    if "fails" in words:
        sys.exit(3)


if __name__ == "__main__":
    main()
