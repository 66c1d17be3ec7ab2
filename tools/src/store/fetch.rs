//! Recordings of an object store, brought to this machine: as long as they are read.

use super::address::Address;
use super::bucket::{AT_ONCE, Listed, PART, Store, run};
use super::copies::{new_folder, no_room};
use super::failed::failed;
use crate::error::Error;
use crate::files;
use object_store::GetOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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
        let is_one = ENDINGS.iter().any(|ending| address.prefix.ends_with(ending));
        let folder = new_folder()?;
        let mut fetched = Fetched { path: folder.join(address.name()), folder };
        if is_one {
            let (parent, name) = address.prefix.rsplit_once('/').unwrap_or(("", &address.prefix));
            let name = name.to_owned();
            let store = Store::new(Address { prefix: parent.into(), ..address.clone() })?;
            let own = |l: &Listed| l.name.starts_with(&name) && !l.name.contains('/');
            let listed = store.list("")?.into_iter().filter(own).collect();
            fetched.fetch(&store, listed, &address)?;
            fetched.path = fetched.path.join(&name);
        } else {
            let store = Store::new(address.clone())?;
            let own = |l: &Listed| ENDINGS.iter().any(|e| l.name.ends_with(e)) && !l.name.contains('/');
            let listed = store.list("")?.into_iter().filter(own).collect();
            fetched.fetch(&store, listed, &address)?;
        }
        Ok(Some(fetched))
    }

    /// Fetches these into the copy.
    fn fetch(&mut self, store: &Store, listed: Vec<Listed>, asked: &Address) -> Result<(), Error> {
        if !listed.iter().any(|l| l.name.ends_with(ENDINGS[0])) {
            let what = format!("{asked}: there is no recording (*.strand)");
            let hint = "give the folder of a run, or one recording: s3://bucket/run-17";
            return Err(Error::usage(what, hint));
        }
        files::make_folder(&self.path).map_err(|e| no_room(&self.path, e))?;
        let (next, wrong) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            while let Some(one) = listed.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(e) = store.fetch(one, &self.path.join(&one.name)) {
                    // The others end after what they are at.
                    next.store(listed.len(), Ordering::Relaxed);
                    wrong.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(e);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..AT_ONCE.min(listed.len()) {
                // Where no further thread can be started this one does all.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        match wrong.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Store {
    /// Fetches an object to a file, a part at a time; all parts are of the object that was listed.
    fn fetch(&self, listed: &Listed, to: &Path) -> Result<(), Error> {
        let (at, key) = self.place(&listed.name);
        let mut file = files::create(to).map_err(|e| no_room(to, e))?;
        let mut done = 0;
        while done < listed.size {
            let end = (done + PART).min(listed.size);
            let options = GetOptions {
                range: Some((done..end).into()),
                if_match: listed.tag.clone(),
                ..GetOptions::default()
            };
            let got = run(async { self.inner.get_opts(&key, options).await?.bytes().await })?;
            let bytes = got.map_err(|e| failed("cannot read", &at, &e))?;
            if bytes.len() as u64 != end - done {
                let what = format!("cannot read {at}: {} of {} bytes came", bytes.len(), end - done);
                return Err(Error::usage(what, "give the same command again"));
            }
            file.write_all(&bytes).map_err(|e| no_room(to, e))?;
            done = end;
        }
        file.keep().map_err(|e| no_room(to, e))
    }
}
