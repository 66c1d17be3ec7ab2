//! Where tables go: a folder, or a place in an object store. A file is whole, or not there.

use crate::error::{Error, status};
use crate::store::{Address, Store, Uploads};
use crate::{files, say};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// What a table is written to.
pub(super) type Sink = BufWriter<files::New>;

/// Where tables of a job go.
pub(super) struct Out {
    to: To,
    /// Files that were written.
    pub(super) files: u64,
    /// Rows in them.
    pub(super) rows: u64,
}

enum To {
    Folder(PathBuf),
    /// With the sizes of what is there of the job, by name.
    Store(Uploads, BTreeMap<String, u64>),
}

impl Out {
    /// A folder, which need not be there yet, or a place in a store. `parts`: the folders of the job in all tables.
    ///
    /// # Errors
    /// It is a file; the store cannot be asked what is there.
    pub(super) fn new(place: &Path, parts: &[String]) -> Result<Out, Error> {
        let to = match Address::of(place)? {
            Some(address) => {
                let store = Store::new(address)?;
                let mut there = BTreeMap::new();
                for part in parts {
                    there.extend(store.list(part)?.into_iter().map(|l| (l.name, l.size)));
                }
                To::Store(Uploads::new(store, there.clone())?, there)
            }
            None if place.exists() && !place.is_dir() => {
                let what = format!("{} is a file; the tables are written to a folder", say::path(place));
                let hint = "give another name: -o DIR";
                return Err(Error::usage(what, hint));
            }
            None => To::Folder(place.into()),
        };
        Ok(Out { to, files: 0, rows: 0 })
    }

    /// Its name, for people.
    pub(super) fn name(&self) -> String {
        match &self.to {
            To::Folder(folder) => say::path(folder),
            To::Store(uploads, _) => uploads.store.address.to_string(),
        }
    }

    /// The names of the files in the folders of a folder: of the ranks of a job in a table.
    pub(super) fn files_in(&self, part: &str) -> Vec<String> {
        match &self.to {
            To::Folder(folder) => {
                let within = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
                let files = within(folder.join(part)).flat_map(|rank| within(rank.path()));
                files.map(|f| f.file_name().to_string_lossy().into_owned()).collect()
            }
            To::Store(_, there) => {
                let below = there.keys().filter(|name| name.starts_with(&format!("{part}/")));
                below.filter_map(|name| Some(name.rsplit_once('/')?.1.to_owned())).collect()
            }
        }
    }

    /// Whether a file is there: in a store, whether it was when this began.
    pub(super) fn has(&self, at: &str) -> bool {
        match &self.to {
            To::Folder(folder) => folder.join(at).exists(),
            To::Store(_, there) => there.contains_key(at),
        }
    }

    /// Writes a file: `fill` writes to a sink, and gives it back with the number of rows.
    ///
    /// # Errors
    /// Those of `fill`, which is given what to make of what the system says; the file cannot be written.
    pub(super) fn write(
        &mut self,
        at: &str,
        fill: impl FnOnce(Sink, &dyn Fn(io::Error) -> Error) -> Result<(Sink, u64), Error>,
    ) -> Result<(), Error> {
        let path = match &mut self.to {
            To::Folder(folder) => folder.join(at),
            To::Store(uploads, _) => uploads.path(),
        };
        let fail = |e| Error::io("cannot write the table", &path, e).status(status::FAILED);
        if let Some(folder) = path.parent() {
            files::make_folder(folder).map_err(fail)?;
        }
        let sink = BufWriter::new(files::create(&path).map_err(fail)?);
        let (mut sink, rows) = fill(sink, &fail)?;
        sink.flush().map_err(fail)?;
        sink.into_inner().map_err(|e| e.into_error()).and_then(files::New::keep).map_err(fail)?;
        self.files += 1;
        self.rows += rows;
        match &mut self.to {
            To::Folder(_) => Ok(()),
            To::Store(uploads, _) => uploads.send(at.to_owned(), path),
        }
    }

    /// Waits until all that was written is there. What is written after this tells readers that they may rely on it.
    ///
    /// # Errors
    /// Something could not be sent.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        match &mut self.to {
            To::Folder(_) => Ok(()),
            To::Store(uploads, _) => uploads.settle(),
        }
    }

    /// Files that were there already, with the same bytes.
    pub(super) fn unchanged(&self) -> u64 {
        match &self.to {
            To::Folder(_) => 0,
            To::Store(uploads, _) => uploads.unchanged(),
        }
    }

    /// Removes rows that are no longer true, if they are there.
    ///
    /// # Errors
    /// They are there and stay.
    pub(super) fn remove(&self, at: &str) -> Result<(), Error> {
        let path = match &self.to {
            To::Folder(folder) => folder.join(at),
            To::Store(uploads, there) if there.contains_key(at) => return uploads.store.remove(at),
            To::Store(..) => return Ok(()),
        };
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("cannot remove outdated rows", &path, e).status(status::FAILED))
            }
            _ => Ok(()),
        }
    }
}
