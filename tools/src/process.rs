//! A process, told from another one that got its number.

use strandline::format::region::Identity;
use strandline::reader::nested;

/// A process that may be sent a signal: never another one that got its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its number.
    pub(crate) pid: u32,
    /// When it was started, in clock ticks since boot.
    pub(crate) start: u64,
}

impl Target {
    /// The process that has this number now.
    pub(crate) fn of(pid: u32) -> Option<Target> {
        Some(Target { pid, start: started(pid)? })
    }

    /// The process that a recording names: by the number that it has in its own PID namespace, which may be a container's.
    pub(crate) fn recorded(&Identity { pid, start, .. }: &Identity) -> Target {
        let named = Target { pid, start };
        if named.is_alive() {
            return named;
        }
        let mut of_container = nested(pid).into_iter().map(|pid| Target { pid, start });
        of_container.find(Target::is_alive).unwrap_or(named)
    }

    /// It has not ended.
    pub(crate) fn is_alive(&self) -> bool {
        started(self.pid) == Some(self.start)
    }

    /// Sends it a signal, if it has not ended.
    pub(crate) fn send(&self, signal: i32) {
        if self.is_alive() {
            // SAFETY: kill touches no memory. The number is that of the process that was meant: it was just compared.
            unsafe { libc::kill(self.pid as libc::pid_t, signal) };
        }
    }
}

/// When a process was started, in clock ticks since boot (field 22 of its `stat`); `None` where it has ended.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    // A zombie has ended, though its entry is still there.
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// From now on buffers of a MiB and more are mappings of their own: they grow without being copied and are given back at once.
/// Otherwise what one backlog of events needed stays in the heap of a command that follows jobs for days.
pub(crate) fn map_large_buffers() {
    // SAFETY: mallopt takes two numbers, and malloc's own lock guards what it sets.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_is_told_from_one_that_had_its_pid() {
        let me = std::process::id();
        let start = started(me).unwrap();
        assert!(start > 0);
        assert_eq!(started(me), Some(start));
        assert_eq!(started(0), None);
    }
}
