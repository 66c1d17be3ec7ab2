//! `errno`, which the calls that we make on a thread of the job's must leave as it was.

/// The calling thread's `errno`; dropped, it puts it back. To be made before all else that is to be undone, so that it goes last.
#[must_use = "`errno` is put back when this is dropped"]
pub(crate) struct KeptErrno(i32);

/// Keeps the calling thread's `errno` until the value is dropped.
#[inline]
pub(crate) fn keep() -> KeptErrno {
    // SAFETY: the address is that of this thread's own `errno`, which may be read at any time.
    KeptErrno(unsafe { *libc::__errno_location() })
}

impl Drop for KeptErrno {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `keep`; it may be written at any time as well.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_failed_call_leaves_no_trace() {
        let set = |n| std::fs::read(format!("/nowhere/{n}")).map(drop);
        let now = || std::io::Error::last_os_error().raw_os_error();
        set(1).unwrap_err();
        let before = now();
        {
            let _errno = super::keep();
            // SAFETY: closes no file.
            unsafe { libc::close(-1) };
            assert_ne!(now(), before);
        }
        assert_eq!(now(), before);
    }
}
