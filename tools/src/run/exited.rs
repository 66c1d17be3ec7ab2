//! How a process ended that is not our child: a rank of a launcher's, say. Its own parent is told; we ask the kernel.

use crate::process::Target;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A process, and what the kernel remembers it by when its number is another's.
pub(super) struct Process {
    /// Its number.
    pub(super) pid: u32,
    /// `None`: it had ended before it was looked at.
    target: Option<Target>,
    handle: Option<OwnedFd>,
}

/// The kernel's `struct pidfd_info`, as it was first.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    /// Process, group, parent, and eight ids of users.
    ids: [u32; 11],
    exit_code: i32,
}

/// `PIDFD_GET_INFO`: reads and writes 64 bytes. Since Linux 6.13; [`EXIT`] since 6.15.
const GET_INFO: libc::c_ulong = 0xc040_ff0b;
/// `PIDFD_INFO_EXIT`: how it ended, once its parent has been told.
const EXIT: u64 = 1 << 3;
const _: () = assert!(size_of::<Info>() == 64);

impl Process {
    /// The process at the other end of a socket, whose number is known already. It may have ended meanwhile.
    pub(super) fn at(socket: &OwnedFd, pid: u32) -> Process {
        Process::with(peer(socket).or_else(|| opened(pid)), pid)
    }

    /// The process that has this number now.
    pub(super) fn of(pid: u32) -> Process {
        Process::with(opened(pid), pid)
    }

    /// Looked at after the handle was made: both are of the same process.
    fn with(handle: Option<OwnedFd>, pid: u32) -> Process {
        Process { pid, target: Target::of(pid), handle }
    }

    /// It has not ended.
    pub(super) fn is_alive(&self) -> bool {
        self.target.as_ref().is_some_and(Target::is_alive)
    }

    /// What its parent's `waitpid(2)` says, or said, of a process that has ended. `None`: it was reaped before anybody looked, by a
    /// kernel that forgets.
    pub(super) fn wait_status(&self) -> Option<i32> {
        self.unreaped().or_else(|| self.remembered())
    }

    /// Of one whose parent has not asked yet: field 52 of its `stat`.
    fn unreaped(&self) -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let started = fields.get(19)?.parse();
        let is_it = fields.first() == Some(&"Z") && self.target.is_none_or(|t| started == Ok(t.start));
        // A zero may also be what the kernel says to whoever may not know.
        fields.get(49)?.parse().ok().filter(|status| is_it && *status != 0)
    }

    fn remembered(&self) -> Option<i32> {
        let mut info = Info { mask: EXIT, ..Info::default() };
        // SAFETY: the kernel writes at most the 64 bytes that the request names.
        let did = unsafe { libc::ioctl(self.handle.as_ref()?.as_raw_fd(), GET_INFO, &raw mut info) };
        (did == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
    }
}

fn opened(pid: u32) -> Option<OwnedFd> {
    // SAFETY: plain numbers; the descriptor is new and belongs to the `OwnedFd` alone.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        i32::try_from(fd).ok().filter(|fd| *fd >= 0).map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

/// The same of whoever connected to a socket, also once it has ended (Linux 6.16).
fn peer(socket: &OwnedFd) -> Option<OwnedFd> {
    const PEER_PIDFD: i32 = 77;
    let (mut fd, mut len) = (-1i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the kernel writes one number of the size that is said; the descriptor is new and belongs to the `OwnedFd` alone.
    unsafe {
        let place = (&raw mut fd).cast();
        let did = libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, PEER_PIDFD, place, &mut len);
        (did == 0 && fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn how_a_process_ended_is_known_before_its_parent_asks() {
        let mut shell = Command::new("sh");
        let child = shell.args(["-c", "read x; kill -SEGV $$"]).stdin(std::process::Stdio::piped());
        let mut child = child.spawn().unwrap();
        let process = Process::of(child.id());
        assert_eq!(process.wait_status(), None, "it lives");
        drop(child.stdin.take());
        let began = Instant::now();
        while process.is_alive() && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let status = process.wait_status().unwrap();
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "{status:#x}");
        child.wait().unwrap();
        // Newer kernels remember; of older ones nothing is made up.
        assert!([None, Some(status)].contains(&process.wait_status()));
    }
}
