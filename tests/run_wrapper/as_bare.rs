//! The same script with a job alone and with the job under `strandline run`: what it prints must be the same.

use super::support::{Folder, strandline};
use std::process::{Command, Output, Stdio};

/// Both ways in a folder of its own, where `$RUN` is nothing or the command; what both print.
#[track_caller]
fn alike(script: &str) -> String {
    let [bare, run] = ["", "run"].map(|way| {
        let folder = Folder::new("alike");
        let mut bash = Command::new("bash");
        bash.args(["-c", script]).current_dir(folder.path()).stdin(Stdio::null());
        bash.env("XDG_CACHE_HOME", folder.path().join("cache")).env_remove("LD_PRELOAD");
        strandline::format::env::ALL.iter().for_each(|variable| _ = bash.env_remove(variable));
        let command = format!("{} run --quiet --", strandline().display());
        bash.env("RUN", if way.is_empty() { "" } else { &command });
        let Output { status, stdout, stderr } = bash.output().expect("bash is there");
        let stderr = String::from_utf8_lossy(&stderr);
        (String::from_utf8_lossy(&stdout).into_owned(), status.code(), stderr.into_owned())
    });
    assert_eq!((&bare.0, bare.1), (&run.0, run.1), "bare, and under run\n{}\n{}", bare.2, run.2);
    run.0
}

#[test]
fn a_job_that_leaves_its_process_group_gets_what_is_sent_to_us() {
    let said = alike(
        "for leave in getpid setpgrp setsid; do
             timeout 2 $RUN python3 -c \"import os, time; os.$leave(); time.sleep(10); print('survived')\"
             echo $leave $?
         done",
    );
    assert_eq!(said, "getpid 124\nsetpgrp 124\nsetsid 124\n");
}

/// A terminal's shell and `setsid` make what they start the leader of a group, which cannot leave it.
#[test]
fn where_we_lead_the_group_its_signals_are_for_a_job_that_has_left_it() {
    let said = alike(
        "cat > job.py <<'END'
import os, signal, time
got = []
for number in (signal.SIGUSR1, signal.SIGUSR2): signal.signal(number, lambda number, frame: got.append(number))
def end(number, frame):
    print(sorted(got), flush=True)
    os._exit(3)
signal.signal(signal.SIGTERM, end)
os.setpgrp()
print('ready', flush=True)
while True: time.sleep(.1)
END
         set -m
         $RUN python3 job.py > out & for i in $(seq 400); do grep -q ready out && break; sleep .05; done
         kill -USR1 -- -$!; sleep .3; kill -USR2 $!; sleep .3; kill -TERM -- -$!; wait $!; echo $?; cat out",
    );
    assert_eq!(said, "3\nready\n[10, 12]\n", "each of them once");
}

#[test]
fn a_kill_of_us_is_a_kill_of_the_job() {
    let job = "
        set -m
        $RUN python3 -c 'import os, time; print(os.getpid(), flush=True); time.sleep(60)' > pid & run=$!
        for i in $(seq 400); do read job < pid && break; sleep .05; done
        is_there() { grep -q '^State:.[^ZX]' /proc/$job/status 2>/dev/null; }";
    let after = "
        { kill -9 $run; wait $run; } 2>/dev/null; echo $?
        for i in $(seq 200); do is_there || break; sleep .05; done
        is_there && { echo it lives; kill -9 $job; } || echo it has ended";
    assert_eq!(alike(&format!("{job}{after}")), "137\nit has ended\n");
    // A witness that has told of a signal is replaced; the next one knows the job as well.
    let told = "\nkill -URG -- -$run; sleep .5; is_there && echo it lives still";
    assert_eq!(alike(&format!("{job}{told}{after}")), "it lives still\n137\nit has ended\n");
}

#[test]
fn a_parent_sees_the_signal_that_ended_the_job() {
    let said = alike(
        "cat > parent.py <<'END'
import subprocess, sys
for n in (6, 11, 15, 9, 2, 1, 10, 13, 25, 34):
    job = f'import os, resource, signal; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); {n} != 9 and signal.signal({n}, signal.SIG_DFL); os.kill(os.getpid(), {n})'
    print(n, subprocess.run(sys.argv[1:] + ['python3', '-c', job], stderr=subprocess.DEVNULL).returncode)
END
         python3 parent.py $RUN",
    );
    let expected = [6, 11, 15, 9, 2, 1, 10, 13, 25, 34].map(|n| format!("{n} -{n}\n")).concat();
    assert_eq!(said, expected);
}

/// The kernel sends a container's first process nothing that it has no handler for.
#[test]
fn the_first_process_of_a_container_says_a_signal_by_its_status() {
    let unshare = ["--fork", "--pid", "--mount-proc", "--user", "--map-root-user"];
    let can = Command::new("unshare").args(unshare).arg("true").stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        println!("SKIPPED: no PID namespace can be made here");
        return;
    }
    let folder = Folder::new("first");
    let mut first = Command::new("unshare");
    first.args(unshare).arg(strandline()).args(["run", "-q", "--", "sh", "-c", "kill -USR1 $$"]);
    first.current_dir(folder.path()).env("XDG_CACHE_HOME", folder.path().join("cache"));
    assert_eq!(first.stdin(Stdio::null()).status().expect("unshare is there").code(), Some(138));
}

#[test]
fn closed_standard_streams_are_closed_for_the_job() {
    let said = alike(
        "show='r=; for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && r=$r$n; done; echo \"open $r\" >> seen'
         $RUN bash -c \"$show\" <&-; $RUN bash -c \"$show\" >&-; $RUN bash -c \"$show\" 2>&-
         $RUN bash -c \"$show\" <&- >&- 2>&-; $RUN bash -c \"$show\"; cat seen",
    );
    assert_eq!(said, "open 12\nopen 02\nopen 01\nopen \nopen 012\n");
}

#[test]
fn an_ignored_sigpipe_stays_ignored() {
    let said = alike(
        "$RUN grep SigIgn /proc/self/status; (trap '' PIPE; $RUN grep SigIgn /proc/self/status)
         (trap '' HUP INT QUIT TERM USR1 TSTP TTIN TTOU CHLD ALRM XFSZ PIPE; $RUN grep SigIgn /proc/self/status)",
    );
    let ignored = said.lines().nth(1).and_then(|line| u64::from_str_radix(line.get(8..)?.trim(), 16).ok());
    assert!(ignored.is_some_and(|bits| bits & (1 << 12) != 0), "{said}");
}

#[test]
fn the_environment_keeps_its_order_and_its_odd_entries() {
    let said = alike(
        "cat > exec.py <<'END'
import ctypes, os, sys
words = [word.encode() for word in sys.argv[1:]]
entries = [b'ZED=1', b'DUP=1', b'DUP=2', b'NOEQ', b'=x', b'ALPHA=2', b'EMPTY=', b'PATH=' + os.environb[b'PATH'], b'HOME=/', b'BETA=3']
entries.append(b'XDG_CACHE_HOME=' + os.environb[b'XDG_CACHE_HOME'])
array = lambda all: (ctypes.c_char_p * (len(all) + 1))(*all, None)
ctypes.CDLL(None).execve(words[0], array(words), array(entries))
END
         python3 exec.py $RUN /bin/cat /proc/self/environ | tr '\\0' '\\n' | grep -v -e STRANDLINE -e LD_PRELOAD -e ^PATH -e ^XDG",
    );
    assert_eq!(said, "ZED=1\nDUP=1\nDUP=2\nNOEQ\n=x\nALPHA=2\nEMPTY=\nHOME=/\nBETA=3\n");
}

#[test]
fn what_the_job_closes_is_closed() {
    let wait = "wait_for() { for i in $(seq 100); do [ -e $1 ] && { echo $1; return; }; sleep .05; done; echo no $1; }
        export -f wait_for\n";
    let ends = "$RUN bash -c 'echo x; exec >&-; wait_for end > told' | { cat; touch end; }; cat told";
    assert_eq!(alike(&format!("{wait}{ends}")), "x\nend\n", "its output");
    let breaks = "{ wait_for closed; for i in $(seq 120); do echo y || break; sleep .05; done; touch broken; } 2>/dev/null |
        $RUN bash -c 'exec <&-; touch closed; wait_for broken'";
    assert_eq!(alike(&format!("trap '' PIPE; {wait}{breaks}")), "broken\n", "its input");
    let lock = "exec 9> lock; flock 9; $RUN bash -c 'exec 9>&-; touch let_go; wait_for free' & exec 9>&-
        wait_for let_go; for i in $(seq 120); do flock -n lock touch free && break; sleep .05; done; wait";
    assert_eq!(alike(&format!("{wait}{lock}")), "let_go\nfree\n", "a lock");
}

/// The home is root's alone, as it is everywhere; nothing of ours is left in the machine's own temporary folders.
#[test]
fn a_child_that_is_another_user_is_told_nothing_by_its_loader() {
    let can = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        println!("SKIPPED: not root");
        return;
    }
    let said = alike(
        "export RUN
         unshare -m bash -c 'mount -t tmpfs none /var/tmp && chmod 1777 /var/tmp && mkdir -m 700 home || exit 99
         unset XDG_CACHE_HOME; export HOME=$PWD/home
         as=\"setpriv --reuid 65534 --regid 65534 --clear-groups\"
         $RUN $as /bin/sh -c \"/bin/echo hello\" 2>&1
         $RUN sh -c \"mount -t tmpfs none home && /bin/echo a hidden home\" 2>&1'",
    );
    assert_eq!(said, "hello\na hidden home\n");
}

/// A terminal that goes away (a window, an ssh connection) tells the leader of its session alone, which the job is without us.
#[test]
fn the_leader_of_a_session_is_told_that_its_terminal_went_away() {
    let said = alike(
        "cat > job.py <<'END'
import os, signal, sys, time
got = []
def note(number, frame):
    got.append(signal.Signals(number).name)
    if number == signal.SIGCONT:
        open('got', 'w').write(' '.join(got))
        os._exit(5)
if sys.argv[1] == 'handles':
    for number in (signal.SIGHUP, signal.SIGCONT): signal.signal(number, note)
print('ready', flush=True)
time.sleep(20)
END
         cat > terminal.py <<'END'
import os, pty, sys
job, master = pty.fork()
if job == 0: os.execvp(sys.argv[1], sys.argv[1:])
seen = b''
while b'ready\\r\\n' not in seen: seen += os.read(master, 4096)
os.close(master)
print(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))
END
         for does in handles dies; do python3 terminal.py $RUN python3 job.py $does; done; cat got",
    );
    assert_eq!(said, "5\n-1\nSIGHUP SIGCONT");
}

#[test]
fn whoever_waits_for_us_sees_the_signal_that_stopped_the_job() {
    let said = alike(
        "cat > shell.py <<'END'
import os, signal, sys
for group in (True, False):
    job = os.fork()
    if job == 0:
        if group: os.setpgid(0, 0)
        os.execvp(sys.argv[1], sys.argv[1:])
    while True:
        status = os.waitpid(job, os.WUNTRACED)[1]
        if not os.WIFSTOPPED(status): break
        print(signal.Signals(os.WSTOPSIG(status)).name)
        os.killpg(job, signal.SIGCONT) if group else os.kill(job, signal.SIGCONT)
    print(os.waitstatus_to_exitcode(status))
END
         stop='import os, signal
for name in (\"STOP\", \"TSTP\", \"TTIN\", \"TTOU\", \"TSTP\"): os.kill(os.getpid(), signal.Signals[\"SIG\" + name])
os._exit(6)'
         python3 shell.py $RUN python3 -c \"$stop\"",
    );
    let once = "SIGSTOP\nSIGTSTP\nSIGTTIN\nSIGTTOU\nSIGTSTP\n6\n";
    // Where nobody in the session could continue the group of this test, the terminal's signals stop none of it.
    let orphaned = format!("{once}SIGSTOP\n6\n");
    assert!(said == once.repeat(2) || said == orphaned, "{said}");
}

/// A terminal may stop what writes to it from the background: a job that is silent is not stopped for our lines.
#[test]
fn a_job_in_the_background_is_not_stopped_for_our_lines() {
    let said = alike(
        "cat > terminal.py <<'END'
import os, pty, signal, sys, termios
leader, master = pty.fork()
if leader == 0:
    how = termios.tcgetattr(0)
    how[3] |= termios.TOSTOP
    termios.tcsetattr(0, termios.TCSANOW, how)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.execvp(sys.argv[1], sys.argv[1:])
    status = os.waitpid(job, os.WUNTRACED)[1]
    if os.WIFSTOPPED(status): os.killpg(job, signal.SIGKILL)
    os._exit(99 if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status))
while True:
    try:
        if not os.read(master, 4096): break
    except OSError: break
print(os.waitstatus_to_exitcode(os.waitpid(leader, 0)[1]))
END
         for says in pass 'print(1, flush=True)'; do python3 terminal.py ${RUN/ --quiet/} python3 -c \"$says\"; done",
    );
    assert_eq!(said, "0\n99\n");
}
