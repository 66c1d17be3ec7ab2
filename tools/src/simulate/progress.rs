//! One line on stderr for each stage: what, then how long it took.

use std::io::Write;
use std::time::Instant;

/// Whether and how stages are told.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    quiet: bool,
}

impl Progress {
    /// Tells stages unless `quiet`.
    pub(super) fn new(quiet: bool) -> Self {
        Progress { quiet }
    }

    /// Runs a stage that may fail.
    pub(super) fn stage<T, E>(self, what: &str, run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.tell(format_args!("strandline: {what} … "));
        let start = Instant::now();
        let outcome = run();
        let seconds = start.elapsed().as_secs_f64();
        match &outcome {
            Ok(_) if seconds < 10.0 => self.tell(format_args!("{seconds:.1} s\n")),
            Ok(_) => self.tell(format_args!("{seconds:.0} s\n")),
            Err(_) => self.tell(format_args!("failed\n")),
        }
        outcome
    }

    /// Runs a stage that is not worth a line unless it does something: returns bytes, which are told if any.
    pub(super) fn quick(self, what: &str, run: impl FnOnce() -> u64) {
        let bytes = run();
        if bytes > 0 {
            self.tell(format_args!("strandline: {what}: {} MB\n", bytes / 1_000_000));
        }
    }

    /// Says one line.
    pub(super) fn say(self, what: &str) {
        self.tell(format_args!("strandline: {what}\n"));
    }

    fn tell(self, text: std::fmt::Arguments<'_>) {
        if !self.quiet {
            // A stderr that is closed is no reason to stop.
            let _ = std::io::stderr().write_fmt(text);
        }
    }
}
