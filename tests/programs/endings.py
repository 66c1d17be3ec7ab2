"""Ends of processes, each of a child that touches CUDA first, of one process that has imported torch. Says how each ended."""

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
import weakref

import torch
import torch._dynamo  # what the first backward would import

ENDINGS = {}


def ending(f):
    ENDINGS[f.__name__] = f
    return f


def allocate(n=1):
    return sum(torch.empty(512 * (i + 1), dtype=torch.uint8, device="cuda").numel() for i in range(n))


def forever():
    while True:
        allocate(3)


def later(f):
    thread = threading.Thread(target=lambda: (time.sleep(0.05), f()))
    thread.start()


@ending
def atexit_allocates():
    class Dies:
        def __del__(self):
            print("died", allocate())

    kept = Dies()
    weakref.finalize(kept, lambda: print("finalized", allocate()))
    atexit.register(lambda: print("registered", allocate()))
    atexit.register(lambda: atexit.register(lambda: print("registered late", allocate())))
    sys.kept, cycle = Dies(), Dies()
    cycle.itself = cycle


@ending
def atexit_raises():
    atexit.register(lambda: 1 / 0)


@ending
def a_thread_exits_the_process():
    later(lambda: os._exit(5))
    forever()


@ending
def a_thread_goes_on():
    later(lambda: print("later", allocate(50)))


@ending
def the_main_thread_ends_alone():
    later(lambda: (print("later", allocate(), flush=True), os._exit(3)))
    ctypes.CDLL(None).pthread_exit(None)


@ending
def interrupted():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    later(lambda: os.kill(os.getpid(), signal.SIGINT))
    while True:
        time.sleep(0.001)


@ending
def a_handler_exits():
    signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", allocate()), sys.exit(9)))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)


@ending
def its_stdout_is_closed():
    os.close(1)
    print("x" * 100_000)


@ending
def another_program_takes_its_place():
    os.execv(sys.executable, [sys.executable, "-c", "print('another')"])


@ending
def a_child_exits():
    if not os.fork():
        sys.exit(4)
    print(os.wait()[1])


@ending
def aborts_in_a_destructor():
    class Dies:
        def __del__(self, abort=os.abort):
            abort()

    sys.kept = Dies()


@ending
def a_null_pointer():
    ctypes.string_at(0)


@ending
def another_user():
    os.setresuid(65534, 65534, 65534) if os.getuid() == 0 else None
    print(allocate(20))


@ending
def nothing_is_left():
    import resource

    for what, n in ((resource.RLIMIT_NOFILE, 16), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_MEMLOCK, 0), (resource.RLIMIT_STACK, 1 << 20)):
        resource.setrlimit(what, (n, resource.getrlimit(what)[1]))
    os.environ.clear()
    ctypes.CDLL(None).clearenv()
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    print(allocate(20))


@ending
def audited():
    def refuse(event, arguments):
        if event in ("open", "compile", "exec", "import", "sys._getframe", "gc.get_objects", "ctypes.dlopen"):
            raise RuntimeError(event)

    sys.addaudithook(refuse)
    print(allocate(20))


if __name__ == "__main__":
    for name, end in ENDINGS.items():
        if not (child := os.fork()):
            os.environ["STRANDLINE_OUT"] = os.path.join(os.environ["RECORDINGS"], f"{name}.strand")
            where = os.path.join(os.environ["RECORDINGS"], f"{name}-{os.getpid()}")
            os.mkdir(where)
            os.chdir(where)
            allocate(20)
            end()
            sys.exit(0)
        print(name, "ended with", os.waitpid(child, 0)[1], flush=True)
