//! One line on stderr for each stage: what, then how long it took.

use std::io::Write;
use std::time::Instant;

/// Runs a stage that may fail.
pub(super) fn stage<T, E>(what: &str, run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    tell(format_args!("strandline: {what} … "));
    let start = Instant::now();
    let outcome = run();
    let seconds = start.elapsed().as_secs_f64();
    match &outcome {
        Ok(_) if seconds < 10.0 => tell(format_args!("{seconds:.1} s\n")),
        Ok(_) => tell(format_args!("{seconds:.0} s\n")),
        Err(_) => tell(format_args!("failed\n")),
    }
    outcome
}

/// Says something. A stderr that is closed is no reason to stop.
pub(super) fn tell(text: std::fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_fmt(text);
}
