"""A terminal with a shell that knows job control, for one command: presses keys and tells what comes back.

    terminal.py KEYS... -- COMMAND...

KEYS are done in turn, each when the line before it has appeared: `ready` waits for that line; `^C`, `^Z` press the key;
`stopped` waits until the shell sees a stopped job and both processes are; `fg` continues it; `term` sends SIGTERM to the
command alone; `winch` resizes the terminal. Prints what the command printed, then `status N`.
"""
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios

split = sys.argv.index("--")
keys, command = sys.argv[1:split], sys.argv[split + 1 :]
up, up_w = os.pipe()  # the shell tells: pid, stopped, ended
down_r, down = os.pipe()  # the shell is told: fg
shell, master = pty.fork()
if shell == 0:  # session leader: the shell
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        for fd in (up, up_w, down_r, down):
            os.close(fd)
        os.execvp(command[0], command)
    os.write(up_w, f"pid {job}\n".encode())
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            os.tcsetpgrp(0, os.getpgrp())
            os.write(up_w, b"stopped\n")
            os.read(down_r, 1)
            os.tcsetpgrp(0, job)
            os.killpg(job, signal.SIGCONT)
        else:
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
            os.write(up_w, f"ended {code}\n".encode())
            os._exit(0)

shell_says = os.fdopen(up)
pid = int(shell_says.readline().split()[1])
output = ""


def until(line):
    global output
    before = output.count(line)
    while output.count(line) == before:
        try:
            chunk = os.read(master, 4096)
        except OSError:
            chunk = b""
        if not chunk:
            raise SystemExit(f"the terminal closed before {line!r}:\n{output}")
        output += chunk.decode(errors="replace")


def child_of(parent):
    return int(open(os.environ["JOB_FACTS"]).read().split("pid=")[1].split()[0])


for key in keys:
    if key == "ready" or key.startswith("got"):
        until(key)
    elif key in ("^C", "^Z"):
        os.write(master, b"\x03" if key == "^C" else b"\x1a")
    elif key == "stopped":
        said = shell_says.readline().strip()
        state = re.search(r"State:\s+(\S)", open(f"/proc/{child_of(pid)}/status").read()).group(1)
        print(f"shell says {said}, the job is {state}")
    elif key == "fg":
        os.write(down, b"x")
    elif key == "winch":
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    elif key == "term":
        os.kill(pid, signal.SIGTERM)
while True:
    try:
        chunk = os.read(master, 4096)
    except OSError:
        break
    if not chunk:
        break
    output += chunk.decode(errors="replace")
print(output.replace("\r\n", "\n"))
print("status", shell_says.readline().split()[1])
