//! Signals: sets of them, where they come from, and what they do to this process.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// A set of signals.
#[derive(Clone, Copy)]
pub(crate) struct Set(libc::sigset_t);

/// Where a signal came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The kernel made it: the terminal for its foreground group.
    Kernel,
    /// A process sent it.
    Process,
}

impl Set {
    /// All that are passed on, and `SIGCHLD`. Not: what cannot be caught, `SIGPIPE` (a write of our own raises it), and the two that the C library
    /// keeps for itself. A fault of our own ends this process although its signal is blocked.
    pub(crate) fn forwarded() -> Set {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset initialises the set it is given; the numbers removed are valid signals.
        let mut set = unsafe {
            libc::sigfillset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in [libc::SIGPIPE, libc::SIGKILL, libc::SIGSTOP, 32, 33] {
            // SAFETY: `set` is initialised; a number that is refused leaves it unchanged.
            unsafe { libc::sigdelset(&mut set, signal) };
        }
        Set(set)
    }

    /// SIGTERM, SIGINT and SIGHUP: they ask a command to end.
    pub(crate) fn termination() -> Set {
        Set::of(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])
    }

    /// These.
    pub(crate) fn of(signals: &[i32]) -> Set {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set it is given; the numbers are valid signals.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), *signal);
            }
            Set(set.assume_init())
        }
    }

    /// Waits for the next of them, at most so long.
    pub(crate) fn wait_for(&self, most: Duration) -> Option<i32> {
        let most = libc::timespec {
            tv_sec: most.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(most.subsec_nanos()),
        };
        // SAFETY: the set and the time are initialised; a null info is allowed.
        let signal = unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &most) };
        (signal > 0).then_some(signal)
    }

    /// Blocks them in this thread (and those it starts); returns what was blocked before.
    pub(crate) fn block(&self) -> io::Result<Set> {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both point at sets of our own; on success the second is initialised.
        unsafe {
            match libc::pthread_sigmask(libc::SIG_BLOCK, &self.0, before.as_mut_ptr()) {
                0 => Ok(Set(before.assume_init())),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Makes this the thread's mask. Async-signal-safe: used between fork and exec.
    pub(crate) fn restore(&self) -> io::Result<()> {
        // SAFETY: the set is initialised; a null old set is allowed.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Takes those that wait for us, and forgets them.
    pub(crate) fn discard(&self) {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are initialised; a null info is allowed.
        while unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &at_once) } > 0 {}
    }

    /// Waits for the next one of them.
    pub(crate) fn wait(&self) -> (i32, Origin) {
        loop {
            let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
            // SAFETY: the set is initialised; on success `info` is, and si_code is a field of every signal.
            let (signal, code) = unsafe {
                let signal = libc::sigwaitinfo(&self.0, info.as_mut_ptr());
                (signal, if signal > 0 { info.assume_init().si_code } else { 0 })
            };
            if signal > 0 {
                // Codes above zero are the kernel's own.
                return (signal, if code > 0 { Origin::Kernel } else { Origin::Process });
            }
        }
    }
}

/// Stops this process by a signal of the terminal's, with `SIGCONT` blocked. `false`: it did not stop, as where nobody in the session could
/// continue its group, or the signal is another.
pub(crate) fn stop_by(signal: i32) -> bool {
    if ![libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal) {
        return false;
    }
    let (only, mut waiting) = (Set::of(&[signal]), Set::of(&[]));
    // SAFETY: the calls take numbers and initialised sets of our own; the signal's old handling is put back. A signal that stops takes away
    // any `SIGCONT` that waits, so that one that waits afterwards has continued us.
    unsafe {
        let before = libc::signal(signal, libc::SIG_DFL);
        libc::kill(libc::getpid(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &only.0, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &only.0, std::ptr::null_mut());
        libc::signal(signal, before);
        libc::sigpending(&mut waiting.0) == 0 && libc::sigismember(&waiting.0, libc::SIGCONT) == 1
    }
}

/// Ends this process by this signal, as its job was ended, so that whoever waits for us is told the same (`WIFSIGNALED`), and leaves no core.
/// Returns where that cannot be: the first process of a container dies of no signal that it has no handler for.
pub(crate) fn end_by(signal: i32) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let only = Set::of(&[signal]);
    // SAFETY: the calls take numbers, a limit of our own and an initialised set; a signal that is refused changes nothing.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        // Where a program takes cores, the limit alone does not hold it back.
        libc::prctl(libc::PR_SET_DUMPABLE, 0 as libc::c_ulong);
        libc::signal(signal, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &only.0, std::ptr::null_mut());
        libc::raise(signal);
    }
}
