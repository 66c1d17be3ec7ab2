//! Names of files, and whose they are.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A name that leads nowhere else.
pub(super) fn plain(name: &OsStr) -> io::Result<CString> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not the name of a file"));
    }
    Ok(CString::new(bytes)?)
}

/// This machine's name, as a recording has it.
pub(crate) fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: writes at most 255 bytes; the last one stays zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).replace('/', "_")
}

/// The user that we are.
pub(crate) fn user() -> u32 {
    // SAFETY: geteuid touches no memory and cannot fail.
    unsafe { libc::geteuid() }
}

/// Where things of this user's lie in the temporary folder, where others are.
pub(crate) fn temporary() -> PathBuf {
    std::env::temp_dir().join(format!("strandline-{}", user()))
}

/// A text as part of a path, as those who read folders of Hive partitions undo it.
pub(crate) fn escaped(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, ESCAPED).to_string()
}

/// All but letters, digits and `-._`: also what shells and object stores take for something else.
const ESCAPED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_text_is_one_name() {
        assert_eq!(escaped("data/loader.bs"), "data%2Floader.bs");
        assert_eq!(escaped("batch_size-1"), "batch_size-1");
    }
}
