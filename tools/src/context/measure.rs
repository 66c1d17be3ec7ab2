//! The measurement: what a device has less of, as this process sees it, while another one has a context there and does nothing.
//!
//! A process cannot see what its own context takes: it must have one to ask. So this one has a context throughout, and for each
//! trial another process is started that has one, too, and ends. Where the device has afterwards what it had before, nobody
//! else interfered.

use super::driver::{Context, Driver};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What came of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Measured {
    /// The least of the trials that nobody disturbed.
    Bytes {
        /// What it took.
        bytes: u64,
        /// How many trials.
        trials: u32,
    },
    /// No two trials were undisturbed and said the same.
    Busy,
    /// It could not be tried; as a clause.
    Failed(String),
}

/// Trials that are to agree.
const WANTED: usize = 3;
/// Trials at most.
const TRIES: usize = 9;
/// Closer figures are the same: the driver's own pages.
const SLACK: u64 = 2 << 20;
/// How long the driver may take to give back what an ended process held.
const GIVEN_BACK: Duration = Duration::from_secs(2);

/// Measures a device.
pub(super) fn device(driver: &Driver, device: i32) -> Measured {
    let tried = driver.enter(device).and_then(|context| {
        let mut steady = Vec::new();
        for _ in 0..TRIES {
            steady.extend(trial(&context, device)?);
            if steady.len() == WANTED {
                break;
            }
        }
        Ok(steady)
    });
    tried.map_or_else(Measured::Failed, |steady| judged(&steady))
}

/// Trials that agree with the least of them; one alone proves nothing.
fn judged(steady: &[u64]) -> Measured {
    let bytes = steady.iter().copied().min().unwrap_or(0);
    let trials = steady.iter().filter(|b| b.abs_diff(bytes) <= SLACK).count() as u32;
    if trials < 2 || bytes == 0 { Measured::Busy } else { Measured::Bytes { bytes, trials } }
}

/// One trial; `None` where somebody else allocated or freed meanwhile.
fn trial(context: &Context<'_>, device: i32) -> Result<Option<u64>, String> {
    let before = context.free()?;
    let mut held = Held::start(device)?;
    let during = context.free()?;
    held.end();
    let since = Instant::now();
    let mut after = context.free()?;
    while after.abs_diff(before) > SLACK && since.elapsed() < GIVEN_BACK {
        std::thread::sleep(Duration::from_millis(20));
        after = context.free()?;
    }
    Ok((after.abs_diff(before) <= SLACK).then(|| before.saturating_sub(during)))
}

/// A process that has a context, and does nothing.
struct Held(Child);

/// What it says once it has one.
const READY: &str = "ready";

impl Held {
    fn start(device: i32) -> Result<Held, String> {
        let own = std::env::current_exe().map_err(|e| format!("this command cannot be found: {e}"))?;
        let mut command = Command::new(own);
        command.args(["doctor", "--hold-context", &device.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| format!("no process can be started: {e}"))?;
        let mut held = Held(child);
        let mut said = String::new();
        if let Some(stdout) = held.0.stdout.as_mut() {
            let _ = BufReader::new(stdout).read_line(&mut said);
        }
        if said.trim() == READY {
            return Ok(held);
        }
        let mut why = String::new();
        if let Some(stderr) = held.0.stderr.as_mut() {
            let _ = stderr.take(4096).read_to_string(&mut why);
        }
        let why = why.trim().trim_start_matches("strandline: ").to_string();
        Err(format!("another process could not create a CUDA context there: {why}"))
    }

    /// Ends it, and waits until it has.
    fn end(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}

/// The process's part: a context on a device until stdin ends.
///
/// # Errors
/// As a clause.
pub(super) fn hold(device: i32) -> Result<(), String> {
    let driver = Driver::load()?;
    let context = driver.enter(device)?;
    let mut stdout = std::io::stdout().lock();
    let said = writeln!(stdout, "{READY}").and_then(|()| stdout.flush());
    let wait = said.and_then(|()| std::io::stdin().lock().read_to_end(&mut Vec::new()));
    drop(context);
    wait.map(drop).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_agrees_is_measured() {
        let mib = |n: u64| n << 20;
        assert_eq!(judged(&[mib(526), mib(525), mib(527)]), Measured::Bytes { bytes: mib(525), trials: 3 });
        assert_eq!(judged(&[mib(525), mib(525), mib(900)]), Measured::Bytes { bytes: mib(525), trials: 2 });
        assert_eq!(judged(&[mib(525), mib(700)]), Measured::Busy);
        assert_eq!(judged(&[mib(525)]), Measured::Busy);
        assert_eq!(judged(&[]), Measured::Busy);
        assert_eq!(judged(&[0, 0, 0]), Measured::Busy, "a context takes something");
    }
}
