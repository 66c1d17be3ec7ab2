//! Signals that end jobs.

/// What an out-of-memory killer, schedulers and users send to end a process at once.
pub const SIGKILL: i32 = 9;
/// What launchers send to the other processes once one has failed.
pub const SIGTERM: i32 = 15;

/// Their numbers on Linux x86-64, and their names.
const SIGNALS: [(i32, &str); 14] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (SIGKILL, "SIGKILL"),
    (10, "SIGUSR1"),
    (11, "SIGSEGV"),
    (12, "SIGUSR2"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (SIGTERM, "SIGTERM"),
];

/// `SIGTERM`; `None` for a number that has no name here.
pub fn signal_name(number: i32) -> Option<&'static str> {
    SIGNALS.iter().find(|(n, _)| *n == number).map(|(_, name)| *name)
}
