//! One line on the job's stderr, and the signals that writing could raise.

use std::fmt::Arguments;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Device and inode of what descriptor 2 was as this library was loaded; 0: not known; [`CLOSED`]: nothing.
static STDERR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
const CLOSED: (u64, u64, libc::mode_t) = (u64::MAX, u64::MAX, 0);

/// Notes what the job's stderr is.
#[cold]
pub(crate) fn note_stderr() {
    let (device, inode, _) = second().unwrap_or(CLOSED);
    for (place, value) in STDERR.iter().zip([device, inode]) {
        place.store(value, Relaxed);
    }
}

/// Device, inode and mode of descriptor 2.
fn second() -> Option<(u64, u64, libc::mode_t)> {
    // SAFETY: the structure is plain data, which the call fills; whatever the descriptor is, the kernel checks it.
    unsafe {
        let mut s: libc::stat = core::mem::zeroed();
        (libc::fstat(2, &mut s) == 0).then_some((s.st_dev, s.st_ino, s.st_mode))
    }
}

/// Whether descriptor 2 is a place for messages. A job that closes all descriptors, as daemons do, may have a file of data there, or
/// somebody's connection; so may one that began without a stderr. What is another one than it was must be a terminal, a device, or a file that is appended to.
fn is_stderr() -> bool {
    let Some((device, inode, mode)) = second() else { return false };
    let [was_device, was_inode] = STDERR.each_ref().map(|w| w.load(Relaxed));
    if (was_device, was_inode) == (0, 0) || (was_device, was_inode) == (device, inode) {
        return true;
    }
    // SAFETY: asks for the descriptor's flags.
    let appends = unsafe { libc::fcntl(2, libc::F_GETFL) } & libc::O_APPEND != 0;
    match mode & libc::S_IFMT {
        libc::S_IFCHR => true,
        libc::S_IFREG => appends,
        _ => false,
    }
}

/// Writes one whole line without allocating: it begins with `strandline: ` and ends with a line feed.
#[cold]
pub(crate) fn fixed(line: &'static str) {
    write(line);
}

/// Writes one whole line, beginning with `strandline: `. Failures to write are ignored: there is nobody left to tell.
#[cold]
pub(crate) fn line(what: Arguments<'_>) {
    write(&format!("strandline: {what}\n"));
}

fn write(line: &str) {
    if !is_stderr() {
        return;
    }
    let _signals = Blocked::all();
    // SAFETY: the pointer and length are those of a live string; descriptor 2 may be anything, `write` checks it.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// Writes one line to the job's stderr: `say!("…", …)`.
macro_rules! say {
    ($($arg:tt)*) => { $crate::platform::say::line(format_args!($($arg)*)) };
}
pub(crate) use say;

/// All signals of this thread are blocked while this lives.
///
/// What our own writes could raise on the thread (SIGPIPE, SIGXFSZ) is taken back before the mask is restored, so that
/// a closed pipe or a file size limit of the job never kills it because of us.
pub(crate) struct Blocked {
    old: libc::sigset_t,
    was_pending: bool,
}

impl Blocked {
    /// Blocks every signal.
    pub(crate) fn all() -> Blocked {
        // SAFETY: both sets are plain data that the calls fill before they are read; the calls cannot fail with these
        // arguments, and if they did the mask would merely be left as it was.
        unsafe {
            let mut every: libc::sigset_t = core::mem::zeroed();
            let mut old: libc::sigset_t = core::mem::zeroed();
            libc::sigfillset(&mut every);
            libc::pthread_sigmask(libc::SIG_SETMASK, &every, &mut old);
            Blocked { old, was_pending: raised_by_writing_is_pending() }
        }
    }
}

fn raised_by_writing() -> libc::sigset_t {
    // SAFETY: the set is plain data, emptied before it is used.
    unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGPIPE);
        libc::sigaddset(&mut set, libc::SIGXFSZ);
        set
    }
}

fn raised_by_writing_is_pending() -> bool {
    // SAFETY: `sigpending` fills the set; membership of two valid signal numbers is asked.
    unsafe {
        let mut pending: libc::sigset_t = core::mem::zeroed();
        libc::sigpending(&mut pending) == 0
            && (libc::sigismember(&pending, libc::SIGPIPE) == 1
                || libc::sigismember(&pending, libc::SIGXFSZ) == 1)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the sets are initialised; a zero timeout makes `sigtimedwait` return at once, and it takes only the two
        // signals, which were not pending before this guard and so were raised by our own writes.
        unsafe {
            if !self.was_pending {
                let set = raised_by_writing();
                let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                while libc::sigtimedwait(&set, core::ptr::null_mut(), &now) > 0 {}
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.old, core::ptr::null_mut());
        }
    }
}
