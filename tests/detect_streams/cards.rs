//! The same job on cards of 4, 24, 80 and 140 GiB: whether it leaks is the same on each of them, at every step.

use crate::judged::events;
use crate::load;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strandline::detect::{Certainty, Detector, Finding, Policy};
use strandline::event::{Body, Bytes, DeviceId, DriverMemory, Event, Item, Names, Nanos};
use strandline::reader::{Batch, Reader};
use strandline::replay::Replay;

const CARDS: [u64; 4] = [4 << 30, 24 << 30, 80 << 30, 140 << 30];

/// A job that is judged on a card of our choice.
struct Card {
    replay: Replay,
    detector: Detector,
    size: u64,
    /// Lines of what stands and is growth, at each step, with its certainty.
    said: Vec<BTreeMap<String, Certainty>>,
}

impl Card {
    fn new(size: u64) -> Card {
        let (replay, detector) = (Replay::new(), Detector::new(Policy::default()));
        let mut card = Card { replay, detector, size, said: Vec::new() };
        let total = Bytes(size);
        for device in [0, 1].map(DeviceId) {
            let item =
                Item::Driver(DriverMemory { time: Nanos(0), device, total, free: total, process: None });
            card.replay.apply(&item, &Names::default());
        }
        card
    }

    /// The next item, but for what it says of a card's size.
    fn take(&mut self, item: &Item, names: &Names) {
        let item = match item {
            Item::Driver(_) => return,
            Item::Event(Event { body: Body::MemInfo { .. }, .. }) => return,
            item => item,
        };
        let progress = self.replay.apply(item, names);
        self.detector.after(progress, &self.replay);
        if progress.step.is_some() {
            self.look();
        }
    }

    fn look(&mut self) {
        let line = |f: &Finding| {
            let site = f.sites.first().and_then(|s| self.replay.site(s.site));
            let place = site.map_or(String::new(), |s| {
                let file = s.frame.file.rsplit('/').next().unwrap_or_default().to_owned();
                let yours = s.your_line.as_ref().map_or(String::new(), |y| {
                    format!(" from {}:{}", y.file.rsplit('/').next().unwrap_or_default(), y.line)
                });
                format!("{file}:{}{yours}", s.frame.line)
            });
            (format!("{} {place}", f.kind.name()), f.certainty)
        };
        let standing = self.detector.findings().iter().filter(|f| f.grows());
        self.said.push(standing.map(line).collect());
    }

    fn end(mut self) -> Vec<BTreeMap<String, Certainty>> {
        let progress = self.replay.finish();
        self.detector.after(progress, &self.replay);
        self.detector.at_step(&self.replay);
        self.look();
        self.said
    }
}

#[track_caller]
fn same(name: &str, cards: Vec<Card>) -> Vec<BTreeMap<String, Certainty>> {
    let sizes: Vec<u64> = cards.iter().map(|c| c.size >> 30).collect();
    let mut said: Vec<_> = cards.into_iter().map(Card::end).collect();
    for (i, other) in said.iter().enumerate().skip(1) {
        let differs = other.iter().zip(&said[0]).position(|(a, b)| a != b);
        assert_eq!(
            differs, None,
            "{name}: {} GiB says another thing than {} GiB, at step",
            sizes[i], sizes[0]
        );
    }
    said.swap_remove(0)
}

#[test]
fn a_job_is_judged_the_same_on_every_card() {
    let mut jobs = 0;
    for entry in std::fs::read_dir(events()).expect("events") {
        let path = entry.expect("an entry").path();
        let Some(name) = path.file_name().and_then(|n| n.to_str()?.strip_suffix(".events.gz")) else {
            continue;
        };
        let job = load::load(&path, CARDS[0]);
        let mut cards: Vec<Card> = CARDS.map(Card::new).into();
        job.items.iter().for_each(|item| cards.iter_mut().for_each(|c| c.take(item, &job.names)));
        let said = same(name, cards);
        assert!(
            said.iter().flatten().all(|(_, c)| *c == Certainty::Growing),
            "{name}: no series alone is a leak"
        );
        jobs += 1;
    }
    assert_eq!(jobs, 24);
}

/// The recordings of `STRANDLINE_RECORDINGS`: a folder with one for each case of `tests/leakbench/more.py`, as `strandline run -o
/// FOLDER/CASE -- python tests/leakbench/more.py CASE` makes them. Each is judged at every step, on each card: `cargo test -p
/// strandline --test detect_streams recordings_on_every_card -- --ignored --nocapture`.
#[test]
#[ignore = "needs STRANDLINE_RECORDINGS, a folder of recordings"]
fn recordings_on_every_card() {
    let folder = PathBuf::from(std::env::var_os("STRANDLINE_RECORDINGS").expect("STRANDLINE_RECORDINGS"));
    let script = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/leakbench/more.py"));
    let script = script.expect("the script");
    let mut wrong = Vec::new();
    println!("| case | steps | named at | lost at | at the end |");
    for (name, is_leak, site) in cases(&script) {
        let Some(path) = recording(&folder.join(&name)) else { continue };
        let said = judged(&name, &path);
        let ours = |s: &BTreeMap<String, Certainty>| {
            s.keys().any(|line| site.is_none_or(|n| line.contains(&format!("more.py:{n}"))))
        };
        let named = said.iter().position(ours);
        let lost = named.and_then(|n| said.iter().skip(n).position(|s| !ours(s)).map(|i| i + n + 1));
        let end = said.last().cloned().unwrap_or_default();
        println!("| {name} | {} | {:?} | {lost:?} | {end:?} |", said.len() - 1, named.map(|n| n + 1));
        let leak = said.iter().flatten().any(|(_, c)| *c == Certainty::Leak);
        if is_leak && (named.is_none() || lost.is_some()) || !is_leak && leak {
            wrong.push(name);
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Cases of the script: name, whether it leaks, and the line that does, where the script says it.
fn cases(script: &str) -> Vec<(String, bool, Option<usize>)> {
    let (mut all, mut is_leak) = (Vec::<(String, bool, Option<usize>)>::new(), false);
    for (i, line) in script.lines().enumerate() {
        if line.starts_with("# ") {
            is_leak = line == "# leaks";
        } else if let Some((name, _)) = line.strip_prefix("def ").and_then(|l| l.split_once('(')) {
            all.push((name.to_owned(), is_leak, None));
        } else if line.contains("# SITE") {
            all.last_mut().into_iter().for_each(|c| c.2 = Some(i + 1));
        }
    }
    all
}

fn recording(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|e| e.path());
    files
        .filter(|p| p.extension().is_some_and(|e| e == "strand"))
        .max_by_key(|p| p.metadata().map_or(0, |m| m.len()))
}

fn judged(name: &str, path: &Path) -> Vec<BTreeMap<String, Certainty>> {
    let mut reader = Reader::open(path).expect("a recording");
    let mut cards: Vec<Card> = CARDS.map(Card::new).into();
    while let Some(batch) = reader.next_batch() {
        let items: Vec<Item> = match batch {
            Batch::Events(events) => events.iter().copied().map(Item::Event).collect(),
            Batch::Item(item) => vec![item],
        };
        for item in &items {
            cards.iter_mut().for_each(|c| c.take(item, reader.names()));
        }
    }
    same(name, cards)
}
