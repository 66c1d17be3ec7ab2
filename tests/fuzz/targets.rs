//! What is fuzzed: a function of any bytes for each way that bytes from elsewhere come in. None may panic, hang, or take memory out of
//! proportion; what they make of the bytes is theirs to say. `cargo fuzz` calls them, and so does `tests/fuzz.rs` on every toolchain.

#[path = "../support/snapshot_rules/mod.rs"]
mod snapshot_rules;

#[path = "printed.rs"]
mod printed;

use printed::printed;
use snapshot_rules::validate;
use strandline::detect::{Detector, Policy, judge};
use strandline::event::{Item, Names};
use strandline::format::checkpoint;
use strandline::format::header::Header;
use strandline::format::holders::Ask;
use strandline::format::page::{Framer, Tag};
use strandline::format::region::Identity;
use strandline::reader::{Batch, Reader, Source};
use strandline::replay::Replay;
use strandline::report::HeldBy;
use strandline::report::snapshot::Steps;
use strandline::report::snapshot::import::import;
use strandline::report::snapshot::unpickle::{self, Limits};

/// A target: its name, and what it does with bytes.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All of them.
pub(crate) const TARGETS: [Target; 6] = [
    ("recordings", recordings),
    ("pages", pages),
    ("checkpoints", checkpoints),
    ("tails", tails),
    ("messages", messages),
    ("pickles", pickles),
];

/// Whose recording the targets pretend to read.
pub(crate) const WHO: Identity = Identity { pid: 4711, start: 99, id: [0x1234, 0x5678] };

/// A recording as it lies on a disk.
pub(crate) fn recordings(bytes: &[u8]) {
    finish(&|| Reader::from_source(Box::new(bytes.to_vec()), None).ok());
}

/// Pages with the right checksums: a tag, three bytes of length, a payload, and so on.
pub(crate) fn pages(bytes: &[u8]) {
    let mut file = header(serde_json::json!({ "framework": "none" }));
    let mut framer = Framer::default();
    let mut rest = bytes;
    while let [tag, a, b, c, more @ ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        let (payload, more) = more.split_at(length.min(more.len()));
        if let Some(tag) = Tag::from_u16(u16::from(*tag)) {
            framer.page(&mut file, tag, payload);
        }
        rest = more;
    }
    finish(&|| Some(Reader::from_source(Box::new(file.clone()), None).expect("its header is one")));
}

/// A checkpoint's payload. What is read is written as it was read.
pub(crate) fn checkpoints(bytes: &[u8]) {
    if let Ok(read) = checkpoint::decode(bytes) {
        let again = checkpoint::decode(&checkpoint::encode(&read)).expect("what was written can be read");
        assert_eq!(read, again);
        let mut replay = Replay::new();
        replay.apply(&strandline::event::Item::Checkpoint(Box::new(read)), &Default::default());
        replay.finish();
    }
}

/// The rings of a process that has died.
pub(crate) fn tails(bytes: &[u8]) {
    finish(&|| {
        let tail: Box<dyn Source> = Box::new(bytes.to_vec());
        let reader = Reader::from_source(Box::new(header(serde_json::Value::Null)), Some(tail));
        Some(reader.expect("its header is one"))
    });
}

/// Questions to a job, its answers and what else it says of itself.
pub(crate) fn messages(bytes: &[u8]) {
    if let Some(ask) = Ask::parse(bytes) {
        let again = Ask::parse(ask.to_json().to_string().as_bytes()).expect("what was written can be read");
        // `about` goes through as it is, and serde_json may read a fraction with one last digit less than it wrote.
        let ours =
            |a: &Ask| (a.number, a.last, a.findings.iter().map(|f| f.blocks.clone()).collect::<Vec<_>>());
        assert_eq!(ours(&again), ours(&ask));
    }
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) {
        let _ = HeldBy::of(&value, &value, &value, &|_| None);
        let mut file = header(value);
        Framer::default().page(&mut file, Tag::Meta, bytes);
        finish(&|| Some(Reader::from_source(Box::new(file.clone()), None).expect("its header is one")));
    }
}

/// A snapshot that PyTorch may have written.
pub(crate) fn pickles(bytes: &[u8]) {
    let limits = Limits { values: bytes.len(), ..Limits::default() };
    let Ok(tree) = unpickle::read(bytes, &limits) else { return };
    let _ = validate(&tree);
    let Ok(imported) = import(tree) else { return };
    let mut replay = Replay::new();
    for item in &imported.items {
        replay.apply(item, &imported.names);
    }
    for event in imported.events() {
        replay.apply_event(&event);
    }
    replay.finish();
}

fn header(provenance: serde_json::Value) -> Vec<u8> {
    Header { who: WHO, tail: None, unix_ns: 1_700_000_000_000_000_000, provenance }.encode()
}

/// Reads to the end, replays, judges and prints it.
fn finish(open: &dyn Fn() -> Option<Reader>) {
    let Some(mut reader) = open() else { return };
    let (mut replay, mut detector) = (Replay::new(), Detector::new(Policy::default()));
    let mut steps = Steps::default();
    each(&mut reader, &mut |item, names| {
        let progress = replay.apply(item, names);
        detector.after(progress, &replay);
        steps.see(item, progress);
    });
    let progress = replay.finish();
    detector.after(progress, &replay);
    steps.finish(progress);
    let verdict = judge(&replay, &detector);
    if let Some(again) = open() {
        printed(&replay, &steps, reader.names(), &verdict, detector.findings(), again);
    }
}

/// Each item of a recording, and each event as one.
pub(crate) fn each(reader: &mut Reader, take: &mut dyn FnMut(&Item, &Names)) {
    let mut items = 0u64;
    loop {
        match reader.next_batch() {
            None => break,
            Some(Batch::Events(events)) => {
                let events: Vec<Item> = events.iter().cloned().map(Item::Event).collect();
                events.iter().for_each(|event| take(event, reader.names()));
            }
            Some(Batch::Item(item)) => {
                items += 1;
                assert!(items < 10_000_000, "it never ends");
                take(&item, reader.names());
            }
        }
    }
}
