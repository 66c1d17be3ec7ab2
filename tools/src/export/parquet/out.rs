//! Where tables go: a folder. A file is whole, or not there.

use crate::error::{Error, status};
use crate::{files, say};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// What a table is written to.
pub(super) type Sink = BufWriter<files::New>;

/// Where tables of a job go.
pub(super) struct Out {
    folder: PathBuf,
    /// Files that were written.
    pub(super) files: u64,
    /// Rows in them.
    pub(super) rows: u64,
}

impl Out {
    /// A folder, which need not be there yet.
    ///
    /// # Errors
    /// It is a file.
    pub(super) fn new(folder: &Path) -> Result<Out, Error> {
        if folder.exists() && !folder.is_dir() {
            return Err(Error::new(format!("{} is a file, and tables are a folder", say::path(folder)))
                .hint("give another name: -o DIR")
                .status(status::USAGE));
        }
        Ok(Out { folder: folder.into(), files: 0, rows: 0 })
    }

    /// Its name, for people.
    pub(super) fn name(&self) -> String {
        say::path(&self.folder)
    }

    /// The names of the files in the folders of a folder: of the ranks of a job in a table.
    pub(super) fn files_in(&self, part: &str) -> Vec<String> {
        let within = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
        let files = within(self.folder.join(part)).flat_map(|rank| within(rank.path()));
        files.map(|f| f.file_name().to_string_lossy().into_owned()).collect()
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
        let path = self.folder.join(at);
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
        Ok(())
    }

    /// Removes rows that are no longer true, if they are there.
    ///
    /// # Errors
    /// They are there and stay.
    pub(super) fn remove(&self, at: &str) -> Result<(), Error> {
        let path = self.folder.join(at);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("cannot remove rows that are no longer true", &path, e).status(status::FAILED))
            }
            _ => Ok(()),
        }
    }
}
