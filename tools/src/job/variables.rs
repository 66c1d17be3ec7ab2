//! Variables of a job's, and those of the loader and of NVTX that bring our library into it.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

/// A variable for a job: name and value.
pub(crate) type Variable = (String, OsString);

/// What NVTX loads at a process's first mark; ours where steps are ranges of it.
pub(crate) const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";

/// The loader's variable.
pub(crate) const LD_PRELOAD: &str = "LD_PRELOAD";

/// Ends this process with `status` if `LD_PRELOAD` brought a library into it, else returns. That library was meant for the job, where it
/// writes its profile or its statistics at the end; its destructors and `atexit` functions would do so once more here.
pub(crate) fn leave_preloads_silent(status: u8) {
    if std::env::var_os(LD_PRELOAD).is_some_and(|list| !list.is_empty()) {
        let _ = std::io::stdout().flush();
        // SAFETY: it takes a number alone and never returns; what we print is flushed.
        unsafe { libc::_exit(status.into()) };
    }
}

/// Ours comes last: who was there first stays first.
pub(crate) fn appended(existing: Option<OsString>, library: &Path) -> OsString {
    let mut all = existing.unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(library);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_there_first_stays_first() {
        let library = Path::new("/c/libstrandline.so");
        assert_eq!(appended(None, library), "/c/libstrandline.so");
        assert_eq!(appended(Some("".into()), library), "/c/libstrandline.so");
        assert_eq!(appended(Some("/a.so /b.so".into()), library), "/a.so /b.so:/c/libstrandline.so");
    }
}
