//! What mutations begin with: inputs that were kept because they once failed, and good ones.

#[path = "../recordings/job.rs"]
#[allow(dead_code, reason = "the other tests of recordings use more of it")]
mod job;

use job::{Job, Life, SMALL, live};
use std::path::{Path, PathBuf};
use strandline::format::page::{FRAME, Frame, Opener, Tag};
use strandline::writer::{Memory, Options};

/// Those of a target.
pub(crate) fn of(name: &str) -> Vec<Vec<u8>> {
    let mut all = files(&format!("tests/fuzz/corpus/{name}"), "");
    match name {
        "recordings" => {
            all.extend(files("tests/recordings", "strand"));
            all.push(finished());
        }
        "pages" => {
            let recordings = files("tests/recordings", "strand").into_iter().chain([finished()]);
            all.extend(recordings.map(|file| {
                pages(&file).into_iter().filter(|p| p.1.len() < 1 << 24).flat_map(|(tag, payload)| {
                    let length = (payload.len() as u32).to_le_bytes();
                    [vec![tag as u8, length[0], length[1], length[2]], payload].concat()
                }).collect()
            }));
        }
        "checkpoints" => {
            let recordings = files("tests/recordings", "strand").into_iter().chain([finished()]);
            all.extend(recordings.flat_map(|f| pages(&f)).filter(|p| p.0 == Tag::Checkpoint).map(|p| p.1));
        }
        "tails" => all.extend((1..4).map(dead)),
        "messages" => all.extend(
            [
                r#"{"number":1,"findings":[{"about":{"kind":"step-growth","device":0,"stream":7,"sites":["a.py:1"]},"blocks":[139637976727552,1]}]}"#,
                r#"{"holders":[{"number":1,"findings":[{"about":{"kind":"x"},"status":"found","holders":["C.d (dict, 7 entries)"],"reason":null,"count":3}]}]}"#,
                r#"{"status":"found","holders":[{"path":"C.d","kind":"dict","entries":7}],"reason":"x"}"#,
                r#"{"command":["python","t.py","--token","x"],"host":"h","rank":0,"snapshot_request":{"number":1,"path":"a","mark":"m","cwd":"/","unix_ms":1}}"#,
                r#"{"free_source":"driver","probe":true,"ended":"exit","torch":"2.11.0","capabilities":["blocks"],"alloc_conf":"x:y"}"#,
            ]
            .map(|s| s.as_bytes().to_vec()),
        ),
        _ => all.extend(files("tests/golden/snapshots", "pickle")),
    }
    all
}

fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|p| ending.is_empty() || p.extension().is_some_and(|e| e == ending)).collect();
    paths.sort();
    paths.iter().map(|p| std::fs::read(p).expect("a file")).collect()
}

/// A recording of a few steps, whole.
fn finished() -> Vec<u8> {
    long(800)
}

/// A recording of so many records, whole.
pub(crate) fn long(records: usize) -> Vec<u8> {
    let mut job = Job::new(SMALL, 3, Options::default(), Memory::default());
    job.define(5);
    live(&mut job, &mut Life::new(), records, 3);
    job.end()
}

/// The rings of a process that died in the middle.
fn dead(seed: u64) -> Vec<u8> {
    let mut job = Job::new(SMALL, 3, Options::default(), Memory::default());
    job.define(5);
    live(&mut job, &mut Life::new(), 700 + seed as usize * 31, seed);
    job.tail()
}

/// The pages of a recording: tags and payloads.
fn pages(file: &[u8]) -> Vec<(Tag, Vec<u8>)> {
    let mut opener = Opener::default();
    let mut at = strandline::format::header::Header::length(file).expect("a header");
    let mut all = Vec::new();
    while let Some(frame) = file.get(at..).and_then(Frame::decode) {
        let body = at + FRAME;
        let payload = file.get(body..body + frame.payload() as usize).expect("a whole page");
        let payload = opener.open(&frame, payload).expect("a good page");
        all.extend(Tag::from_u16(frame.tag).map(|tag| (tag, payload.to_vec())));
        at = body + frame.length as usize;
    }
    all
}
