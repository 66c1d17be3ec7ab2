//! Recorded allocator events of leakbench (`*.events.gz`) as items of a recording. Shared by tests through
//! `#[path]`.

use std::path::Path;
use std::process::Command;
use strandline::event::{
    Addr, Block, Body, Bytes, DeviceId, DriverMemory, Event, Frame, Item, Names, Nanos, Phase, PoolId,
    SegmentOp, StackId, StreamHandle, ThreadId,
};

/// One recorded job.
pub(crate) struct Job {
    pub(crate) name: String,
    #[allow(dead_code)] // not every test asks for it
    pub(crate) header: serde_json::Value,
    pub(crate) names: Names,
    pub(crate) items: Vec<Item>,
}

/// Nanoseconds that a step is taken to last; the files have no times.
pub(crate) const STEP: u64 = 1_000_000_000;

/// Loads a file, gzip-compressed or not, as a job on a card of `capacity` bytes whose marks are manual steps.
pub(crate) fn load(path: &Path, capacity: u64) -> Job {
    let text = if path.extension().is_some_and(|e| e == "gz") {
        let out = Command::new("gzip").arg("-dc").arg(path).output().expect("gzip runs");
        assert!(out.status.success(), "gzip -dc {}", path.display());
        String::from_utf8(out.stdout).expect("text")
    } else {
        std::fs::read_to_string(path).expect("readable")
    };
    parse(&text, capacity)
}

/// Marks as a training loop that accumulates `every` microbatches makes them: a backward and a forward
/// allocation at each, an optimizer at each `every`th.
#[allow(dead_code)]
pub(crate) fn with_automatic_marks(job: &Job, every: u32) -> Vec<Item> {
    let mut out = Vec::new();
    let mut n = 0;
    for item in &job.items {
        let Item::Event(Event { time, thread, body: Body::ManualStep(_) }) = item else {
            out.push(item.clone());
            continue;
        };
        let mut say = |body| out.push(Item::Event(Event { time: *time, thread: *thread, body }));
        say(Body::BackwardBegin { stack: StackId(0), nested: false });
        say(Body::BackwardEnd { nested: false });
        n += 1;
        if n % every == 0 {
            say(Body::OptimizerBegin(1));
            say(Body::OptimizerEnd(1));
        }
    }
    out
}

/// The same from its text.
pub(crate) fn parse(text: &str, capacity: u64) -> Job {
    let mut lines = text.lines();
    let header = lines.next().and_then(|l| l.strip_prefix("# ")).expect("a header");
    let header: serde_json::Value = serde_json::from_str(header).expect("json");
    let mut names = Names::default();
    let mut items = vec![Item::Driver(DriverMemory {
        time: Nanos(0),
        device: DeviceId(0),
        total: Bytes(capacity),
        free: Bytes(capacity),
        process: None,
    })];
    let mut optimizer = Vec::new();
    for (i, site) in header["sites"].as_array().expect("sites").iter().enumerate() {
        let site = site.as_str().expect("text");
        let mut parts = site.rsplitn(3, ':');
        let line = parts.next().and_then(|l| l.parse().ok()).unwrap_or(0);
        let function = parts.next().unwrap_or("").to_string();
        let file = parts.next().unwrap_or("").to_string();
        optimizer.push(file == "adamw.py");
        if !file.is_empty() {
            let id = StackId(i as u32 + 1);
            names.add_stack(id, [Frame { file, line, function }]);
            items.push(Item::Stack(id));
        }
    }
    let (mut steps, mut n) = (0u64, 0u64);
    for line in lines {
        let mut words = line.split(' ');
        let kind = words.next().expect("a kind");
        let v: Vec<i64> = words.map(|w| w.parse().expect("a number")).collect();
        n += 1;
        let event = |body| Item::Event(Event { time: Nanos(steps * STEP + n), thread: ThreadId(0), body });
        let block = || Block {
            addr: Addr(v[0] as u64 * 512),
            size: Bytes(v[1] as u64),
            stream: StreamHandle(v[2] as u64),
            ..Block::default()
        };
        let segment = |op| Body::Segment {
            op,
            device: DeviceId(0),
            addr: Addr(v[0] as u64 * 512),
            size: Bytes(v[1] as u64),
            stream: StreamHandle(v.get(2).copied().unwrap_or(0) as u64),
            pool: PoolId::DEFAULT,
        };
        items.push(match kind {
            "A" => {
                let stack = StackId((v[3] + 1) as u32);
                // No Python frame: an autograd thread.
                let known = names.frames(stack).next().is_some();
                let optimizer = v[3] >= 0 && optimizer[v[3] as usize];
                event(Body::Alloc(Block {
                    stack,
                    phase: Phase { backward: !known, optimizer, ..Phase::default() },
                    ..block()
                }))
            }
            "R" => event(Body::FreeRequested(block())),
            "C" => event(Body::FreeCompleted(block())),
            "G" => event(segment(SegmentOp::Alloc)),
            "H" => event(segment(SegmentOp::Free)),
            "M" => {
                steps += 1;
                n = 0;
                Item::Event(Event {
                    time: Nanos(steps * STEP),
                    thread: ThreadId(0),
                    body: Body::ManualStep(steps),
                })
            }
            k => panic!("no kind {k}"),
        });
    }
    Job { name: header["run"].as_str().unwrap_or("").to_string(), header, names, items }
}
