//! Where a loaded library lies, and the symbols of its file. Cold; every offset read from the file is checked.

use super::{loader, mapping};
use object::LittleEndian;
use object::elf::{FileHeader64, SHN_UNDEF, SHT_SYMTAB};
use object::read::elf::{FileHeader as _, Sym as _};
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

/// Calls `each` for every defined symbol of the file's `.symtab`. `None`: not a 64-bit little-endian ELF file, damaged,
/// or stripped of that table.
pub(crate) fn symtab(file: &[u8], mut each: impl FnMut(Symbol<'_>)) -> Option<()> {
    let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
    let sections = header.sections(header.endian().ok()?, file).ok()?;
    let table = sections.symbols(LittleEndian, file, SHT_SYMTAB).ok()?;
    for s in table.iter().filter(|s| s.st_shndx(LittleEndian) != SHN_UNDEF) {
        let name = s.name(LittleEndian, table.strings()).ok()?;
        each(Symbol {
            name,
            value: s.st_value(LittleEndian) as usize,
            size: s.st_size(LittleEndian) as usize,
        });
    }
    (!table.is_empty()).then_some(())
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
        let p = mapping::map(len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd())?.as_ptr();
        let r = f(core::slice::from_raw_parts(p, len));
        mapping::unmap(p.cast(), len);
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
