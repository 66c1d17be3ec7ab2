//! The witness: a process beside the job that tells to whom a signal was sent, and ends the job where we are killed.
//!
//! The job lives in our process group, so that the terminal treats it as if we were not there. A signal that the
//! terminal makes (Ctrl-C, Ctrl-Z, a resize) therefore reaches it without us, and so does one that is sent to the whole
//! group (`kill %1`, `timeout`) or to every process of a SLURM step. One that is sent to our pid alone must be
//! passed on. The kernel tells the first kind (`si_code`); nothing tells the second from the third. So there is a
//! process in the group that blocks every signal. A signal that is pending there as well was not meant for us alone.
//!
//! SIGKILL cannot be passed on. The witness outlives us: its standard input ends with us, and if it was SIGKILL that ended us
//! it sends the job one. If we die of a fault of our own, the job goes on.

use super::exited::Process;
use crate::inherited;
use crate::process::Target;
use crate::signals::{Set, stop_by};
use std::ffi::CStr;
use std::io::{self, ErrorKind, PipeWriter, Read, Write};
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// `argv[0]` that makes this program a witness.
const WITNESS: &str = "strandline-witness";

/// `argv[0]` that makes this program a waker; the job's process id follows.
const WAKER: &str = "strandline-waker";
/// Milliseconds between two looks of a waker.
const LOOK: u64 = 20;
/// Milliseconds that a witness gives the kernel to say how we ended.
const PATIENCE: u32 = 100;

/// The witness. It ends with us.
pub(super) struct Witness {
    process: Option<Living>,
    /// What it ends where we are killed.
    job: Option<Target>,
    /// What earlier witnesses saw that has not been asked for yet, as bits.
    carried: u64,
}

/// A witness's process, and the pipe that it reads.
struct Living {
    child: Child,
    pipe: PipeWriter,
}

impl Witness {
    /// Starts it; call with the forwarded signals blocked, so that it is born with them blocked.
    pub(super) fn start() -> Witness {
        Witness { process: Living::start(), job: None, carried: 0 }
    }

    /// This is the job, which has not been waited for.
    pub(super) fn guard(&mut self, job: u32) {
        self.job = Target::of(job);
        self.tell();
    }

    fn tell(&mut self) {
        if let (Some(living), Some(job)) = (&mut self.process, self.job) {
            let _ = living.pipe.write_all(format!("{} {}\n", job.pid, job.start).as_bytes());
        }
    }

    /// Whether the group got this signal as well; each sighting is told once. A signal that we have seen has been
    /// delivered to everybody it was meant for once the sender's system call is over, or its next one, where it goes
    /// over the processes itself: it is given a moment to get there.
    pub(super) fn saw(&mut self, signal: i32) -> bool {
        let bit = 1u64 << (signal - 1);
        wait_for_senders();
        for _ in 0..10 {
            if (self.carried | self.pending()) & bit != 0 {
                self.replace(bit);
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    fn pending(&self) -> u64 {
        self.process.as_ref().and_then(|p| pending(p.child.id())).unwrap_or(0)
    }

    /// A blocked signal stays pending for ever, so a witness that has told is replaced. The new one is there before the
    /// old one is asked for the last time: what comes meanwhile is seen by one of them.
    fn replace(&mut self, told: u64) {
        let fresh = Living::start();
        self.carried = (self.carried | self.pending()) & !told;
        self.stop();
        self.process = fresh;
        self.tell();
    }

    /// Ends it. Signals are passed on from then on, until one makes a new one.
    pub(super) fn stop(&mut self) {
        if let Some(mut living) = self.process.take() {
            let _ = living.child.kill();
            let _ = living.child.wait();
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Living {
    fn start() -> Option<Living> {
        let (read, pipe) = io::pipe().ok()?;
        let child = helper(WITNESS).stdin(read).spawn().ok()?;
        Some(Living { child, pipe })
    }
}

/// Stops us as the job is stopped, by the same signal, so that the shell that waits for us sees a stopped job and says why, until we are
/// continued, as `fg` does with the group, or the job is no longer stopped: whoever continues or ends that alone does not know of us.
pub(super) fn stop_with(job: u32, signal: i32) {
    let mut waker = helper(WAKER);
    waker.arg(job.to_string());
    let parent = std::process::id();
    // SAFETY: prctl and getppid are async-signal-safe and touch no memory of ours.
    unsafe {
        waker.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
            // The parent may have died before the line above: then nobody needs this.
            if libc::getppid() as u32 == parent { Ok(()) } else { Err(ErrorKind::NotFound.into()) }
        });
    }
    let waker = waker.spawn();
    if !stop_by(signal) {
        // SAFETY: getpid and kill have no memory to get wrong; we stop here until somebody continues us.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    }
    let Ok(mut waker) = waker else { return };
    let _ = waker.kill();
    if waker.wait().is_ok_and(|ended| ended.success()) {
        // The job has had its own.
        Set::of(&[libc::SIGCONT]).discard();
    }
}

fn helper(name: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Returns when a signal that is being sent to a group has reached all of it, however late the sender's processor is: the
/// kernel keeps its list of processes as it is while it goes over a group, and this changes it, to what it was.
fn wait_for_senders() {
    // SAFETY: both take numbers alone; being in our group already we stay in it, and a leader of a session is refused.
    unsafe { libc::setpgid(0, libc::getpgrp()) };
}

/// Signals that wait for the process, as bits.
fn pending(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("ShdPnd:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// What `main` calls first. In a process that was started as a witness or a waker it does that work and never returns.
pub(crate) fn run_as_helper_if_asked() {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let job = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    if name == WITNESS {
        rename(c"sl-witness");
        witness();
    }
    if let Some(job) = job.filter(|_| name == WAKER) {
        rename(c"sl-waker");
        inherited::close(&inherited::descriptors());
        loop {
            wake(job);
        }
    }
}

fn rename(name: &CStr) {
    // SAFETY: the name is a C string of at most 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Reads what is to be guarded, until whoever writes it has ended.
fn witness() -> ! {
    let run = Process::of(parent_id());
    inherited::close(&inherited::descriptors());
    let mut told = String::new();
    let _ = io::stdin().lock().read_to_string(&mut told);
    let job = told.lines().last().and_then(|line| {
        let (pid, start) = line.split_once(' ')?;
        Some(Target { pid: pid.parse().ok()?, start: start.parse().ok()? })
    });
    if let Some(job) = job.filter(|_| was_killed(&run)) {
        job.send(libc::SIGKILL);
    }
    std::process::exit(0)
}

/// An orderly end stops the witness first. An older kernel may not say how it was: nobody but SIGKILL's sender is likely then.
fn was_killed(run: &Process) -> bool {
    for _ in 0..PATIENCE {
        if let Some(status) = run.wait_status() {
            return libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Continues our parent and ends, where it is stopped and the job is not.
fn wake(job: u32) {
    let parent = parent_id();
    if !is_stopped(job) && is_stopped(parent) {
        // SAFETY: kill takes numbers alone; a parent that ends takes us along before its number is another's.
        unsafe { libc::kill(parent as libc::pid_t, libc::SIGCONT) };
        std::process::exit(0);
    }
    std::thread::sleep(Duration::from_millis(LOOK));
}

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in brackets may have brackets.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_told_from_another_end() {
        for (signal, is_kill) in [("KILL", true), ("SEGV", false), ("ABRT", false), ("TERM", false)] {
            let shell = Command::new("sh")
                .args(["-c", &format!("ulimit -c 0; read x; kill -{signal} $$")])
                .stdin(Stdio::piped())
                .spawn();
            let mut shell = shell.unwrap();
            let process = Process::of(shell.id());
            drop(shell.stdin.take());
            assert_eq!(was_killed(&process), is_kill, "{signal}");
            shell.wait().unwrap();
        }
    }
}
