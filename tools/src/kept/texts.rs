//! Files of Python as they lie on this machine: those that were not modified since the recording began.

use super::scope::MOST;
use crate::files;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use strandline::event::steps::StepSource;
use strandline::reader::open_file;
use strandline::replay::Replay;

/// Files of Python as they lie on this machine.
pub(crate) struct Texts<'a> {
    pub(super) cwd: Option<&'a str>,
    pub(super) began: u64,
    /// The job that they ran in trains.
    pub(super) trains: bool,
    /// The first of the user's own that was asked for and was modified since.
    pub(super) modified: RefCell<Option<String>>,
}

/// Why a file has no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoText {
    /// It was modified since the recording began.
    Modified,
    /// It is not there, or is no text, or too long.
    Unreadable,
}

impl<'a> Texts<'a> {
    /// Those of a recording that began then, in nanoseconds of the Unix epoch.
    pub(crate) fn of(replay: &'a Replay, began: u64) -> Texts<'a> {
        let cwd = replay.meta().get("cwd");
        let trains = matches!(replay.step_source(), StepSource::Optimizer | StepSource::Backward);
        Texts { trains, ..Texts::from(cwd, began) }
    }

    /// The same by a recording's facts; `None`: it was made on another machine.
    pub(crate) fn of_facts(facts: &'a Map<String, Value>, began: u64) -> Option<Texts<'a>> {
        is_here(facts.get("host")).then(|| Texts::from(facts.get("cwd"), began))
    }

    fn from(cwd: Option<&'a Value>, began: u64) -> Texts<'a> {
        Texts { cwd: cwd.and_then(Value::as_str), began, trains: false, modified: RefCell::default() }
    }

    /// The text of a file that has not changed since the recording began.
    pub(crate) fn unchanged(&self, file: &str) -> Result<String, NoText> {
        self.read(file).ok_or(NoText::Unreadable)?
    }

    /// The same of the user's own; one that was modified is remembered.
    pub(super) fn of_own(&self, file: &str) -> Option<String> {
        let text = self.unchanged(file);
        if text == Err(NoText::Modified) {
            self.modified.borrow_mut().get_or_insert_with(|| file.to_owned());
        }
        text.ok()
    }

    /// Python's files in the folder of a file, by their names there.
    pub(super) fn beside(&self, file: &str) -> Vec<String> {
        /// Most that are looked into.
        const MOST_FILES: usize = 100;
        let folder = self.path(file).and_then(|path| std::fs::read_dir(path.parent()?).ok());
        let names = folder.into_iter().flatten().flatten().filter_map(|f| f.file_name().into_string().ok());
        let names = names.filter(|name| name.ends_with(".py")).take(MOST_FILES);
        let at = file.rfind('/').map_or("", |at| &file[..=at]);
        names.map(|name| format!("{at}{name}")).collect()
    }

    fn path(&self, file: &str) -> Option<PathBuf> {
        let path = Path::new(file);
        Some(if path.is_absolute() { PathBuf::from(file) } else { Path::new(self.cwd?).join(file) })
    }

    fn read(&self, file: &str) -> Option<Result<String, NoText>> {
        let path = self.path(file)?;
        // A pipe that lies there is not waited for.
        let opened = open_file(&path).ok()?;
        let is = opened.metadata().ok()?;
        if is.modified().ok()? >= UNIX_EPOCH + Duration::from_nanos(self.began) {
            return Some(Err(NoText::Modified));
        }
        let mut text = String::new();
        let length = opened.take(MOST as u64 + 1).read_to_string(&mut text).ok()?;
        (length <= MOST).then_some(Ok(text))
    }
}

/// Whether a recording was made on this machine, as far as is known.
pub(crate) fn is_of_this_machine(replay: &Replay) -> bool {
    is_here(replay.meta().get("host"))
}

fn is_here(host: Option<&Value>) -> bool {
    host.and_then(Value::as_str).is_none_or(|h| h == files::host())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, create_dir_all, remove_dir_all, write};

    #[test]
    fn the_first_own_file_that_was_modified_since_is_remembered() {
        let folder = std::env::temp_dir().join(format!("strandline-modified-{}", std::process::id()));
        create_dir_all(&folder).unwrap();
        for (name, second) in [("old.py", 999), ("new.py", 1001), ("newer.py", 1002)] {
            write(folder.join(name), "kept = []").unwrap();
            let file = File::options().write(true).open(folder.join(name)).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(second)).unwrap();
        }
        let texts = Texts {
            cwd: folder.to_str(),
            began: 1_000_000_000_000,
            trains: true,
            modified: RefCell::default(),
        };
        assert_eq!(texts.of_own("old.py").as_deref(), Some("kept = []"));
        assert_eq!(texts.unchanged("newer.py"), Err(NoText::Modified));
        assert_eq!(texts.unchanged("gone.py"), Err(NoText::Unreadable));
        assert_eq!(*texts.modified.borrow(), None, "none of the user's own");
        assert_eq!(
            (texts.of_own("gone.py"), texts.of_own("new.py"), texts.of_own("newer.py")),
            (None, None, None)
        );
        assert_eq!(texts.modified.into_inner().as_deref(), Some("new.py"));
        remove_dir_all(&folder).unwrap();
    }
}
