//! Files that are sent to an object store, some at once, while others are being made.

use super::bucket::{AT_ONCE, PART, Store, run};
use super::copies::new_folder;
use super::failed::{WRITE, failed};
use crate::error::{Error, status};
use crossbeam_channel::{Sender, bounded};
use object_store::{Attribute, Attributes, GetOptions, PutMultipartOptions, PutOptions, PutPayload};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The digest of its bytes, in an object's metadata. Azure takes no hyphen in a name, and some proxies drop headers with an underscore.
const DIGEST: &str = "strandlinesha256";

/// Uploads that are under way.
pub(crate) struct Uploads {
    pub(crate) store: Store,
    /// What was there when it began, by name.
    sizes: Arc<BTreeMap<String, u64>>,
    folder: PathBuf,
    made: u64,
    /// Names below the place, and the files that go there.
    queue: Option<Sender<(String, PathBuf)>>,
    workers: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    wrong: Mutex<Option<Error>>,
    /// One could not be sent: the others are let go.
    stopped: AtomicBool,
    /// Objects that were there already, with the same bytes.
    there: AtomicU64,
}

impl Uploads {
    /// Begins with what the place has now: the sizes of its objects by name.
    ///
    /// # Errors
    /// There is no place for files.
    pub(crate) fn new(store: Store, sizes: BTreeMap<String, u64>) -> Result<Uploads, Error> {
        let (folder, shared) = (new_folder()?, Arc::default());
        Ok(Uploads {
            store,
            sizes: Arc::new(sizes),
            folder,
            made: 0,
            queue: None,
            workers: Vec::new(),
            shared,
        })
    }

    /// A path for the next file.
    pub(crate) fn path(&mut self) -> PathBuf {
        self.made += 1;
        self.folder.join(self.made.to_string())
    }

    /// Sends a file that is whole; it is gone then.
    ///
    /// # Errors
    /// One that was sent before it could not be.
    pub(crate) fn send(&mut self, name: String, path: PathBuf) -> Result<(), Error> {
        if let Some(e) = self.shared.wrong().take() {
            return Err(e);
        }
        let queue = match self.queue.take() {
            Some(queue) => queue,
            None => self.start()?,
        };
        let queue = self.queue.insert(queue);
        queue.send((name, path)).map_err(|_| Error::new("uploads have ended").status(status::USAGE))
    }

    /// Waits until all that was given so far is there.
    ///
    /// # Errors
    /// One could not be sent.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        self.queue = None;
        self.workers.drain(..).for_each(|worker| drop(worker.join()));
        let wrong = self.shared.wrong().take();
        wrong.map_or(Ok(()), Err)
    }

    /// Files that were there already, with the same bytes.
    pub(crate) fn unchanged(&self) -> u64 {
        self.shared.there.load(Ordering::Relaxed)
    }

    /// Begins to send what is in the queue.
    fn start(&mut self) -> Result<Sender<(String, PathBuf)>, Error> {
        let (queue, files) = bounded::<(String, PathBuf)>(AT_ONCE);
        for _ in 0..AT_ONCE {
            let (files, store) = (files.clone(), self.store.clone());
            let (shared, sizes) = (self.shared.clone(), self.sizes.clone());
            let work = move || {
                for (name, path) in files {
                    if !shared.stopped.load(Ordering::Relaxed) {
                        match store.send(&name, &path, sizes.get(&name).copied()) {
                            Ok(true) => {}
                            Ok(false) => drop(shared.there.fetch_add(1, Ordering::Relaxed)),
                            Err(e) => {
                                shared.stopped.store(true, Ordering::Relaxed);
                                shared.wrong().get_or_insert(e);
                            }
                        }
                    }
                    let _ = std::fs::remove_file(&path);
                }
            };
            match std::thread::Builder::new().spawn(work) {
                Ok(worker) => self.workers.push(worker),
                Err(_) if !self.workers.is_empty() => break,
                Err(e) => return Err(Error::new(format!("no thread can be started: {e}"))),
            }
        }
        Ok(queue)
    }
}

impl Shared {
    fn wrong(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.wrong.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for Uploads {
    fn drop(&mut self) {
        let _ = self.settle();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Store {
    /// Sends a file; `false`: it is there already. `size`: that of the object which is there.
    fn send(&self, name: &str, path: &Path, size: Option<u64>) -> Result<bool, Error> {
        let (at, key) = self.place(name);
        let unread = |e| Error::io("cannot read the file that is to be sent", path, e).status(status::USAGE);
        let wrong = |e: object_store::Error| failed(WRITE, &at, &e);
        let mut file = File::open(path).map_err(unread)?;
        let length = file.metadata().map_err(unread)?.len();
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        let mut part = vec![0; PART.min(length.max(1)) as usize];
        loop {
            match file.read(&mut part).map_err(unread)? {
                0 => break,
                n => context.update(&part[..n]),
            }
        }
        let digest: String = context.finish().as_ref().iter().map(|b| format!("{b:02x}")).collect();
        let attributes = Attributes::from_iter([(Attribute::Metadata(DIGEST.into()), digest.clone())]);
        if size == Some(length) {
            let head = GetOptions { head: true, ..GetOptions::default() };
            match run(self.inner.get_opts(&key, head))? {
                Ok(there) => {
                    let told = there.attributes.get(&Attribute::Metadata(DIGEST.into()));
                    if told.is_some_and(|told| **told == *digest) {
                        return Ok(false);
                    }
                }
                // It was removed since it was listed.
                Err(object_store::Error::NotFound { .. }) => {}
                Err(e) => return Err(wrong(e)),
            }
        }
        let mut file = File::open(path).map_err(unread)?;
        let mut next = || -> Result<PutPayload, Error> {
            let mut bytes = Vec::with_capacity(PART.min(length) as usize);
            (&mut file).take(PART).read_to_end(&mut bytes).map_err(unread)?;
            Ok(bytes.into())
        };
        if length <= PART {
            let options = PutOptions { attributes, ..PutOptions::default() };
            run(self.inner.put_opts(&key, next()?, options))?.map_err(wrong)?;
            return Ok(true);
        }
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let mut upload = run(self.inner.put_multipart_opts(&key, options))?.map_err(wrong)?;
        let sent = (0..length.div_ceil(PART)).try_for_each(|_| {
            let part = next()?;
            run(upload.put_part(part))?.map_err(wrong)
        });
        let done = sent.and_then(|()| run(upload.complete())?.map(drop).map_err(wrong));
        if done.is_err() {
            // What was sent is no object; as far as the store can be reached it is not kept either.
            let _ = run(upload.abort());
        }
        done.map(|()| true)
    }
}
