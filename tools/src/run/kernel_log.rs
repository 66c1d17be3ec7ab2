//! What the kernel's log says of a process that died of a fault: which thread it was, by its name, and in which file's code. A parent is
//! told neither. Most kernels log it (`/proc/sys/debug/exception-trace`), and root may read it, outside of containers.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use strandline::event::Room;

/// The log from a moment on.
pub(super) struct KernelLog {
    file: File,
    /// Faults in strandline's code, each with its thread's number, that no process was held against yet.
    found: Vec<(u32, Room)>,
}

/// `PROC_PID_INIT_INO`: the first namespace of processes, whose numbers the log has.
const FIRST_NAMESPACE: u64 = 0xefff_fffc;
/// Longest record (`PRINTK_MESSAGE_MAX` of the kernel's `printk/internal.h`), and the most that are read at once.
const LONGEST: usize = 2048;
const MOST: usize = 65_536;

impl KernelLog {
    /// From now on; `None` where this user may not read it, or knows processes by other numbers.
    pub(super) fn from_now() -> Option<KernelLog> {
        let namespace = std::fs::metadata("/proc/self/ns/pid").ok()?;
        if namespace.ino() != FIRST_NAMESPACE {
            return None;
        }
        let mut file = File::open("/dev/kmsg").ok()?;
        // SAFETY: plain numbers; the descriptor is open as long as `file` lives. Without it a read waits for the next record.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return None;
        }
        file.seek(SeekFrom::End(0)).ok()?;
        Some(KernelLog { file, found: Vec::new() })
    }

    /// What of strandline one of these threads had a fault in since then.
    pub(super) fn fault(&mut self, threads: [u32; 2]) -> Option<Room> {
        let mut record = [0; LONGEST];
        for _ in 0..MOST {
            match self.file.read(&mut record) {
                Ok(0) => break,
                Ok(n) => {
                    let text = String::from_utf8_lossy(record.get(..n).unwrap_or_default());
                    self.found.extend(fault(&text));
                }
                // Records that were overwritten are passed over.
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) || e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.found.iter().find(|(tid, _)| threads.contains(tid)).map(|(_, room)| *room)
    }
}

/// The name of the thread that writes a recording.
const WRITER: &str = "strandline";
/// What is logged of a fault after the name and the number of the thread.
const FAULTS: [&str; 3] = ["]: segfault at ", "] general protection fault", "] trap "];

/// Of which thread and what of strandline a record tells a fault: `6,845,2738184211,-;python3[4398]: segfault at 0 ip … in libc.so.6[167ad8,…]`.
fn fault(record: &str) -> Option<(u32, Room)> {
    let (_, text) = record.split_once(';')?;
    let text = text.lines().next()?;
    let text = text.strip_prefix("traps: ").unwrap_or(text);
    let (thread, rest) = FAULTS.iter().find_map(|f| text.split_once(f))?;
    let (name, tid) = thread.rsplit_once('[')?;
    let tid = tid.parse().ok()?;
    let object = rest.split_once(" in ").map_or("", |(_, object)| object);
    if name == WRITER {
        return Some((tid, Room::Writer));
    }
    object.starts_with("libstrandline.so[").then_some((tid, Room::Library))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_the_writer_thread_or_in_the_library_is_ours() {
        let of = |text: &str| fault(&format!("6,845,2738184211,-;{text}\n SUBSYSTEM=x\n"));
        let at = "segfault at 10 ip 00007f5882385ad8 sp 00007ffc1d49da58 error 4";
        assert_eq!(
            of(&format!("strandline[71]: {at} in libc.so.6[167ad8,7f58+15]")),
            Some((71, Room::Writer))
        );
        assert_eq!(of(&format!("strandline[71]: {at}")), Some((71, Room::Writer)), "at no file's code");
        assert_eq!(
            of(&format!(
                "pt_main[7]: {at} in libstrandline.so[1,7f58+15] likely on CPU 1 (core 1, socket 0)"
            )),
            Some((7, Room::Library))
        );
        let trap = "trap invalid opcode ip:7f5 sp:7ff error:0";
        assert_eq!(
            of(&format!("traps: a[b]c[9] {trap} in libstrandline.so[7f+15]")),
            Some((9, Room::Library))
        );
        for other in [
            format!("python3[71]: {at} in libc.so.6[167ad8,7f58+15]"),
            format!("traps: python3[71] {trap} in libtorch_cuda.so[7f+15]"),
            "traps: python3[71] general protection fault ip:7f sp:7f error:0 in libcuda.so.1[7f+15]".into(),
            "strandline[71]: begun".into(),
            String::new(),
        ] {
            assert_eq!(of(&other), None, "{other}");
        }
        assert_eq!(fault("no record"), None);
    }
}
