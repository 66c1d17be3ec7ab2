//! What is remembered from one run to the next: that the last one may have died of strandline itself. It is said at the start of every run
//! of the same version, until one is recorded that does not; of another version nothing is known, so its note goes.
//!
//! One small file of this user's cache, `failed.json`.

use crate::{embedded, files};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use strandline::detect::SelfFault;
use strandline::event::printable;
use strandline::reader::open_file;

/// No note is longer.
const LONGEST: u64 = 16 << 10;

fn path() -> Option<PathBuf> {
    Some(embedded::cache()?.join("failed.json"))
}

/// What is to be said of the run before this one.
pub(super) fn last() -> Option<String> {
    let path = path()?;
    let said = read(&path, strandline::VERSION);
    if said.is_none() {
        forget(&path);
    }
    said
}

fn forget(path: &Path) {
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.uid() == files::user()) {
        let _ = std::fs::remove_file(path);
    }
}

/// A run was recorded: what of strandline it may have died of, and where its recording is. Where no note can be kept, none is.
pub(super) fn keep(failed: Option<&(SelfFault, PathBuf)>) {
    let Some(path) = path() else { return };
    match failed {
        Some((fault, recording)) => _ = write(&path, fault, recording),
        None => forget(&path),
    }
}

fn write(path: &Path, fault: &SelfFault, recording: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        files::make_folder(folder)?;
    }
    let recording = std::path::absolute(recording)?;
    let note = json!({
        "schema": 1, "version": strandline::VERSION, "failed_in": fault.place, "signal": fault.signal,
        "advice": fault.advice(), "recording": recording.to_string_lossy(),
    });
    let mut file = files::create_in_own_folder(path)?;
    writeln!(file, "{note:#}")?;
    file.keep()
}

/// What a note says to this version. What another user has put there says nothing.
fn read(path: &Path, version: &str) -> Option<String> {
    let file = open_file(path).ok().filter(|f| f.metadata().is_ok_and(|m| m.uid() == files::user()))?;
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    let note: Value = serde_json::from_str(&text).ok()?;
    let word = |key: &str| note.get(key)?.as_str().map(|w| printable(w).into_owned());
    let (place, signal, advice) = (word("failed_in")?, word("signal")?, word("advice")?);
    (word("version")? == version).then(|| {
        let recording = word("recording").unwrap_or_default();
        format!(
            "the last run died of {signal} while strandline {version} was running in {place} ({recording}): {advice}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_for_its_own_version_and_user() {
        let folder = std::env::temp_dir().join(format!("strandline-noted-{}", std::process::id()));
        let path = folder.join("failed.json");
        let fault =
            SelfFault { place: "cudaMemGetInfo".into(), signal: "SIGSEGV", remedy: Some("--stacks none") };
        write(&path, &fault, Path::new("/job/rec/a.strand")).unwrap();
        let said = read(&path, strandline::VERSION).unwrap();
        for words in ["SIGSEGV", "in cudaMemGetInfo (/job/rec/a.strand)", "`--stacks none` may avoid it"] {
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(read(&path, "0.0.0"), None);
        for odd in ["", "{", "[]", "{\"version\": 7}"] {
            std::fs::write(&path, odd).unwrap();
            assert_eq!(read(&path, strandline::VERSION), None, "{odd}");
        }
        std::fs::write(
            &path,
            format!(
                "{{\"failed_in\":\"a\\u001b[2Jb\\nc\",\"signal\":\"s\",\"advice\":\"r\",\"version\":\"{}\"}}",
                strandline::VERSION
            ),
        )
        .unwrap();
        let said = read(&path, strandline::VERSION).unwrap();
        assert!(!said.contains(['\u{1b}', '\n']), "{said:?}");
        if files::user() == 0 {
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert_eq!(read(&path, strandline::VERSION), None);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
