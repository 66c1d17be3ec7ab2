//! One recording that is sent: which of its bytes are there, and what is sent next.

use crate::error::Error;
use crate::live::Which;
use crate::process::Target;
use crate::store::{Kind, PART, Part, Store, folder_of_parts, lay, whole};
use crate::{files, recording};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strandline::reader::{Gone, Reader, Written, kept_path, open_file};

/// A recording that is sent.
pub(super) struct Sent {
    /// Its process ran on this machine (`is_here`): if it does no longer, it has ended.
    found: Found,
    /// Where its parts go.
    folder: String,
    which: Which,
    pages: Run,
    driver: Run,
    skip: Option<Part>,
    has_tail: bool,
    /// Bytes that are not there yet.
    left: u64,
}

/// Why a recording is not sent.
pub(super) enum Refused {
    /// The store says no: it may say otherwise later.
    Store(Error),
    /// It cannot be read.
    Unread(Error),
    /// There is another one of this name.
    Another,
}

/// A recording that may be sent.
pub(super) struct Found {
    path: PathBuf,
    name: String,
    written: Written,
    target: Target,
    /// Its process runs on this machine.
    pub(super) runs: bool,
    /// It runs on this machine, or ran on it.
    pub(super) is_here: bool,
}

impl Found {
    /// Looks at a recording; `None`: it cannot be read (yet), or is another user's.
    pub(super) fn of(path: &Path, every: Duration) -> Option<Found> {
        let written = Written::open(path, every.as_secs()).ok()?;
        let name = path.file_name()?.to_str()?.to_owned();
        let target = Target::recorded(written.who());
        let runs = target.is_alive();
        let host = written.header().provenance.get("host").and_then(|h| h.as_str());
        let is_here = runs || host == Some(&files::host());
        let is_own = written.owner() == Some(files::user());
        is_own.then(|| Found { path: path.into(), name, written, target, runs, is_here })
    }
}

impl Sent {
    /// Begins with a recording, or goes on with what is there of it.
    ///
    /// # Errors
    /// The store cannot be asked, or has another recording of this name.
    pub(super) fn begin(mut found: Found, store: &Store, which: Which) -> Result<Sent, Refused> {
        found.is_here |= which == Which::All;
        let who = found.written.who();
        let id = format!("{:016x}{:016x}", who.id[1], who.id[0]);
        let parts = folder_of_parts(&found.name);
        let listed = store.list(&parts).map_err(Refused::Store)?;
        let named = || listed.iter().filter_map(|l| Part::parse(&l.name));
        if named().any(|n| n.recording == found.name && n.id != id) {
            return Err(Refused::Another);
        }
        let there: Vec<Part> = named().map(|n| n.part).collect();
        let mut sent = Sent {
            found,
            folder: format!("{parts}/{id}"),
            which,
            pages: Run::of(&there, Kind::Pages),
            driver: Run::of(&there, Kind::Driver),
            skip: there.iter().filter(|p| p.kind == Kind::Skip).max_by_key(|p| p.to).copied(),
            has_tail: false,
            left: 0,
        };
        // A kill came between a part and the removal of those that it covers.
        let kept = |part: &Part| {
            let runs = sent.pages.parts.iter().chain(&sent.driver.parts);
            runs.chain(&sent.pages.fixed).chain(&sent.skip).any(|kept| kept == part)
        };
        there.iter().filter(|part| !kept(part)).for_each(|part| sent.remove(store, part));
        sent.pages.floor = sent.skip.map_or(0, |s| s.to);
        Ok(sent)
    }

    /// Sends what is new.
    ///
    /// # Errors
    /// The store takes it not, or it cannot be read: what was sent before is there.
    pub(super) fn round(&mut self, store: &Store) -> Result<(), Refused> {
        // Asked before: what it did before it ended is then seen.
        let ended = self.found.is_here && !self.found.target.is_alive();
        let (what, path) = ("cannot read the recording that is sent", self.found.path.clone());
        let unread = |e| Refused::Unread(Error::io(what, &path, e));
        let stand = match self.found.written.stand(ended) {
            Ok(stand) => stand,
            // It is being changed just now.
            Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(e) => return Err(unread(e)),
        };
        self.left = stand.end.saturating_sub(self.pages.end);
        if let Some(gone) = stand.gone {
            self.drop(store, gone)?;
        }
        let account = recording::sidecar(&self.found.path);
        let account = open_file(&account).ok();
        let until = account.as_ref().and_then(|f| f.metadata().ok()).map_or(0, |m| m.len());
        let Sent { found, pages, driver, folder, .. } = self;
        pages.send(store, folder, stand.end, &mut |at, n| found.written.read(at, n).map_err(unread))?;
        self.left = stand.end.saturating_sub(pages.end);
        if let Some(file) = account {
            driver.send(store, folder, until, &mut |at, n| exactly(&file, at, n).map_err(unread))?;
        }
        if ended {
            self.send_tail(store)?;
        }
        Ok(())
    }

    /// Bytes of it that are not in the store.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// What was dropped from the recording is dropped there.
    fn drop(&mut self, store: &Store, gone: Gone) -> Result<(), Refused> {
        let skip = Part { kind: Kind::Skip, from: gone.at, to: gone.end };
        if self.skip == Some(skip) {
            return Ok(());
        }
        store.put(&self.place(&skip), gone.page).map_err(Refused::Store)?;
        let before = self.skip.replace(skip);
        let is_over = |p: &Part| p.from >= gone.at && p.to <= gone.end;
        let Run { parts, fixed, end, floor, .. } = &mut self.pages;
        let over: Vec<Part> = parts.iter().chain(&*fixed).filter(|p| is_over(p)).copied().collect();
        parts.retain(|p| !is_over(p));
        fixed.retain(|p| !is_over(p));
        (*end, *floor) = ((*end).max(gone.end), gone.end);
        over.iter().chain(&before).for_each(|part| self.remove(store, part));
        Ok(())
    }

    /// What its process had not written when it was killed.
    fn send_tail(&mut self, store: &Store) -> Result<(), Refused> {
        // Beside a run somebody else keeps it.
        if self.which == Which::Running
            && !self.has_tail
            && let Ok(mut reader) = Reader::open(&self.found.path)
        {
            recording::keep_tail(&self.found.path, &mut reader);
        }
        let path = kept_path(&self.found.path);
        let Some(bytes) = std::fs::read(&path).ok().filter(|_| !self.has_tail) else { return Ok(()) };
        let name = format!("{}.tail", self.found.name);
        store.put(&name, bytes).map_err(Refused::Store)?;
        self.has_tail = true;
        Ok(())
    }

    fn place(&self, part: &Part) -> String {
        format!("{}/{}", self.folder, part.name())
    }

    fn remove(&self, store: &Store, part: &Part) {
        remove(store, &self.folder, part);
    }
}

/// What is in the way of nobody may stay: a key may have no right to remove.
fn remove(store: &Store, folder: &str, part: &Part) {
    let _ = store.remove(&format!("{folder}/{}", part.name()));
}

/// So many bytes of a file that only grows.
fn exactly(file: &File, at: u64, n: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; n];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Some(bytes))
}

/// Parts of one kind, one behind the other. Small ones are put together, so that there are few whatever the interval: each is at least
/// twice as large as the next, or as large as parts become.
struct Run {
    kind: Kind,
    parts: Vec<Part>,
    /// Those that what was dropped begins in: they stay as they are.
    fixed: Vec<Part>,
    /// Everything before this is there.
    end: u64,
    /// What lies before this was dropped.
    floor: u64,
}

impl Run {
    /// What is there of them.
    fn of(there: &[Part], kind: Kind) -> Run {
        let laid = lay(there, kind);
        let end = whole(&laid);
        let mut parts: Vec<Part> = laid.iter().filter(|t| t.to <= end).map(|t| t.part).collect();
        parts.dedup();
        let (parts, skips): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|p| p.kind == kind);
        let from = skips.first().map_or(0, |s| s.from);
        let (fixed, parts) = parts.into_iter().partition(|p| p.from < from);
        Run { kind, parts, fixed, end, floor: 0 }
    }

    /// Sends what lies before `until` and is not there yet.
    fn send(
        &mut self,
        store: &Store,
        folder: &str,
        until: u64,
        read: &mut dyn FnMut(u64, usize) -> Result<Option<Vec<u8>>, Refused>,
    ) -> Result<(), Refused> {
        while self.end < until {
            let to = until.min(self.end + PART);
            let mut from = self.end;
            let mut covered = 0;
            for part in self.parts.iter().rev() {
                let is_small = part.len() < 2 * (to - from);
                if part.from < self.floor || part.to < from || !is_small || to - part.from > PART {
                    break;
                }
                from = part.from;
                covered += 1;
            }
            // Dropped meanwhile: the next round sees it.
            let Some(bytes) = read(from, (to - from) as usize)? else { return Ok(()) };
            let part = Part { kind: self.kind, from, to };
            store.put(&format!("{folder}/{}", part.name()), bytes).map_err(Refused::Store)?;
            let covered = self.parts.split_off(self.parts.len() - covered);
            self.parts.push(part);
            self.end = to;
            covered.iter().for_each(|part| remove(store, folder, part));
        }
        Ok(())
    }
}
