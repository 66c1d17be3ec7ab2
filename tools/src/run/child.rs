//! The job as a child in our own process group: started, waited for, stopped and continued with us.

use super::witness::{Witness, stop_with};
use crate::error::{Error, status};
use crate::inherited;
use crate::job::{Ended, Environment, Job, Variable, cannot_start};
use crate::signals::{Origin, Set};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// A job that runs.
pub(crate) struct Running {
    pid: libc::pid_t,
    signals: Set,
    before: Set,
    witness: Witness,
    inherited: Vec<RawFd>,
}

/// Starts the job with these variables set, everything else untouched: terminal, standard streams, process group,
/// signal mask and dispositions are those that we were given. `output` takes what it prints, on both standard streams, where it is
/// not to go where ours goes.
///
/// From here on, signals of ours are handled by [`Running::wait`] alone; threads that are started later inherit that.
///
/// # Errors
/// 127 where the program is not found, 126 where it cannot be executed.
pub(crate) fn start(job: &Job, variables: &[Variable], output: Option<&File>) -> Result<Running, Error> {
    let copies = output.map(|file| file.try_clone().and_then(|out| Ok((out, file.try_clone()?)))).transpose();
    let printed = copies.map_err(|e| Error::new(format!("cannot copy a descriptor: {e}")))?;
    let environment =
        Environment::with(variables).map_err(|e| Error::new(format!("cannot set a variable: {e}")))?;
    let signals = Set::forwarded();
    let before = signals.block().map_err(|e| Error::new(format!("cannot block signals: {e}")))?;
    // Whoever ignores SIGCHLD gets no status from waitpid; the job still gets the disposition that we were given.
    // SAFETY: SIG_DFL is a valid disposition for SIGCHLD.
    let child_signal = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let mut command = Command::new(&job.program);
    command.args(&job.arguments);
    let is_printed_elsewhere = printed.is_some();
    if let Some((out, err)) = printed {
        command.stdin(Stdio::null()).stdout(out).stderr(err);
    }
    // SAFETY: only async-signal-safe functions are called, with values moved into the closure. The child has one thread, which does nothing
    // more but exec; the command, and with it the environment, outlives it.
    unsafe {
        command.pre_exec(move || {
            if child_signal != libc::SIG_ERR {
                libc::signal(libc::SIGCHLD, child_signal);
            }
            inherited::restore_signals();
            if !is_printed_elsewhere {
                inherited::close_streams();
            }
            environment.install();
            before.restore()
        });
    }
    let inherited = inherited::descriptors();
    // Before the job, so that no signal of the job's life is without one.
    let mut witness = Witness::start();
    let is_full = |e: &std::io::Error| e.kind() == ErrorKind::WouldBlock;
    let child = command.spawn().or_else(|e| match is_full(&e) {
        // No process more is allowed, and ours has taken the job's place.
        true => {
            witness.stop();
            command.spawn()
        }
        false => Err(e),
    });
    let child = child.map_err(|e| {
        let _ = before.restore();
        cannot_start(job, &e)
    })?;
    witness.guard(child.id());
    Ok(Running { pid: child.id() as libc::pid_t, signals, before, witness, inherited })
}

impl Running {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// What the job has from whoever started us is the job's alone from now on: when it closes its output, its reader sees the end, and a
    /// lock goes when it lets go. Our stderr stays. For whoever reads no input and prints nothing on stdout any more.
    pub(crate) fn let_go(&self) {
        inherited::leave_streams();
        inherited::close(&self.inherited);
    }

    /// Passes signals on until the job has ended; `seen` is told of each. After that signals are ours again: Ctrl-C ends
    /// the report.
    pub(crate) fn wait(mut self, seen: impl Fn(i32)) -> Ended {
        let ended = self.pass_on(&seen);
        // What came for the job in its last moment must not end us.
        self.signals.discard();
        let _ = self.before.restore();
        ended
    }

    fn pass_on(&mut self, seen: &dyn Fn(i32)) -> Ended {
        loop {
            // A child that changed before we looked leaves no second signal: look first, then wait.
            if let Some(ended) = self.reap() {
                return ended;
            }
            let (signal, origin) = self.signals.wait();
            if signal == libc::SIGCHLD {
                continue;
            }
            self.deliver(signal, origin);
            seen(signal);
        }
    }

    /// Gives the job a signal that it has not had: one that was sent to us alone, or one for our process group, which the job has left.
    ///
    /// Alone it would have our place, and nobody who leads a group can leave it for one of its own: `timeout` and `os.setpgrp()` do nothing
    /// then, `os.setsid()` fails. So where we lead the group, what is for the group is for the job and for those in the group that it has made.
    fn deliver(&mut self, signal: i32, origin: Origin) {
        // SAFETY: they take numbers alone; the child has not been waited for, so the pid is still its own.
        let (theirs, ours, own, session) =
            unsafe { (libc::getpgid(self.pid), libc::getpgrp(), libc::getpid(), libc::getsid(0)) };
        // A terminal that goes away tells the leader of its session alone.
        let hung_up =
            origin == Origin::Kernel && matches!(signal, libc::SIGHUP | libc::SIGCONT) && session == own;
        // The witness is asked about the terminal's other signals too, so that it is asked once for each it saw.
        let is_for_all = !hung_up && (self.witness.saw(signal) || origin == Origin::Kernel);
        let to = match is_for_all {
            true if theirs == ours => return,
            true if ours == own && theirs == self.pid => -self.pid,
            // It would have left the terminal's group without us too.
            true if origin == Origin::Kernel => return,
            // `timeout` sends to the process that it has started and then to the group: nothing tells the one from both.
            _ => self.pid,
        };
        // SAFETY: as above; a group of that number is the job's own.
        unsafe { libc::kill(to, signal) };
    }

    /// Takes note of what happened to the job. Where it was stopped we stop as well.
    fn reap(&mut self) -> Option<Ended> {
        loop {
            let mut word = 0;
            // SAFETY: `word` is ours to write; the pid is our child's.
            let pid = unsafe { libc::waitpid(self.pid, &mut word, libc::WNOHANG | libc::WUNTRACED) };
            if pid == 0 {
                return None;
            }
            if pid < 0 {
                if std::io::Error::last_os_error().kind() == ErrorKind::Interrupted {
                    continue;
                }
                return Some(Ended::Exit(status::FAILED));
            }
            if libc::WIFEXITED(word) {
                return Some(Ended::Exit(libc::WEXITSTATUS(word) as u8));
            }
            if libc::WIFSIGNALED(word) {
                return Some(Ended::Signal(libc::WTERMSIG(word)));
            }
            stop_with(self.pid(), libc::WSTOPSIG(word));
        }
    }
}
