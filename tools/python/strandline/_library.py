"""Finds libstrandline.so and calls its C interface."""

import ctypes
import functools
import os
import shutil
import subprocess

NAME = "libstrandline.so"


class Error(RuntimeError):
    """What strandline could not do, and what to do about it."""


def _mapped():
    """The library that this process has loaded already, by LD_PRELOAD say: there must be no second one."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")[2]
                if os.path.basename(path) == NAME:
                    return "/" + path
    except OSError:
        pass
    return None


def _carried():
    """The library that lies beside this package."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), NAME)
    return path if os.path.exists(path) else None


def _commanded():
    """The library that the command carries, which it puts into its cache."""
    command = os.environ.get("STRANDLINE_BIN") or shutil.which("strandline")
    if not command:
        return None
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    asked = subprocess.run([command, "doctor", "--library"], capture_output=True, text=True, env=environment)
    path = asked.stdout.strip()
    if asked.returncode != 0 or not os.path.exists(path):
        raise Error(f"`{command} doctor --library` did not name {NAME}: {asked.stderr.strip() or path}")
    return path


@functools.lru_cache(maxsize=None)
def library_path():
    """Where libstrandline.so lies: in this process, beside this package, or with the command `strandline`."""
    path = _mapped() or _carried() or _commanded()
    if path is None:
        raise Error(
            f"{NAME} is not loaded, not beside this package, and there is no command `strandline` on the PATH: "
            "put the command there, or set STRANDLINE_BIN to it"
        )
    return path


@functools.lru_cache(maxsize=None)
def library():
    """The library, loaded, with the types of its functions."""
    loaded = ctypes.CDLL(library_path())
    signatures = {
        "strandline_version": (ctypes.c_char_p, []),
        "strandline_step": (ctypes.c_int, [ctypes.c_uint64]),
        "strandline_phase": (ctypes.c_int, [ctypes.c_char_p]),
        "strandline_mark": (ctypes.c_int, [ctypes.c_char_p]),
        "strandline_snapshot": (ctypes.c_int, [ctypes.c_char_p]),
        "strandline_device": (None, [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64]),
        "strandline_recording": (ctypes.c_char_p, []),
        "strandline_memory_fraction": (ctypes.c_double, [ctypes.c_int]),
        "strandline_memory_stats": (
            ctypes.c_size_t,
            [ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t],
        ),
        "strandline_reset_memory_stats": (None, [ctypes.c_int, ctypes.c_int]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def version():
    """The library's version."""
    return library().strandline_version().decode()


def step(n):
    """Step `n` has ended; from the first call on, steps are no longer counted automatically. False: not recording."""
    return library().strandline_step(n) == 0


def phase(name):
    """A phase of your own begins. False: not recording."""
    return library().strandline_phase(name.encode()) == 0


def mark(name):
    """Something to be found again in the recording. False: not recording."""
    return library().strandline_mark(name.encode()) == 0


def snapshot(path):
    """Asks whoever watches the recording for a memory_viz snapshot of now, at this path below the recording's folder. False: not recording."""
    return library().strandline_snapshot(os.fsencode(path)) == 0
