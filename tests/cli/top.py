"""A terminal of 80x24 for `strandline top`: waits until it has drawn, opens a stack, quits, and looks at the terminal after it.

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

signal.alarm(120)  # a command that draws nothing ends the test, not the patience of whoever runs it
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
before = termios.tcgetattr(slave)
job = subprocess.Popen(
    sys.argv[1:],
    stdin=slave,
    stdout=slave,
    stderr=slave,
    start_new_session=True,
    env={**os.environ, "TERM": "xterm-256color"},
)
drawn = b""


def until(text):
    """Only what differs from the screen before is drawn: `text` is where everything does."""
    global drawn
    while text not in drawn:
        drawn += os.read(master, 65536)
    drawn = b""


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
