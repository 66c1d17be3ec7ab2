//! The environment of a job, as `execve(2)` takes it: ours as it came, to the last entry, with variables set in it.

use super::variables::Variable;
use std::ffi::{CStr, CString, NulError, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null;

/// Entries in their order: those of ours that are set anew in their places, new ones at the end. Entries of one name twice, and those
/// without a `=`, are the business of whoever set them.
pub(crate) struct Environment {
    /// What `pointers` points into.
    _entries: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers are of the entries beside them, which nobody changes and which lie on the heap, wherever this is moved.
unsafe impl Send for Environment {}
// SAFETY: as above: nothing is changed through a shared reference.
unsafe impl Sync for Environment {}

unsafe extern "C" {
    #[link_name = "environ"]
    static mut ENVIRON: *const *const c_char;
}

impl Environment {
    /// This process's own, with these variables; of two of one name the later counts.
    ///
    /// # Errors
    /// A variable has a zero byte in it.
    pub(crate) fn with(variables: &[Variable]) -> Result<Environment, NulError> {
        Environment::made(own(), variables)
    }

    fn made(own: Vec<CString>, variables: &[Variable]) -> Result<Environment, NulError> {
        let mut entries: Vec<Option<CString>> = own.into_iter().map(Some).collect();
        for (name, value) in variables {
            let begin = [name.as_bytes(), b"="].concat();
            let entry = CString::new([&*begin, value.as_bytes()].concat())?;
            let is_it = |e: &Option<CString>| e.as_ref().is_some_and(|e| e.to_bytes().starts_with(&begin));
            let first = entries.iter().position(is_it);
            // Who asks for it is told the first.
            entries.iter_mut().filter(|e| is_it(e)).for_each(|e| *e = None);
            match first {
                Some(place) => entries[place] = Some(entry),
                None => entries.push(Some(entry)),
            }
        }
        let entries: Vec<CString> = entries.into_iter().flatten().collect();
        let pointers = entries.iter().map(|e| e.as_ptr()).chain([null()]).collect();
        Ok(Environment { _entries: entries, pointers })
    }

    /// Makes it this process's. Async-signal-safe: used between fork and exec.
    ///
    /// # Safety
    /// No other thread reads the environment, now or later, and this lives until the process is another program.
    pub(crate) unsafe fn install(&self) {
        // SAFETY: nobody reads it meanwhile, as the caller says; it ends with a null and lives long enough.
        unsafe { ENVIRON = self.pointers.as_ptr() };
    }
}

/// What this process was given.
fn own() -> Vec<CString> {
    let mut entries = Vec::new();
    // SAFETY: the environment is an array of strings with a null at its end, or null itself; nothing of this program changes it.
    unsafe {
        let mut entry = ENVIRON;
        while !entry.is_null() && !(*entry).is_null() {
            entries.push(CStr::from_ptr(*entry).to_owned());
            entry = entry.add(1);
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_anew_stays_as_it_is() {
        let own = ["Z=1", "NOEQ", "A=2", "=x", "DUP=1", "DUP=2", "B=3", "AB=4", "B=5"];
        let own = own.iter().map(|e| CString::new(*e).unwrap()).collect();
        let set = |name: &str, value: &str| (name.to_string(), value.into());
        let made = Environment::made(own, &[set("B", "6"), set("NEW", "7"), set("B", "8")]).unwrap();
        let entries: Vec<&str> = made._entries.iter().map(|e| e.to_str().unwrap()).collect();
        assert_eq!(entries, ["Z=1", "NOEQ", "A=2", "=x", "DUP=1", "DUP=2", "B=8", "AB=4", "NEW=7"]);
        assert!(Environment::made(Vec::new(), &[set("A", "1\0")]).is_err());
    }

    #[test]
    fn the_own_environment_is_there() {
        let path = own().into_iter().find(|e| e.to_bytes().starts_with(b"PATH="));
        let is = std::env::var("PATH").ok().map(|p| format!("PATH={p}"));
        assert_eq!(path.and_then(|p| p.into_string().ok()), is);
    }
}
