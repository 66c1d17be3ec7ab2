"""A terminal of 80x24 for `strandline top`: waits until it has drawn, opens a stack, quits, and looks at the terminal after it.
Then two that vanish while it draws, one of them without a SIGHUP: it ends (else the alarm ends this).

    top.py COMMAND...
"""
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

signal.alarm(300)  # a command that draws nothing ends the test, not the patience of whoever runs it


def start(controlling):
    """`controlling`: the terminal is that of the command's session, which is sent SIGHUP when it goes."""
    global master, slave, drawn, before
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(slave)
    drawn = b""
    return subprocess.Popen(
        sys.argv[1:],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if controlling else None,
        env={**os.environ, "TERM": "xterm-256color"},
    )


def until(text):
    """Only what differs from the screen before is drawn: `text` is where everything does."""
    global drawn
    while text not in drawn:
        drawn += os.read(master, 65536)
    drawn = b""


job = start(controlling=False)
until(b"train.py:12")
os.write(master, b"\r")
until("blocks · train.py:12".encode())
os.write(master, b"\r")
until(b"pid 4711")
os.write(master, b"q")
until(b"\x1b[?1049l")
status = job.wait()
back = termios.tcgetattr(slave) == before
print(f"drawn, opened, status {status}, {'put back' if back else 'left raw'}")
os.close(master)
os.close(slave)
for controlling in (False, True):
    job = start(controlling)
    os.close(slave)
    until(b"train.py:12")
    if not controlling:
        os.write(master, b"\x1b[")  # half a key: whoever waits for the other half is told nothing but the end
    os.close(master)
    job.wait()
    print("ended with its terminal")
