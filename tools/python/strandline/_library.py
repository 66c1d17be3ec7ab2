"""Finds libstrandline.so and the command `strandline`, and calls the library's C interface."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import sys
import sysconfig
from typing import Any, Optional

NAME = "libstrandline.so"


class Error(RuntimeError):
    """What strandline could not do, and what to do about it."""


def _mapped() -> Optional[str]:
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


def _installed() -> Optional[str]:
    """The command that was installed with this package."""
    package = os.path.dirname(os.path.abspath(__file__))
    # `pip install` puts it with the other commands of this Python, `pip install --target` beside the packages.
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable), os.path.join(os.path.dirname(package), "bin")]
    if hasattr(sysconfig, "get_preferred_scheme"):
        folders.append(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")))
    paths = (os.path.join(folder, "strandline") for folder in folders if folder)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def _find_command() -> Optional[str]:
    return os.environ.get("STRANDLINE_BIN") or _installed() or shutil.which("strandline")


def command() -> str:
    """The command `strandline`: the one that STRANDLINE_BIN names, that was installed with this package, or that is on the PATH.

    Raises `strandline.Error` where there is none.
    """
    found = _find_command()
    if found is None:
        raise Error("the command `strandline` is neither beside this Python nor on the PATH: set STRANDLINE_BIN to it")
    return found


def ask(*arguments: str) -> str:
    """Runs the command, without the library in it, and returns what it prints. Raises `Error` with what it says where it fails."""
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    try:
        asked = subprocess.run(
            [command(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
        )
    except OSError as e:
        raise Error(f"cannot start `{command()}`: {e}") from e
    if asked.returncode != 0:
        lines = [line.removeprefix("strandline: ") for line in asked.stderr.strip().splitlines()]
        said = "; ".join(lines) or f"status {asked.returncode}"
        raise Error(f"`strandline {' '.join(arguments)}` failed: {said}")
    return asked.stdout


def _commanded() -> Optional[str]:
    """The library that the command carries, which it puts into its cache."""
    if _find_command() is None:
        return None
    path = ask("doctor", "--library").strip()
    if not os.path.exists(path):
        raise Error(f"`{command()} doctor --library` did not name {NAME}: {path}")
    return path


@functools.lru_cache(maxsize=None)
def library_path() -> str:
    """Where libstrandline.so lies: in this process already, or where the command `strandline` puts it."""
    path = _mapped() or _commanded()
    if path is None:
        raise Error(
            f"{NAME} is not loaded: start the job with `strandline run`, or set STRANDLINE_BIN to the strandline command"
        )
    return path


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The library, loaded, with the types of its functions."""
    loaded = ctypes.CDLL(library_path())
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "strandline_version": (ctypes.c_char_p, []),
        "strandline_step": (ctypes.c_int, [ctypes.c_uint64]),
        "strandline_phase": (ctypes.c_int, [ctypes.c_char_p]),
        "strandline_mark": (ctypes.c_int, [ctypes.c_char_p]),
        "strandline_snapshot": (ctypes.c_int, [ctypes.c_char_p]),
        "strandline_device": (None, [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64]),
        "strandline_recording": (ctypes.c_char_p, []),
        "strandline_stop": (ctypes.c_int, []),
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


def version() -> str:
    """The library's version."""
    text: bytes = library().strandline_version()
    return text.decode()


def recording() -> Optional[str]:
    """The path of this process's recording; `None` where there is none (yet)."""
    path: Optional[bytes] = library().strandline_recording()
    return os.fsdecode(path) if path else None


def step(n: int) -> bool:
    """Step `n` has ended; from the first call on, steps are no longer counted automatically. False: not recording."""
    return is_loaded() and bool(library().strandline_step(n) == 0)


def mark(name: str) -> bool:
    """Something to be found again in the recording. False: not recording."""
    return is_loaded() and bool(library().strandline_mark(name.encode()) == 0)


def snapshot(path: str | os.PathLike[str]) -> bool:
    """Asks whoever watches the recording for a memory_viz snapshot of now, at this path below the recording's folder. False: not recording."""
    return is_loaded() and bool(library().strandline_snapshot(os.fsencode(path)) == 0)


@functools.lru_cache(maxsize=None)
def _is_preloaded() -> bool:
    return _mapped() is not None


def is_loaded() -> bool:
    """Whether the library is in this process: since it began, or because this package has loaded it."""
    return library.cache_info().currsize > 0 or _is_preloaded()
