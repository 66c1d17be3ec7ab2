//! How a job ended, as the command that waited for it has seen.

use strandline::event::HostKiller;

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With this status.
    Exit(u8),
    /// By this signal.
    Signal(i32),
}

impl Ended {
    /// As a shell says it: 128+n for signal n.
    pub(crate) fn status(self) -> u8 {
        match self {
            Ended::Exit(status) => status,
            Ended::Signal(signal) => 128u8.saturating_add(signal as u8),
        }
    }

    /// As `waitpid(2)` says it; a core that was dumped left out.
    pub(crate) fn wait_status(self) -> i32 {
        match self {
            Ended::Exit(status) => i32::from(status) << 8,
            Ended::Signal(signal) => signal,
        }
    }
}

/// What the command saw of its job's own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its process.
    pub(crate) pid: u32,
    /// How it ended.
    pub(crate) ended: Ended,
    /// What the host's out-of-memory killer did in our control group meanwhile.
    pub(crate) killer: HostKiller,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_said_as_a_shell_says_it() {
        assert_eq!(Ended::Exit(3).status(), 3);
        assert_eq!(Ended::Signal(libc::SIGTERM).status(), 143);
        assert_eq!(Ended::Signal(libc::SIGKILL).status(), 137);
    }
}
