//! Jobs as tests write them down, and the judgement on them: what a report prints of one is what its events say.

use super::*;
use crate::replay::anatomy::Pass;

pub(super) const GIB: u64 = 1 << 30;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const MAIN: StreamHandle = StreamHandle(0);
pub(super) const SIDE: StreamHandle = StreamHandle(0x5581_1c00);
const GPU: DeviceId = DeviceId(0);
const CARD: u64 = 24 * GIB;
/// What the card has besides PyTorch's segments: the context of this process, and another process.
const OUTSIDE: [u64; 2] = [512 * MIB, 300 * MIB];
/// Blocks of each step that stay on the side stream, each of so many bytes.
pub(super) const STASH: [u64; 2] = [12, 24 * MIB];

/// Lines that allocate, by the number of their stack.
pub(super) const UNPACK: u32 = 1;
pub(super) const FORWARD: u32 = 2;
pub(super) const BUILD: u32 = 3;
pub(super) const CALL: u32 = 4;
pub(super) const KEEP: u32 = 5;
const FRAMES: [(u32, &str, u32, &str); 5] = [
    (
        UNPACK,
        "/opt/env/lib/python3.12/site-packages/trl/models/activation_offloading.py",
        430,
        "OffloadActivations.__init__.<locals>.unpack_tensor_with_streams",
    ),
    (FORWARD, "/home/u/job/model.py", 12, "Model.forward"),
    (BUILD, "/home/u/job/train.py", 20, "<module>"),
    (CALL, "/home/u/job/train.py", 88, "<module>"),
    (KEEP, "/home/u/job/model.py", 40, "Model.remember"),
];

/// A job with its caching allocator, on a card that can be full.
pub(super) struct Job {
    pub(super) names: Names,
    items: Vec<Item>,
    replay: Replay,
    detector: Detector,
    time: u64,
    next: u64,
    phase: Phase,
    /// Segments without a block: each has had one, of its size.
    cached: Vec<Block>,
    totals: Totals,
    step: u64,
    /// The driver is asked at the end of each step.
    pub(super) asks: bool,
}

impl Job {
    /// A job of one process, that has built its model of 6 GiB.
    pub(super) fn new() -> Job {
        Job::of_rank(0, None)
    }

    /// The same of one of so many ranks.
    pub(super) fn of_rank(rank: u64, world: Option<u64>) -> Job {
        let mut job = Job {
            names: Names::default(),
            items: Vec::new(),
            replay: Replay::new(),
            detector: Detector::default(),
            time: 0,
            next: 0x7f00_0000_0000,
            phase: Phase::default(),
            cached: Vec::new(),
            totals: Totals::default(),
            step: 0,
            asks: true,
        };
        job.give(Item::Meta(json!({
            "command": ["python", "train.py", "vl.yaml"], "cwd": "/home/u/job", "host": "node7", "pid": 4711 + rank,
            "rank": rank, "local_rank": world.map(|_| rank), "world_size": world, "framework": "torch 2.11.0", "allocator": "native", "coverage": {"level": "blocks", "reason": null},
            "devices": [{"index": 0, "name": "RTX 3090", "capacity_bytes": CARD}],
        })));
        for (stack, file, line, function) in FRAMES {
            let frame = Frame { file: file.into(), line, function: function.into() };
            job.names.add_stack(StackId(stack), [frame]);
            job.give(Item::Stack(StackId(stack)));
        }
        // From here on it is seen when Python's collector has gone over all objects; it does not.
        job.phase.collector = true;
        for _ in 0..6 {
            job.alloc(GIB, MAIN, BUILD);
            job.phase.collector = false;
        }
        job
    }

    pub(super) fn give(&mut self, item: Item) {
        let progress = self.replay.apply(&item, &self.names);
        self.detector.after(progress, &self.replay);
        self.items.push(item);
    }

    pub(super) fn event(&mut self, body: Body) {
        self.time += 1_000_000;
        self.give(Item::Event(Event { time: Nanos(self.time), thread: ThreadId(0), body }));
    }

    fn segment(&mut self, op: SegmentOp, b: Block) {
        let (device, addr, size, stream) = (GPU, b.addr, b.size, b.stream);
        self.event(Body::Segment { op, device, addr, size, stream, pool: Default::default() });
    }

    fn room(&self) -> u64 {
        CARD - OUTSIDE.iter().sum::<u64>() - self.totals.reserved.0
    }

    /// What the driver says, where it was asked.
    fn ask(&mut self) {
        let (time, free) = (Nanos(self.time), Bytes(self.room()));
        let process = Some(Bytes(self.totals.reserved.0 + OUTSIDE[0]));
        self.give(Item::Driver(DriverMemory { time, device: GPU, total: Bytes(CARD), free, process }));
    }

    /// As PyTorch does it: from the cache, else from the driver, else once more without the cache. `None`: memory ran out.
    pub(super) fn alloc(&mut self, size: u64, stream: StreamHandle, stack: u32) -> Option<Block> {
        let (bytes, stack, phase) = (Bytes(size), StackId(stack), self.phase);
        let new = Block { addr: Addr(self.next), size: bytes, rounded: bytes, stream, ..Block::default() };
        let fits = |b: &Block| (b.size, b.stream) == (bytes, stream);
        let block = match self.cached.iter().position(fits) {
            Some(i) => self.cached.swap_remove(i),
            None => {
                if self.room() < size {
                    for b in std::mem::take(&mut self.cached) {
                        self.totals.reserved.0 -= b.size.0;
                        self.segment(SegmentOp::Free, b);
                    }
                }
                if self.room() < size {
                    self.ask();
                    let free = Bytes(self.room());
                    self.event(Body::Oom { device: GPU, requested: bytes, free, stream, stack });
                    return None;
                }
                self.next += size;
                self.totals.reserved.0 += size;
                self.segment(SegmentOp::Alloc, new);
                new
            }
        };
        self.totals.allocated.0 += size;
        let block = Block { stack, phase, totals: Some(self.totals), ..block };
        self.event(Body::Alloc(block));
        Some(block)
    }

    pub(super) fn free(&mut self, b: Block) {
        self.totals.allocated.0 -= b.size.0;
        let b = Block { stack: StackId(0), phase: self.phase, totals: None, ..b };
        self.event(Body::FreeRequested(b));
        self.event(Body::FreeCompleted(Block { totals: Some(self.totals), ..b }));
        self.cached.push(b);
    }

    /// A step: `activations` come and go, and so do gradients; of what is offloaded `stash` blocks stay, and `kept` bytes besides.
    pub(super) fn step(&mut self, activations: u64, stash: u64, kept: u64) -> Option<()> {
        let saved = self.alloc(activations, MAIN, FORWARD)?;
        if kept > 0 {
            self.alloc(kept, MAIN, KEEP)?;
        }
        self.event(Body::BackwardBegin { stack: StackId(CALL), nested: false });
        self.phase.backward = true;
        let gradients = self.alloc(96 * MIB, MAIN, CALL)?;
        for _ in 0..stash {
            self.event(Body::Scope { device: GPU, from: MAIN, to: SIDE });
            self.alloc(STASH[1], SIDE, UNPACK)?;
            self.event(Body::Scope { device: GPU, from: SIDE, to: MAIN });
        }
        self.event(Body::StreamDone(SIDE));
        self.free(saved);
        self.phase.backward = false;
        self.event(Body::BackwardEnd { nested: false });
        self.free(gradients);
        if self.asks {
            self.ask();
        }
        self.time += 11_000_000_000;
        self.step += 1;
        self.event(Body::ManualStep(self.step));
        Some(())
    }

    /// So many steps of 4 GiB of activations, in which these blocks stay; fewer where memory runs out.
    pub(super) fn train(&mut self, steps: u64, stash: u64, kept: u64) -> &mut Job {
        let _ = (0..steps).try_for_each(|_| self.step(4 * GIB, stash, kept));
        self
    }

    /// What is said of it, where this is known of the keepers of its findings and the process ended so.
    pub(super) fn judged(&mut self, told: impl Fn(&Finding) -> Testimony, ended: Ended) -> Judged {
        let (mut replay, mut detector) = (self.replay.clone(), self.detector.clone());
        if ended != Ended::Running {
            let progress = replay.finish();
            detector.after(progress, &replay);
        }
        detector.at_step(&replay);
        detector.hear(told);
        let verdict = judge(&replay, &detector);
        let findings = detector.findings().to_vec();
        let moment = |d: &crate::replay::Device| {
            let m = crate::replay::anatomy::Moment::of(d);
            let mut pass = Pass::new(m);
            self.items.iter().for_each(|i| pass.apply(i, &self.names));
            if ended != Ended::Running {
                pass.ends();
            }
            let counted =
                |h: &crate::replay::Held| findings.iter().any(|f| f.is_active_leak() && f.counts(h));
            let class = |r: &Replay, h: &crate::replay::Held| {
                findings.iter().filter_map(|f| f.class(h, h.is_old(r.steps()))).min()
            };
            pass.finish(&counted, &class).map(|anatomy| Moment { device: d.id, at: m.at, anatomy })
        };
        let moments = replay.devices().filter_map(moment).collect();
        let known = findings.iter().map(|f| known(&replay, f)).collect();
        Judged { names: self.names.clone(), replay, findings, known, verdict, moments, ended }
    }
}

/// A job of which everything is said that can be.
pub(super) struct Judged {
    pub(super) replay: Replay,
    pub(super) names: Names,
    pub(super) verdict: Verdict,
    pub(super) findings: Vec<Finding>,
    known: Vec<Known>,
    moments: Vec<Moment>,
    ended: Ended,
}

impl Judged {
    pub(super) fn process(&self) -> Process<'_> {
        let process = Process::new(&self.replay, &self.names, &self.verdict, &self.findings);
        Process { known: self.known.clone(), anatomies: self.moments.clone(), ended: self.ended, ..process }
    }
}

/// What is told of a leak of TRL's that is known; of other findings nothing is.
pub(super) fn as_known(f: &Finding) -> Testimony {
    let known = (f.kind == Kind::LiveAfterStreamExit).then(|| "huggingface/trl#5700".to_owned());
    Testimony { known, ..Testimony::default() }
}

/// The same for a report.
fn known(replay: &Replay, f: &Finding) -> Known {
    let Some(known) = as_known(f).known else { return Known::default() };
    let stash = Holder {
        name: "OffloadActivations.bwd_tensor_stash".into(),
        kind: "dict".into(),
        entries: Some(replay.blocks(GPU).filter(|h| h.block.stream == SIDE).count() as u64),
        share: 1.0,
        root: true,
        ..Holder::default()
    };
    let text =
        "fixed in trl 1.4.0 (you have 1.3.0): pip install -U \"trl>=1.5\" (1.4 fixes this leak, but not #5730)".into();
    Known { held_by: HeldBy::Found(vec![stash]), fix: Some(Fix { known, text }), ..Known::default() }
}

/// One of so many ranks that has ended after 20 steps: one that leaks, or one that does not.
pub(super) fn rank(rank: u64, world: u64, leaks: bool) -> Judged {
    let stash = if leaks { STASH[0] } else { 0 };
    Job::of_rank(rank, Some(world)).train(20, stash, 0).judged(as_known, Ended::Exit)
}
