//! Stacks: which line asked for a block.
//!
//! Hot: [`current`] hashes the frames and looks the hash up in the thread's own cache (42 ns for 23 frames). Cold, once
//! per distinct stack: `intern` copies what the code objects say and commits the definition before the id is used.

pub(crate) mod intern;
mod offsets;
mod python;
mod watch;

use crate::real;
use crate::thread::Thread;
use std::ffi::{CStr, c_char};

/// Frames of a stack that are kept; deeper ones are counted in the hash and left out of the definition.
pub(crate) const MAX_FRAMES: usize = 256;
const CACHE_ENTRIES: usize = 1 << 12;
const PROBES: usize = 4;

/// A frame as the walk sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frame {
    /// Address of the code object.
    code: u64,
    /// Address or index of the instruction, as the version keeps it.
    instruction: u64,
}

/// Stacks that a thread has seen: 64 KiB, open addressing, zeroed memory is empty.
#[repr(C)]
pub(crate) struct Cache {
    entries: [Entry; CACHE_ENTRIES],
    /// Where a miss stores the frames.
    frames: [Frame; MAX_FRAMES],
}

#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    id: u32,
    epoch: u32,
}

/// Number of the calling thread's Python stack; 0 where it has none, or none is recorded.
#[inline(always)]
pub(crate) fn current(t: &mut Thread) -> u32 {
    let (depth, hash) = python::walk::<false>(&mut t.cache.frames);
    if depth == 0 {
        return 0;
    }
    let hash = hash | 1; // 0 marks an empty entry
    let epoch = watch::epoch();
    for k in 0..PROBES {
        // SAFETY: the index is masked to the array's length.
        let e = unsafe { t.cache.entries.get_unchecked((((hash >> 20) as usize) + k) & (CACHE_ENTRIES - 1)) };
        if e.hash == hash && e.epoch == epoch {
            return e.id;
        }
        if e.hash == 0 {
            break;
        }
    }
    miss(t, hash, epoch)
}

#[cold]
#[inline(never)]
fn miss(t: &mut Thread, hash: u64, epoch: u32) -> u32 {
    let (depth, _) = python::walk::<true>(&mut t.cache.frames);
    let Some(frames) = t.cache.frames.get(..depth.min(MAX_FRAMES)) else { return 0 };
    let id = intern::stack(frames, depth > MAX_FRAMES);
    if id == 0 {
        return 0; // no room for the definition just now: ask again next time
    }
    for k in 0..PROBES {
        let at = (((hash >> 20) as usize) + k) & (CACHE_ENTRIES - 1);
        let Some(e) = t.cache.entries.get_mut(at) else { continue };
        if e.hash == 0 || e.hash == hash || e.epoch != epoch || k == PROBES - 1 {
            *e = Entry { hash, id, epoch };
            break;
        }
    }
    id
}

/// Looks at the interpreter and begins to read its frames. The result is the version text where there is one.
///
/// # Errors
/// Why there are no stacks, as one sentence.
#[cold]
pub(crate) fn start() -> Result<(), String> {
    let Some(version) = python_version() else {
        return Err("no Python in this process: no stacks".into());
    };
    let minor = minor_of(&version).unwrap_or(0);
    let (get, code_type) = (real::python(c"PyGILState_GetThisThreadState"), real::python(c"PyCode_Type"));
    let known = offsets::of(minor).filter(|_| !version.contains("free-threading"));
    let finalizing = is_finalizing();
    let all = ![get, code_type, finalizing].contains(&core::ptr::null_mut());
    let Some(known) = known.filter(|_| all) else {
        let short = version.split_whitespace().next().unwrap_or("");
        return Err(format!(
            "Python {short}: its frames are not known to this version of strandline; no stacks"
        ));
    };
    intern::start(known, code_type as u64);
    // SAFETY: the type object and the offsets belong to the running version, which is in the table.
    unsafe { watch::install(code_type) };
    python::start(minor, get, finalizing);
    Ok(())
}

/// The function that tells whether the interpreter is going away, by either of its names; null where there is none.
#[cold]
pub(crate) fn is_finalizing() -> *mut std::ffi::c_void {
    match real::python(c"Py_IsFinalizing") {
        p if p.is_null() => real::python(c"_Py_IsFinalizing"),
        p => p,
    }
}

/// What `sys.version` says, without the GIL.
#[cold]
pub(crate) fn python_version() -> Option<String> {
    let f = real::python(c"Py_GetVersion");
    if f.is_null() {
        return None;
    }
    // SAFETY: the function's type is part of the stable C API; it needs no GIL and returns a static string.
    let text = unsafe {
        let f: extern "C" fn() -> *const c_char = core::mem::transmute(f);
        CStr::from_ptr(f())
    };
    Some(text.to_string_lossy().into_owned())
}

fn minor_of(version: &str) -> Option<u32> {
    let rest = version.strip_prefix("3.")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minor_version_is_read_from_what_python_says() {
        assert_eq!(minor_of("3.11.7 (main, May 1 2026) [GCC 12]"), Some(11));
        assert_eq!(minor_of("3.14.0rc1 free-threading build"), Some(14));
        assert_eq!(minor_of("2.7.18"), None);
    }
}
