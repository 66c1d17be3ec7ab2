//! The same job on cards of 4, 24, 80 and 140 GiB: whether it leaks is the same on each of them, at every step.

use crate::judged::events;
use crate::load;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use strandline::detect::{Certainty, Detector, Finding, Policy, judge};
use strandline::event::{Body, Bytes, DeviceId, DriverMemory, Event, Frame, Item, Names, Nanos, SiteId};
use strandline::reader::{Batch, Reader};
use strandline::replay::Replay;
use strandline::report::metrics::Metrics;
use strandline::report::text::{self, Spread, headline};
use strandline::report::{Namesakes, Process, Report, Style, html};

const CARDS: [u64; 4] = [4 << 30, 24 << 30, 80 << 30, 140 << 30];

/// A job that is judged on a card of our choice.
struct Card {
    replay: Replay,
    detector: Detector,
    size: u64,
    /// Lines of what stands and is growth, at each step, with its certainty.
    said: Vec<BTreeMap<String, Certainty>>,
    /// The line that leaks, where it is known (file, line), and the bytes of it that live at the end of each step.
    site: Option<(String, usize)>,
    held: Vec<u64>,
    /// Steps that left the blocks of it which live now.
    born: BTreeSet<usize>,
}

impl Card {
    fn new(size: u64) -> Card {
        let (replay, detector) = (Replay::new(), Detector::new(Policy::default()));
        let mut card = Card {
            replay,
            detector,
            size,
            said: Vec::new(),
            site: None,
            held: Vec::new(),
            born: BTreeSet::new(),
        };
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
        // At its end a job has freed what it held.
        if progress.step.is_some() && self.replay.ended().is_none() {
            let all: Vec<_> =
                self.replay.blocks(DeviceId(0)).filter(|h| self.is_guilty(h.site)).copied().collect();
            let held = all.iter().map(|h| h.block.rounded.0).sum();
            self.born = all.iter().map(|h| h.step as usize).collect();
            self.held.push(held);
        }
    }

    /// The step by which the leak must be named: soon after its onset, or with its fifth block. Where what it keeps dies in the end, as in
    /// a queue, only its floor tells of it.
    fn named_by(&self) -> usize {
        let born: Vec<usize> = self.born.iter().copied().collect();
        let is_kept = born.get(4).is_some_and(|_| born[0] * 3 <= self.held.len());
        let begins = if is_kept { born } else { rises(&self.held) };
        let fifth = begins.get(4).map_or(0, |fifth| fifth + FIFTH);
        fifth.max(begins.first().copied().unwrap_or(1) + SOON)
    }

    fn is_guilty(&self, site: SiteId) -> bool {
        let Some((file, line)) = &self.site else { return false };
        let is = |f: &Frame| f.line as usize == *line && f.file.rsplit('/').next() == Some(file);
        self.replay.site(site).is_some_and(|s| is(&s.frame) || s.your_line.as_ref().is_some_and(is))
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

    fn end(&mut self) {
        let progress = self.replay.finish();
        self.detector.after(progress, &self.replay);
        self.detector.at_step(&self.replay);
        self.look();
    }

    /// What each door says of certainty at the end, as lines: first line, text, JSON, page, gate, figures, alerts.
    fn doors(&self, names: &Names) -> Vec<String> {
        let verdict = judge(&self.replay, &self.detector);
        let p = Process::new(&self.replay, names, &verdict, self.detector.findings());
        let spread = Spread { found: 1, all: 1, namesakes: Namesakes::None };
        let alerts = self.detector.findings().iter().filter(|f| f.is_active_leak());
        let words =
            |f| headline(&p, f, None, spread).split_once(": ").map(|(_, what)| format!("alert {what}"));
        let mut said: Vec<String> = alerts.filter_map(words).collect();
        let mut figures = Metrics::default();
        figures.add(&p, 0);
        let figure = |l: &str| {
            let (_, labels) = l.strip_prefix("strandline_leak_bytes{")?.split_once("kind=")?;
            let severity = labels.split_once(",severity=").map_or(labels, |(before, _)| before);
            Some(format!("figure {severity}"))
        };
        said.extend(figures.prometheus().lines().filter_map(figure));
        let report = Report { processes: vec![p], ..Report::default() };
        said.push(format!("gate {:?}", report.gated()));
        let mut text = Vec::new();
        text::write(&mut text, &report, Style { width: 10_000, ..Style::default() }).expect("a text");
        let text = String::from_utf8(text).expect("UTF-8");
        // What fills a card, and when, is a question of the card.
        let without = |l: &str| {
            l.split("; GPU 0 would be full ").next().unwrap_or_default().replacen(" on GPU 0", "", 1)
        };
        let is_judgement = |l: &&str| {
            let words = ["strandline: ", "LEAK ", "GROWING ", "because ", "note "];
            words.iter().any(|w| l.trim_start().starts_with(w)) && !l.contains("back to the driver")
        };
        said.extend(text.lines().filter(is_judgement).map(without));
        let mut page = Vec::new();
        let pass = html::Pass::new(&self.replay, self.detector.findings());
        html::write(&mut page, &report, [(0, pass)].into()).expect("a page");
        let page = String::from_utf8(page).expect("UTF-8");
        let (_, data) = page.split_once(r#"type="application/json">"#).expect("data");
        let data: Value =
            serde_json::from_str(data.split_once("</script>").expect("an end").0).expect("JSON");
        said.push(format!(
            "page {} {}",
            data["told"]["phrase"],
            without(data["told"]["reason"].as_str().expect("text"))
        ));
        let json = &data["report"];
        said.push(format!(
            "json {} {} {}",
            json["verdict"], json["reason"], json["detectable_bytes_per_step"]
        ));
        for f in json["processes"][0]["findings"].as_array().into_iter().flatten() {
            let keys =
                ["kind", "certainty", "evidence", "bound", "withdrawn_step", "first_step", "bytes_now"];
            said.push(keys.map(|k| f[k].to_string()).join(" "));
        }
        said
    }
}

#[track_caller]
fn same(name: &str, names: &Names, mut cards: Vec<Card>) -> Card {
    let sizes: Vec<u64> = cards.iter().map(|c| c.size >> 30).collect();
    cards.iter_mut().for_each(Card::end);
    let doors: Vec<Vec<String>> = cards.iter().map(|c| c.doors(names)).collect();
    for (door, size) in doors.iter().zip(&sizes) {
        assert_eq!(door, &doors[0], "{name}: {size} GiB and {} GiB", sizes[0]);
    }
    for (i, other) in cards.iter().enumerate().skip(1) {
        let differs = other.said.iter().zip(&cards[0].said).position(|(a, b)| a != b);
        assert_eq!(
            differs, None,
            "{name}: {} GiB says another thing than {} GiB, at step",
            sizes[i], sizes[0]
        );
    }
    cards.swap_remove(0)
}

/// Steps at whose end more of a leak is there than at the first one's, and never again as little, from 1: of those that follow each other,
/// as the blocks of one burst, the first. The very first is the leak's onset.
fn rises(held: &[u64]) -> Vec<usize> {
    let (mut floor, mut rises) = (u64::MAX, Vec::new());
    for (i, held) in held.iter().enumerate().rev() {
        let before = floor;
        floor = before.min(*held);
        if floor < before && before < u64::MAX {
            rises.push(i + 2);
        }
    }
    rises.reverse();
    let all = rises.clone();
    rises.retain(|r| !all.contains(&(r - 1)));
    rises
}

#[test]
fn a_leak_begins_where_its_floor_first_rises() {
    assert_eq!(rises(&[0, 4, 0, 0, 5, 5, 9, 10]), [5, 7]);
    assert_eq!(rises(&[1, 2, 3]), [2]);
    assert_eq!(rises(&[0, 0]), [0; 0]);
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
        let said = same(name, &job.names, cards).said;
        assert!(
            said.iter().flatten().all(|(_, c)| *c == Certainty::Growing),
            "{name}: no series alone is a leak"
        );
        jobs += 1;
    }
    assert_eq!(jobs, 24);
}

/// Marks within which a leak is named once it has begun; or marks after its fifth block, where that comes later.
const SOON: usize = 15;
const FIFTH: usize = 3;

/// The recordings of `STRANDLINE_RECORDINGS`: a folder with one for each case of `tests/leakbench/more.py` and `others.py`, as
/// `strandline run -o FOLDER/CASE -- python tests/leakbench/more.py CASE` makes them. Each is judged at every step, on each card: a leak is
/// named within 15 steps of its onset or by its fifth block, and at each step from there on; what is healthy is no leak at any, and does
/// not grow at its end. A script that lies in the folder, `CASE.py`, is a case of its own: its first line is `# leaks` or `# healthy`.
/// `cargo test -p strandline --test detect_streams recordings_on_every_card -- --ignored --nocapture`.
#[test]
#[ignore = "needs STRANDLINE_RECORDINGS, a folder of recordings"]
fn recordings_on_every_card() {
    let folder = PathBuf::from(std::env::var_os("STRANDLINE_RECORDINGS").expect("STRANDLINE_RECORDINGS"));
    let all = ["more.py", "others.py"].into_iter().flat_map(|script| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/leakbench").join(script);
        let text = std::fs::read_to_string(path).expect("the script");
        cases(&text).into_iter().map(move |case| (script.to_owned(), case)).collect::<Vec<_>>()
    });
    let all = all.chain(own_cases(&folder));
    let (mut wrong, mut judged_ones) = (Vec::new(), 0);
    println!("| case | steps | named at | by | lost at | at the end | said from step |");
    for (script, (name, is_leak, site)) in all {
        let Some(path) = recording(&folder.join(&name)) else { continue };
        judged_ones += 1;
        let card = judged(&name, &path, site.map(|line| (script.clone(), line)));
        let said = &card.said;
        let ours = |s: &BTreeMap<String, Certainty>| {
            s.keys().any(|line| site.is_none_or(|n| line.contains(&format!("{script}:{n}"))))
        };
        let named = said.iter().position(ours).map(|n| n + 1);
        let lost = named.and_then(|n| said.iter().skip(n).position(|s| !ours(s)).map(|i| i + n + 1));
        let end = said.last().cloned().unwrap_or_default();
        let by = card.named_by();
        let steps = said.len() - 1;
        println!("| {name} | {steps} | {named:?} | {by} | {lost:?} | {end:?} | {} |", changes(said));
        let leak = said.iter().flatten().any(|(_, c)| *c == Certainty::Leak);
        let is_right = match is_leak {
            true => named.is_some_and(|n| n <= by) && lost.is_none(),
            false => !leak && end.is_empty(),
        };
        if !is_right {
            wrong.push(name);
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(judged_ones > 0, "no recording of a case in {}", folder.display());
}

/// What is said, where that changes: `12 loop.py:9, 40 nothing`.
fn changes(said: &[BTreeMap<String, Certainty>]) -> String {
    let place = |s: &String| s.rsplit(' ').next().unwrap_or_default().to_owned();
    let words: Vec<String> =
        said.iter().map(|s| s.keys().map(place).collect::<Vec<_>>().join(" and ")).collect();
    let mut all = Vec::new();
    for (i, word) in words.iter().enumerate() {
        if i.checked_sub(1).and_then(|before| words.get(before)).map_or("", |b| b) != word {
            all.push(format!("{} {}", i + 1, if word.is_empty() { "nothing" } else { word }));
        }
    }
    all.join(", ")
}

/// A case's name, whether it leaks, and the line that must be named.
type Case = (String, bool, Option<usize>);

/// Cases of the script: name, whether it leaks, and the line that does, where the script says it.
fn cases(script: &str) -> Vec<Case> {
    let (mut all, mut is_leak) = (Vec::<Case>::new(), false);
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

/// The scripts of a folder, each of which is one case, in the order of their names.
fn own_cases(folder: &Path) -> Vec<(String, Case)> {
    let mut scripts: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").flatten().map(|e| e.path()).collect();
    scripts.retain(|p| p.extension().is_some_and(|e| e == "py"));
    scripts.sort();
    let case = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("the script");
        let (name, file) = (path.file_stem()?.to_str()?.to_owned(), path.file_name()?.to_str()?.to_owned());
        let site = text.lines().position(|l| l.contains("# SITE")).map(|i| i + 1);
        Some((file, (name, text.starts_with("# leaks"), site)))
    };
    scripts.iter().filter_map(case).collect()
}

fn recording(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|e| e.path());
    files
        .filter(|p| p.extension().is_some_and(|e| e == "strand"))
        .max_by_key(|p| p.metadata().map_or(0, |m| m.len()))
}

fn judged(name: &str, path: &Path, site: Option<(String, usize)>) -> Card {
    let mut reader = Reader::open(path).expect("a recording");
    let mut cards: Vec<Card> = CARDS.map(Card::new).into();
    cards[0].site = site;
    while let Some(batch) = reader.next_batch() {
        let items: Vec<Item> = match batch {
            Batch::Events(events) => events.iter().copied().map(Item::Event).collect(),
            Batch::Item(item) => vec![item],
        };
        for item in &items {
            cards.iter_mut().for_each(|c| c.take(item, reader.names()));
        }
    }
    same(name, reader.names(), cards)
}
