"""Ports of this machine, and waiting for whoever listens there."""
import socket
import time


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def reached(number):
    try:
        socket.create_connection(("127.0.0.1", number), 1).close()
        return True
    except OSError:
        return False


def until(what, look, patience):
    deadline = time.monotonic() + patience
    while not look():
        if time.monotonic() > deadline:
            raise SystemExit(f"BAD  {what}: not within {patience} s")
        time.sleep(0.1)
