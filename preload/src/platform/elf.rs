//! Where a loaded library lies, and the symbols of its file. Cold; every offset read from the file is checked.

use super::loader;
use std::ffi::{CStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A library that is mapped into this process.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    /// What is added to a symbol's value.
    pub(crate) base: usize,
    /// The file, as the loader names it.
    pub(crate) path: PathBuf,
}

/// All loaded libraries that have a file name.
pub(crate) fn loaded() -> Vec<Loaded> {
    extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> i32 {
        // SAFETY: the loader passes a valid description, and `out` is the vector below, alive for the whole walk.
        unsafe {
            let out = &mut *out.cast::<Vec<Loaded>>();
            if !(*info).dlpi_name.is_null() {
                let name = CStr::from_ptr((*info).dlpi_name).to_bytes();
                if !name.is_empty() {
                    let path = PathBuf::from(std::ffi::OsStr::from_bytes(name));
                    out.push(Loaded { base: (*info).dlpi_addr as usize, path });
                }
            }
        }
        0
    }
    let mut out: Vec<Loaded> = Vec::new();
    let _in_loader = loader::enter();
    // SAFETY: the callback has the required signature and only pushes to `out`.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut out).cast()) };
    out
}

/// The loaded library with this file name.
pub(crate) fn find(name: &str) -> Option<Loaded> {
    loaded().into_iter().find(|l| l.path.file_name().is_some_and(|f| f.as_bytes() == name.as_bytes()))
}

/// One symbol of a table.
pub(crate) struct Symbol<'a> {
    /// Mangled name.
    pub(crate) name: &'a [u8],
    /// Value: an address relative to the library's base.
    pub(crate) value: usize,
    /// Size in bytes.
    pub(crate) size: usize,
}

const SHT_SYMTAB: u64 = 2;
const SYMBOL_BYTES: usize = 24;

/// Calls `each` for every defined symbol of the file's `.symtab`. `None`: not a 64-bit little-endian ELF file, damaged,
/// or stripped of that table.
pub(crate) fn symtab(file: &[u8], mut each: impl FnMut(Symbol<'_>)) -> Option<()> {
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (headers, entry, count) = (word(file, 0x28, 8)?, word(file, 0x3a, 2)?, word(file, 0x3c, 2)?);
    let header = |i: u64| headers.checked_add(i.checked_mul(entry)?)?.try_into().ok();
    for i in 0..count {
        let at: usize = header(i)?;
        if word(file, at.checked_add(4)?, 4)? != SHT_SYMTAB {
            continue;
        }
        let symbols = section(file, at)?;
        let names = section(file, header(word(file, at.checked_add(40)?, 4)?)?)?;
        for s in symbols.chunks_exact(SYMBOL_BYTES) {
            if word(s, 6, 2)? == 0 {
                continue; // undefined here
            }
            let name = names.get(word(s, 0, 4)? as usize..)?;
            let name = name.get(..name.iter().position(|&c| c == 0)?)?;
            each(Symbol { name, value: word(s, 8, 8)? as usize, size: word(s, 16, 8)? as usize });
        }
        return Some(());
    }
    None
}

fn section(file: &[u8], header: usize) -> Option<&[u8]> {
    let offset: usize = word(file, header.checked_add(24)?, 8)?.try_into().ok()?;
    let size: usize = word(file, header.checked_add(32)?, 8)?.try_into().ok()?;
    file.get(offset..offset.checked_add(size)?)
}

fn word(b: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let mut out = [0; 8];
    out.get_mut(..bytes)?.copy_from_slice(b.get(at..at.checked_add(bytes)?)?);
    Some(u64::from_le_bytes(out))
}

/// Runs `f` over a file's bytes, mapped and not copied (libtorch is several hundred megabytes).
pub(crate) fn with_file<R>(path: &Path, f: impl FnOnce(&[u8]) -> R) -> std::io::Result<R> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(path)?;
    // SAFETY: a fresh private read-only mapping of an open file; its length comes from the file itself. Libraries are
    // replaced by rename, not truncated in place, and the loader maps the same file in the same way.
    unsafe {
        let len = libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END);
        let Some(len) = usize::try_from(len).ok().filter(|&l| l > 0) else {
            return Err(std::io::Error::last_os_error());
        };
        let p =
            libc::mmap(core::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        if p == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let r = f(core::slice::from_raw_parts(p.cast(), len));
        libc::munmap(p, len);
        Ok(r)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own_symbols() {
        let mut seen = 0;
        let exe = std::env::current_exe().unwrap();
        let found = with_file(&exe, |b| symtab(b, |s| seen += usize::from(s.name == b"main")));
        assert_eq!(found.unwrap(), Some(()));
        assert_eq!(seen, 1);
    }

    #[test]
    fn any_bytes_are_refused_not_followed() {
        let exe = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(symtab(b"", |_| ()), None);
        assert_eq!(symtab(&exe[..200], |_| ()), None);
        let mut broken = exe[..4096].to_vec();
        broken[0x28..0x30].fill(0xff);
        assert_eq!(symtab(&broken, |_| ()), None);
    }
}
