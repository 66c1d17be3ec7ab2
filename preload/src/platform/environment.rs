//! The environment, of which a job may have cleared strandline's part before its first CUDA call (`os.environ.clear()`): what this library
//! reads of it is copied when the process starts, without the heap.

use core::cell::UnsafeCell;
use std::collections::HashSet;
use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// How the names begin that are copied: strandline's, and those by which launchers tell ranks.
const COPIED: [&[u8]; 7] = [
    b"STRANDLINE_",
    b"RANK=",
    b"LOCAL_RANK=",
    b"WORLD_SIZE=",
    b"SLURM_",
    b"OMPI_COMM_WORLD_",
    b"TORCHELASTIC_",
];
/// Room for them; what does not fit is not copied.
const BYTES: usize = 16 << 10;

/// `NAME=VALUE`, each with a zero behind it.
struct Copy(UnsafeCell<[u8; BYTES]>);

// SAFETY: written by `remember` alone, before the process has a second thread; `LENGTH` says how much of it can be read.
unsafe impl Sync for Copy {}

static COPY: Copy = Copy(UnsafeCell::new([0; BYTES]));
static LENGTH: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Copies what may be read later.
///
/// # Safety
/// The process has one thread, and nobody has called this before.
pub(crate) unsafe fn remember() {
    let mut length = 0;
    // SAFETY: `environ` is null or an array of C strings that ends with null, and nobody changes it meanwhile: there is one thread, which
    // is also the only one to touch the copy.
    unsafe {
        let copy = &mut *COPY.0.get();
        let mut next = environ;
        while !next.is_null() && !(*next).is_null() {
            let entry = CStr::from_ptr(*next).to_bytes_with_nul();
            next = next.add(1);
            if COPIED.iter().any(|begin| entry.starts_with(begin))
                && let Some(room) = copy.get_mut(length..length + entry.len())
            {
                room.copy_from_slice(entry);
                length += entry.len();
            }
        }
    }
    LENGTH.store(length, Release);
}

/// The process's environment; where nothing of strandline's is left in it, with what it had of that at the start.
pub(crate) fn variables() -> Vec<(OsString, OsString)> {
    // SAFETY: that much has been written, and is never written again.
    let copy = unsafe { core::slice::from_raw_parts(COPY.0.get().cast::<u8>(), LENGTH.load(Acquire)) };
    completed(std::env::vars_os().collect(), copy)
}

fn completed(mut now: Vec<(OsString, OsString)>, copy: &[u8]) -> Vec<(OsString, OsString)> {
    if now.iter().any(|(name, _)| name.as_bytes().starts_with(COPIED[0])) {
        return now;
    }
    let known: HashSet<OsString> = now.iter().map(|(name, _)| name.clone()).collect();
    let entries = copy.split(|&b| b == 0).filter_map(|entry| {
        let at = entry.iter().position(|&b| b == b'=')?;
        let text = |bytes| OsStr::from_bytes(bytes).to_os_string();
        Some((text(&entry[..at]), text(&entry[at + 1..])))
    });
    now.extend(entries.filter(|(name, _)| !known.contains(name)));
    now
}

/// One of [`variables`].
pub(crate) fn variable(name: &str) -> Option<OsString> {
    variables().into_iter().find(|(n, _)| n == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cleared_environment_is_completed_and_a_changed_one_is_not() {
        let pairs = |all: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            all.iter().map(|(name, value)| (name.into(), value.into())).collect()
        };
        let copy = b"STRANDLINE_OUT=/a=b\0RANK=3\0STRANDLINE_QUIET=1\0";
        let cleared = completed(pairs(&[("RANK", "4")]), copy);
        assert_eq!(cleared, pairs(&[("RANK", "4"), ("STRANDLINE_OUT", "/a=b"), ("STRANDLINE_QUIET", "1")]));
        let changed = pairs(&[("STRANDLINE_OUT", "/c")]);
        assert_eq!(completed(changed.clone(), copy), changed);
        assert_eq!(completed(Vec::new(), b""), []);
    }
}
