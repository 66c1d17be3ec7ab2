//! A snapshot that PyTorch wrote, in the place of a recording.

use super::given::Given;
use crate::error::{Error, status};
use crate::say;
use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;
use strandline::event::{Event, Item, Names};
use strandline::reader::{Summary, open_file};
use strandline::report::plural;
use strandline::report::snapshot::import::{Cursor, Imported, import};
use strandline::report::snapshot::unpickle::{Limits, read};

/// Larger files are none that anybody could have loaded in Python either.
const MOST_BYTES: u64 = 4 << 30;
/// Events that are handed out together.
const BATCH: usize = 1024;
/// Values of a pickle at most: some five million entries.
const MOST_VALUES: usize = 120_000_000;

/// Whether a file is a pickle: how it begins.
pub(super) fn is_pickle(path: &Path) -> bool {
    let mut begin = [0; 2];
    let read = open_file(path).and_then(|mut f| f.read_exact(&mut begin));
    read.is_ok() && begin[0] == 0x80 && (2..=5).contains(&begin[1])
}

/// A snapshot, handed out as a recording's reader would.
pub(crate) struct Foreign {
    items: VecDeque<Item>,
    pub(super) imported: Imported,
    cursor: Cursor,
    /// Events that are handed out together.
    events: Vec<Event>,
    pub(super) summary: Summary,
    pub(super) damage: Vec<String>,
}

impl Foreign {
    /// Reads a snapshot.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub(super) fn open(path: &Path) -> Result<Foreign, Error> {
        let wrong = |what: String| Error::new(format!("{}: {what}", say::path(path))).status(status::USAGE);
        let fail = |e| Error::io("cannot read the snapshot", path, e).status(status::USAGE);
        let mut bytes = Vec::new();
        open_file(path).map_err(fail)?.take(MOST_BYTES).read_to_end(&mut bytes).map_err(fail)?;
        // Each value takes a byte at least.
        let limits = Limits { values: bytes.len().min(MOST_VALUES), ..Limits::default() };
        let tree = read(&bytes, &limits).map_err(|e| wrong(e.to_string()))?;
        drop(bytes);
        let mut imported = import(tree).map_err(wrong)?;
        let summary =
            Summary { unix_ns: imported.epoch_us.saturating_mul(1000), complete: true, ..Summary::default() };
        let damage = match imported.strange {
            0 => Vec::new(),
            n => vec![format!(
                "parts of the snapshot were not understood and left out: {}",
                plural(n, "entry")
            )],
        };
        let items = std::mem::take(&mut imported.items).into();
        Ok(Foreign {
            items,
            imported,
            cursor: Cursor::default(),
            events: Vec::with_capacity(BATCH),
            summary,
            damage,
        })
    }

    pub(super) fn next(&mut self) -> Option<(Given<'_>, &Names)> {
        if let Some(item) = self.items.pop_front() {
            return Some((Given::Item(item), &self.imported.names));
        }
        self.events.clear();
        while self.events.len() < BATCH
            && let Some(event) = self.imported.next(&mut self.cursor)
        {
            self.events.push(event);
        }
        if self.events.is_empty() { None } else { Some((Given::Events(&self.events), &self.imported.names)) }
    }
}
