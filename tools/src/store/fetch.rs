//! Recordings of an object store, brought to this machine: as long as they are read.

use super::address::Address;
use super::bucket::{AT_ONCE, Listed, PART, Store, run};
use super::copies::{new_folder, no_room};
use super::failed::failed;
use super::parts::{Kind, Named, Part, Taken, lay, map};
use crate::background::in_order;
use crate::error::{Error, status};
use crate::files;
use object_store::GetOptions;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use strandline::format::header::{BLOCK, Header};

/// What belongs to recordings: they, what a killed process left, what the driver said.
const ENDINGS: [&str; 3] = [".strand", ".strand.tail", ".strand.watch"];

/// A copy of a recording, or of a folder of them, which goes when this is dropped.
pub(crate) struct Fetched {
    folder: PathBuf,
    /// The copy: named as the original.
    pub(crate) path: PathBuf,
}

impl Fetched {
    /// Fetches what was named, if it is the address of an object store.
    ///
    /// # Errors
    /// There is no recording, or it cannot be read whole.
    pub(crate) fn of(asked: Option<&Path>) -> Result<Option<Fetched>, Error> {
        let Some(address) = asked.map(Address::of).transpose()?.flatten() else { return Ok(None) };
        let (place, only) = match ENDINGS.iter().any(|ending| address.prefix.ends_with(ending)) {
            true => {
                let (parent, name) = address.prefix.rsplit_once('/').unwrap_or(("", &address.prefix));
                (Address { prefix: parent.into(), ..address.clone() }, Some(name.to_owned()))
            }
            false => (address.clone(), None),
        };
        Ok(Some(Fetched::from(&Store::new(place)?, only.as_deref(), &address)?))
    }

    /// Fetches the recordings of a place, or the one of this name.
    pub(crate) fn from(store: &Store, only: Option<&str>, asked: &Address) -> Result<Fetched, Error> {
        let folder = new_folder()?;
        let mut fetched = Fetched { path: folder.join(asked.name()), folder };
        files::make_folder(&fetched.path).map_err(|e| no_room(&fetched.path, e))?;
        let mut listed = store.list("")?;
        loop {
            match fetched.fetch(store, wholes(listed.clone(), only), asked) {
                Ok(()) => break,
                Err(e) => {
                    // While a recording is sent, parts of it are put together: then what was listed is not there any more.
                    let before = std::mem::replace(&mut listed, store.list("").unwrap_or_default());
                    let gone = |l: &Listed| Part::parse(&l.name).is_some() && !listed.contains(l);
                    if listed.is_empty() || !before.iter().any(gone) {
                        return Err(e);
                    }
                }
            }
        }
        if let Some(name) = only {
            fetched.path = fetched.path.join(name);
        }
        Ok(fetched)
    }

    /// Fetches these into the copy.
    fn fetch(&self, store: &Store, wholes: Vec<Whole>, asked: &Address) -> Result<(), Error> {
        if !wholes.iter().any(|whole| whole.name().ends_with(ENDINGS[0])) {
            let what = format!("{asked}: there is no recording (*.strand)");
            let hint = "give the folder of a run, or one recording: s3://bucket/run-17";
            return Err(Error::usage(what, hint));
        }
        // Once one has failed the others end after what they are at.
        let is_over = AtomicBool::new(false);
        let one = |at: usize| match is_over.load(Ordering::Relaxed) {
            true => Ok(()),
            false => {
                store.fetch(&wholes[at], &self.path).inspect_err(|_| is_over.store(true, Ordering::Relaxed))
            }
        };
        in_order(wholes.len(), AT_ONCE.min(wholes.len()), &one).into_iter().collect()
    }
}

/// A file of the copy.
enum Whole {
    /// An object.
    Object(Listed),
    /// A recording, or the driver's account beside it, that was sent part by part.
    Parts { name: String, kind: Kind, parts: BTreeMap<Part, Listed> },
}

impl Whole {
    fn name(&self) -> &str {
        match self {
            Whole::Object(listed) => &listed.name,
            Whole::Parts { name, .. } => name,
        }
    }
}

/// Which files they are; of those that are there whole no parts are taken. `only`: those that belong to this one.
fn wholes(listed: Vec<Listed>, only: Option<&str>) -> Vec<Whole> {
    let (mut all, mut parts) = (BTreeMap::new(), BTreeMap::<(String, Kind), BTreeMap<Part, Listed>>::new());
    for one in listed {
        if let Some(Named { recording, part, .. }) = Part::parse(&one.name) {
            let (name, kind) = match part.kind {
                Kind::Driver => (format!("{recording}{}", ENDINGS[2]), Kind::Driver),
                Kind::Pages | Kind::Skip => (recording.to_owned(), Kind::Pages),
            };
            parts.entry((name, kind)).or_default().insert(part, one);
        } else if ENDINGS.iter().any(|e| one.name.ends_with(e)) && !one.name.contains('/') {
            all.insert(one.name.clone(), Whole::Object(one));
        }
    }
    for ((name, kind), parts) in parts {
        all.entry(name.clone()).or_insert(Whole::Parts { name, kind, parts });
    }
    all.into_values().filter(|whole| only.is_none_or(|only| whole.name().starts_with(only))).collect()
}

impl Drop for Fetched {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Store {
    /// Fetches one of them into a folder.
    fn fetch(&self, whole: &Whole, folder: &Path) -> Result<(), Error> {
        let to = folder.join(whole.name());
        let mut file = files::create(&to).map_err(|e| no_room(&to, e))?;
        let mut write = |bytes: &[u8]| file.write_all(bytes).map_err(|e| no_room(&to, e));
        match whole {
            Whole::Object(listed) => self.read(listed, 0..listed.size, &mut write)?,
            Whole::Parts { kind, parts, .. } => {
                let laid = lay(&parts.keys().copied().collect::<Vec<_>>(), *kind);
                let size = |taken: &Taken| match taken.part.kind {
                    Kind::Skip => parts.get(&taken.part).map_or(0, |listed| listed.size),
                    _ => taken.to - taken.from,
                };
                let map = map(&laid, size).map_err(|holes| {
                    let what = format!(
                        "cannot read {}: {holes} parts of it are missing",
                        self.place(whole.name()).0
                    );
                    Error::new(what).status(status::USAGE)
                })?;
                for taken in &laid {
                    let Some(listed) = parts.get(&taken.part) else { continue };
                    let from = taken.from - taken.part.from;
                    let mut front = taken.from == 0 && *kind == Kind::Pages;
                    self.read(listed, from..from + size(taken), &mut |bytes| {
                        if std::mem::take(&mut front)
                            && let Some(map) = &map
                        {
                            return write(&with_map(bytes, map));
                        }
                        write(bytes)
                    })?;
                }
            }
        }
        file.keep().map_err(|e| no_room(&to, e))
    }

    /// Hands out a range of an object, a piece at a time; all pieces are of the object that was listed.
    fn read(
        &self,
        listed: &Listed,
        range: Range<u64>,
        each: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (at, key) = self.place(&listed.name);
        let mut done = range.start;
        while done < range.end {
            let end = (done + PART).min(range.end);
            let options = GetOptions {
                range: Some((done..end).into()),
                if_match: listed.tag.clone(),
                ..GetOptions::default()
            };
            let got = run(async { self.inner.get_opts(&key, options).await?.bytes().await })?;
            let bytes = got.map_err(|e| failed("cannot read", &at, &e))?;
            if bytes.len() as u64 != end - done {
                let what = format!("cannot read {at}: {} of {} bytes came", bytes.len(), end - done);
                return Err(Error::usage(what, "run the same command again"));
            }
            each(&bytes)?;
            done = end;
        }
        Ok(())
    }
}

/// The beginning of a recording, with a map in its header.
fn with_map(bytes: &[u8], map: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let maps = Header::length(&bytes).unwrap_or(0).saturating_sub(BLOCK);
    if let Some(to) = bytes.get_mut(maps..maps + map.len()).filter(|_| maps > 0) {
        to.copy_from_slice(map);
    }
    bytes
}
