//! One line on the job's stderr, and the signals that writing could raise.

use std::fmt::Arguments;

/// Writes one whole line, beginning with `strandline: `. Failures to write are ignored: there is nobody left to tell.
#[cold]
pub(crate) fn line(what: Arguments<'_>) {
    let line = format!("strandline: {what}\n");
    let _signals = Blocked::all();
    // SAFETY: the pointer and length are those of a live string; descriptor 2 may be anything, `write` checks it.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// Writes one line to the job's stderr: `say!("…", …)`.
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
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
