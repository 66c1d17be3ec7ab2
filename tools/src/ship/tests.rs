//! Whatever is killed, dropped or put together in between: what is read from the store is what its process has written.

#[allow(dead_code, reason = "of what makes recordings only a part is used")]
#[path = "../../../tests/recordings/job.rs"]
mod job;

use super::recording::{Found, Refused, Sent};
use crate::live::Which;
use crate::store::{Address, Fetched, Store};
use job::{Job, Life, SMALL, live, noise, read_from};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strandline::event::Event;
use strandline::format::region::Identity;
use strandline::reader::{Reader, SHIPPED_EVERY};
use strandline::writer::{Memory, Options};

/// A recording of a process that is not there, in a folder of its own.
struct Bench {
    folder: PathBuf,
    path: PathBuf,
    store: Store,
}

impl Bench {
    fn new(name: &str) -> Bench {
        let folder = std::env::temp_dir().join(format!("strandline-ship-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let address = Address::of(Path::new("s3://bucket/run")).unwrap().unwrap();
        Bench { path: folder.join("h-r0.strand"), folder, store: Store::in_memory(address) }
    }

    fn begin(&self) -> Result<Sent, Refused> {
        let found = Found::of(&self.path, Duration::from_secs(10)).unwrap();
        Sent::begin(found, &self.store, Which::Running)
    }

    /// The names of what is there, with their bytes.
    fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let all = self.store.list("").unwrap();
        all.into_iter().map(|l| (l.name.clone(), self.store.bytes(&l.name))).collect()
    }

    /// What a reader finds there: events, and the file's bytes.
    fn read(&self) -> (Vec<Event>, Reader, Vec<u8>) {
        let fetched = Fetched::from(&self.store, None, &self.store.address).unwrap();
        let path = fetched.path.join("h-r0.strand");
        let (read, bytes) = (read_from(fs::read(&path).unwrap(), None), fs::read(&path).unwrap());
        assert_eq!(read.reader.damage(), []);
        (read.events, read.reader, bytes)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn job(max_size: Option<u64>) -> Job {
    let job = Job::new(SMALL, 3, Options { max_size, ..Options::default() }, Memory::default());
    job.define(5);
    job
}

#[test]
fn what_is_read_from_the_store_is_what_was_written() {
    let (mut dropped, mut together, mut resumed) = (0, 0, 0);
    for seed in 0..6 {
        let bench = Bench::new(&format!("whole-{seed}"));
        let max_size = (seed % 2 == 1).then_some(160 << 10);
        let (mut job, mut life, mut random) = (job(max_size), Life::new(), noise(seed + 1));
        let mut sent: Option<Sent> = None;
        let mut seen = BTreeMap::new();
        for round in 0..50 {
            live(&mut job, &mut life, 1 + random(900) as usize, seed * 100 + round);
            job.seal();
            let whole = job.writer.as_ref().unwrap().sink().bytes.clone();
            // Behind the last sweep is a write that is not whole, where the map does not say so anyway.
            let mut torn = whole.clone();
            if read_from(whole.clone(), None).reader.summary().dropped.is_empty() {
                torn.extend_from_slice(&whole[whole.len() - 100..][..random(100) as usize]);
            }
            fs::write(&bench.path, torn).unwrap();
            if random(4) == 0 {
                continue;
            }
            let before = bench.objects();
            seen.extend(before.clone());
            if random(6) == 0 && sent.take().is_some() {
                resumed += 1;
                // It was killed before it had removed what a larger part covers.
                seen.iter().filter(|_| random(3) == 0).for_each(|(name, bytes)| {
                    bench.store.put(name, bytes.clone()).unwrap();
                });
            }
            let one = sent.get_or_insert_with(|| bench.begin().ok().unwrap());
            assert!(one.round(&bench.store).is_ok());
            assert_eq!(one.left(), 0);
            let after = bench.objects();
            together += before.keys().filter(|name| !after.contains_key(*name)).count();
            assert!(after.len() < 40, "{} objects", after.len());
            for (name, bytes) in &after {
                assert!(seen.get(name).is_none_or(|b| b == bytes), "{name} was changed");
            }
            if random(8) > 0 {
                continue;
            }
            let (events, reader, _) = bench.read();
            let own = read_from(whole, None);
            assert_eq!(reader.summary().facts[SHIPPED_EVERY], 10);
            assert_eq!(reader.summary().dropped, own.reader.summary().dropped, "seed {seed}, round {round}");
            assert_eq!(events.len(), own.events.len(), "seed {seed}, round {round}");
            assert!(events == own.events, "seed {seed}, round {round}");
        }
        let whole = job.end();
        fs::write(&bench.path, &whole).unwrap();
        assert!(bench.begin().ok().unwrap().round(&bench.store).is_ok());
        let (events, reader, bytes) = bench.read();
        let own = read_from(whole.clone(), None);
        assert!(events == own.events && reader.summary().complete, "seed {seed}");
        dropped += own.reader.summary().dropped.len();
        if max_size.is_none() {
            let front = 2 * strandline::format::header::BLOCK;
            assert!(bytes[front..] == whole[front..], "all but the header is the same");
        }
    }
    assert!(dropped == 3 && together > 40 && resumed > 8, "{dropped} {together} {resumed}");
}

#[test]
fn another_recording_of_the_same_name_stays_as_it_is() {
    let bench = Bench::new("another");
    let mut first = job(None);
    live(&mut first, &mut Life::new(), 500, 1);
    first.seal();
    fs::write(&bench.path, first.die()).unwrap();
    assert!(bench.begin().ok().unwrap().round(&bench.store).is_ok());
    let before = bench.objects();
    let other = Identity { pid: 1, start: 2, id: [3, 4] };
    let mut second = Job::of(other, serde_json::json!({}), SMALL, 1, Options::default(), Memory::default());
    second.seal();
    fs::write(&bench.path, second.die()).unwrap();
    assert!(matches!(bench.begin(), Err(Refused::Another)));
    assert!(bench.objects() == before);
}
