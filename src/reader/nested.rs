//! Processes of other PID namespaces, as of containers: a recording names a process by the number that it has in its own.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For so long what was found counts: a folder of many recordings is opened at once.
const FRESH: Duration = Duration::from_secs(1);

/// Numbers of a process, in its own namespace and in ours.
type Numbers = (u32, u32);

/// Processes of namespaces within ours, and when they were looked for.
static SEEN: Mutex<Option<(Instant, Vec<Numbers>)>> = Mutex::new(None);

/// Our numbers of the processes that have the number `own` in a PID namespace of their own within ours. Of several containers each may have
/// one.
pub fn nested(own: u32) -> Vec<u32> {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = seen.take().filter(|(at, _)| at.elapsed() < FRESH);
    let (at, all) = fresh.unwrap_or_else(|| (Instant::now(), look()));
    let found = all.iter().filter(|(inner, _)| *inner == own).map(|(_, ours)| *ours).collect();
    *seen = Some((at, all));
    found
}

fn look() -> Vec<Numbers> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    processes
        .filter_map(|pid| numbers(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?))
        .collect()
}

/// `NSpid: 4711 1`, with tabs: a process's number in our namespace, then in each one within it. `None` where it is of our own.
fn numbers(status: &str) -> Option<Numbers> {
    let all = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    let mut all = all.split_whitespace().filter_map(|n| n.parse().ok());
    let ours = all.next()?;
    Some((all.next_back()?, ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_another_namespace_has_two_numbers() {
        assert_eq!(numbers("Name:\tx\nNSpid:\t4711\t812\t7\nNSpgid:\t1\n"), Some((7, 4711)));
        assert_eq!(numbers("NSpid:\t4711\n"), None);
        assert_eq!(numbers("Name:\tx\n"), None);
        assert!(nested(u32::MAX).is_empty());
    }
}
