//! Descriptors that a job is unlikely to count on.

use super::errno;
use std::fs::File;
use std::os::fd::AsRawFd;

/// From this number on a job is unlikely to count on descriptors.
pub(crate) const HIGH: i32 = 700;

/// Opens what is written to. Where the job has closed its standard input, output or error, it does not get that number, not even for a
/// moment: what the job writes there would be in it.
pub(crate) fn open<T>(f: impl FnOnce() -> T) -> T {
    let _standard = Standard::fill();
    f()
}

/// The file at a descriptor that a job is unlikely to count on.
pub(crate) fn moved(file: File) -> File {
    // SAFETY: duplicates an open descriptor; the new one belongs to the `File` made of it and to nobody else.
    unsafe {
        use std::os::fd::FromRawFd;
        match libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH) {
            fd if fd >= 0 => File::from_raw_fd(fd),
            _ => file, // the limit is lower: stay where we are
        }
    }
}

/// Descriptors at those numbers of standard input, output and error that were free, which can neither be read nor written. They go
/// with it.
struct Standard([bool; 3]);

impl Standard {
    fn fill() -> Standard {
        let _errno = errno::keep();
        let mut filled = [false; 3];
        // SAFETY: asks for the flags of a number, which may be nobody's.
        while (0..3).any(|n| unsafe { libc::fcntl(n, libc::F_GETFD) } < 0) {
            // SAFETY: a C string. Such a descriptor allows neither a read nor a write.
            let new = unsafe { libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
            match usize::try_from(new).ok().and_then(|n| filled.get_mut(n)) {
                Some(place) => *place = true,
                None if new < 0 => break,
                None => {
                    // SAFETY: opened above: the lowest that is free is no standard one, so another thread has filled those.
                    unsafe { libc::close(new) };
                    break;
                }
            }
        }
        Standard(filled)
    }
}

impl Drop for Standard {
    fn drop(&mut self) {
        let _errno = errno::keep();
        for (n, _) in (0..).zip(self.0).filter(|(_, filled)| *filled) {
            // SAFETY: plain numbers. What is no such descriptor any more is a file of the job's, which has closed ours meanwhile.
            unsafe {
                let flags = libc::fcntl(n, libc::F_GETFL);
                if flags >= 0 && flags & libc::O_PATH != 0 {
                    libc::close(n);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own, since the numbers are the whole process's.
    #[test]
    fn a_file_never_gets_the_number_of_a_closed_standard_output() {
        // SAFETY: the child calls nothing that needs a lock but the function that is tested, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = {
                // SAFETY: this process's own numbers.
                unsafe {
                    libc::close(0);
                    libc::close(1);
                }
                let open = || open(|| File::open("/dev/null")).map(std::mem::ManuallyDrop::new);
                let numbers = [open(), open()].map(|f| f.map_or(-1, |f| f.as_raw_fd()));
                // SAFETY: asks for flags.
                let is_free = (0..2).all(|n| unsafe { libc::fcntl(n, libc::F_GETFD) } < 0);
                i32::from(!(numbers.iter().all(|n| *n > 2) && is_free))
            };
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
