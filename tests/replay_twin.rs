//! The replay against a twin that keeps every event and counts anew: slow, and obviously right.

#[path = "replay_twin/checkpoints.rs"]
mod checkpoints;

use rustc_hash::FxHashMap;
use strandline::event::{
    Addr, Block, Body, Bytes, DeviceId, Event, Frame, Item, Names, Nanos, PoolId, SegmentOp, StackId,
    StreamHandle, ThreadId, Totals,
};
use strandline::replay::{Point, Replay};

/// xorshift64*.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

const SITES: u32 = 4;
const FIRST_STEPS: usize = 6;

/// What the twin keeps of a block: where it was allocated and freed in the list of events.
#[derive(Clone, Copy, Debug)]
struct Life {
    key: (u8, u64, u32),
    rounded: u64,
    born: usize,
    requested: Option<usize>,
    completed: Option<usize>,
    /// A loss, after which nothing is known of it (it is live until something says otherwise).
    doubted: Option<usize>,
    /// A loss while it was pending, after a request that had cleared the first doubt.
    doubted_again: bool,
}

/// Everything that happened.
#[derive(Default)]
struct Twin {
    lives: Vec<Life>,
    at: FxHashMap<(u8, u64), usize>,
    /// Event numbers at which a step had ended: events below it belong to that step or earlier ones.
    marks: Vec<usize>,
    manual: bool,
    events: usize,
}

impl Twin {
    fn feed(&mut self, body: &Body) {
        let n = self.events;
        match body {
            Body::Alloc(b) => {
                let at = (b.device.0, b.addr.0);
                let key = (b.device.0, b.stream.0, b.stack.0);
                if let Some(old) = self.at.insert(at, self.lives.len()) {
                    let old = &mut self.lives[old];
                    old.requested = old.requested.or(Some(n));
                    old.completed = Some(n);
                }
                let rounded = b.rounded.0;
                self.lives.push(Life {
                    key,
                    rounded,
                    born: n,
                    requested: None,
                    completed: None,
                    doubted: None,
                    doubted_again: false,
                });
            }
            Body::FreeRequested(b) => {
                if let Some(&i) = self.at.get(&(b.device.0, b.addr.0)) {
                    let l = &mut self.lives[i];
                    if l.requested.is_none() {
                        l.requested = Some(n);
                    }
                }
            }
            Body::FreeCompleted(b) => {
                if let Some(i) = self.at.remove(&(b.device.0, b.addr.0)) {
                    let l = &mut self.lives[i];
                    l.requested = l.requested.or(Some(n));
                    l.completed = Some(n);
                }
            }
            Body::Gap { .. } => {
                for &i in self.at.values() {
                    let l = &mut self.lives[i];
                    l.doubted_again |= l.requested.is_some();
                    l.doubted = l.doubted.or(Some(n));
                }
            }
            Body::ManualStep(_) => {
                if !self.manual {
                    self.marks.clear();
                }
                self.manual = true;
                self.marks.push(n);
            }
            _ => {}
        }
        self.events += 1;
    }

    fn step_of(&self, event: usize) -> usize {
        1 + self.marks.iter().filter(|m| **m <= event).count()
    }

    /// Live for its cohort at a mark: allocated, not given back, not doubted.
    fn counts(&self, l: &Life, mark: usize) -> bool {
        let before = |e: Option<usize>| e.is_some_and(|e| e < mark);
        l.born < mark && !before(l.requested) && !before(l.doubted)
    }

    fn old(&self, key: (u8, u64, u32), step: usize) -> Point {
        let mark = self.marks[step - 1];
        let mut p = Point::default();
        for l in self.lives.iter().filter(|l| l.key == key) {
            if self.counts(l, mark) && self.step_of(l.born) + 2 <= step {
                p.blocks += 1;
                p.bytes += l.rounded;
            }
        }
        p
    }

    fn sum(&self, device: u8, at: usize, which: impl Fn(&Life, usize) -> bool) -> (u64, u64) {
        let mine = self.lives.iter().filter(|l| l.key.0 == device && which(l, at));
        mine.fold((0, 0), |a, l| (a.0 + 1, a.1 + l.rounded))
    }
}

fn is_live(l: &Life, at: usize) -> bool {
    l.born < at && l.requested.is_none_or(|r| r >= at)
}

fn is_pending(l: &Life, at: usize) -> bool {
    l.requested.is_some_and(|r| r < at) && l.completed.is_none_or(|c| c >= at)
}

fn names() -> Names {
    let mut names = Names::default();
    for i in 1..=SITES {
        names.add_stack(StackId(i), [Frame { file: format!("/job/{i}.py"), line: i, function: "f".into() }]);
    }
    names
}

/// A random job. `wild`: also what a recording of a real process cannot contain, and losses.
fn job(seed: u64, wild: bool) -> Vec<Body> {
    let mut d = Dice(seed * 2 + 1);
    let (mut live, mut pending, mut out): (Vec<Block>, Vec<Block>, Vec<Body>) = Default::default();
    let mut next = 1u64;
    let events = 200 + d.roll(600);
    let (per_step, automatic) = (5 + d.roll(60), d.chance(50));
    for i in 0..events {
        if i % per_step == per_step - 1 {
            if automatic && out.len() < 60 && i / per_step < FIRST_STEPS as u64 {
                out.extend([Body::OptimizerBegin(1), Body::OptimizerEnd(1)]);
            } else {
                out.push(Body::ManualStep(i));
            }
        }
        match d.roll(10) {
            0..=4 => {
                let reuse = wild && d.chance(5) && !live.is_empty();
                let addr =
                    if reuse { live[d.roll(live.len() as u64) as usize].addr } else { Addr(next * 512) };
                next += 1;
                let size = Bytes(1 + d.roll(5000));
                let b = Block {
                    device: DeviceId(d.roll(2) as u8),
                    addr,
                    size,
                    rounded: Bytes(size.0.next_multiple_of(512)),
                    stream: StreamHandle(d.roll(3) * 64),
                    stack: StackId(1 + d.roll(u64::from(SITES)) as u32),
                    ..Block::default()
                };
                live.retain(|l| (l.device, l.addr) != (b.device, b.addr));
                pending.retain(|l| (l.device, l.addr) != (b.device, b.addr));
                live.push(b);
                out.push(Body::Alloc(b));
            }
            5..=7 if !live.is_empty() => {
                let b = live.swap_remove(d.roll(live.len() as u64) as usize);
                out.push(Body::FreeRequested(b));
                if d.chance(80) {
                    out.push(Body::FreeCompleted(b));
                } else {
                    pending.push(b);
                }
                if wild && d.chance(5) {
                    out.push(Body::FreeRequested(b));
                }
            }
            8 if !pending.is_empty() => {
                let b = pending.swap_remove(d.roll(pending.len() as u64) as usize);
                out.push(Body::FreeCompleted(b));
            }
            9 if wild && d.chance(4) => out.push(Body::Gap { lost: 1 + d.roll(9) }),
            9 if wild && d.chance(10) && !live.is_empty() => {
                out.push(Body::FreeCompleted(live.swap_remove(0)));
            }
            _ => {}
        }
    }
    out
}

fn run(bodies: &[Body], names: &Names) -> (Replay, Twin) {
    let (mut replay, mut twin) = (Replay::new(), Twin::default());
    for i in 1..=SITES {
        replay.apply(&Item::Stack(StackId(i)), names);
    }
    for (i, body) in bodies.iter().enumerate() {
        let e = Event { time: Nanos(i as u64), thread: ThreadId(0), body: *body };
        let before = (replay.steps(), twin.manual);
        replay.apply(&Item::Event(e), names);
        // Steps found in hooks are the step machine's own business: the twin takes their places over.
        if !twin.manual && !matches!(body, Body::ManualStep(_)) && replay.steps() > before.0 {
            let n = twin.events;
            twin.marks.push(n);
        }
        twin.feed(body);
    }
    (replay, twin)
}

fn compare(seed: u64, replay: &Replay, twin: &Twin) {
    assert_eq!(replay.steps() as usize, twin.marks.len(), "seed {seed}: steps");
    for device in replay.devices() {
        let id = device.id.0;
        let live = twin.sum(id, twin.events, is_live);
        let pending = twin.sum(id, twin.events, is_pending);
        assert_eq!(device.blocks, live.0, "seed {seed}: blocks on {id}");
        assert_eq!(device.pending.0, pending.1, "seed {seed}: pending on {id}");
        assert_eq!(replay.pending(device.id).iter().map(|w| w.blocks).sum::<u64>(), pending.0);
        let doubted = twin.sum(id, twin.events, |l, at| {
            (is_live(l, at) && l.doubted.is_some()) || (is_pending(l, at) && l.doubted_again)
        });
        assert_eq!(
            (device.unverified_blocks, device.unverified.0),
            doubted,
            "seed {seed}: unverified on {id}"
        );
        assert_eq!(replay.blocks(device.id).count() as u64, live.0 + pending.0);
    }
    let mut seen = 0;
    for c in replay.cohorts() {
        let handle = replay.stream(c.key.stream).unwrap().handle.0;
        let stack = replay.site(c.key.site).unwrap().stack.0;
        let key = (c.key.device.0, handle, stack);
        let mine = || twin.lives.iter().filter(|l| l.key == key);
        seen += mine().count();
        assert_eq!(c.allocs as usize, mine().count(), "seed {seed}: allocations of {key:?}");
        let live = mine().filter(|l| twin.counts(l, twin.events)).count();
        assert_eq!(c.live.blocks as usize, live, "seed {seed}: live of {key:?}");
        for step in 1..=twin.marks.len() {
            let got = c.steps.series.floor(step as u32, step as u32 + 1);
            assert_eq!(got, twin.old(key, step), "seed {seed}: old of {key:?} at step {step}");
        }
    }
    assert_eq!(seen, twin.lives.len());
}

#[test]
fn random_jobs_give_equal_state() {
    let names = names();
    let mut folded = 0;
    for seed in 1..=150 {
        let (replay, twin) = run(&job(seed, false), &names);
        compare(seed, &replay, &twin);
        assert_eq!(replay.inconsistencies(), [], "seed {seed}");
        for d in replay.devices() {
            let rows: Vec<(u64, u64, u64)> =
                d.rows.iter().map(|r| (r.allocated.0, r.pending.0, u64::from(r.blocks))).collect();
            let want: Vec<(u64, u64, u64)> = twin
                .marks
                .iter()
                .map(|m| {
                    let live = twin.sum(d.id.0, *m, is_live);
                    (live.1, twin.sum(d.id.0, *m, is_pending).1, live.0)
                })
                .collect();
            // A device has rows from the step on in which it was first used.
            assert!(want.ends_with(&rows), "seed {seed}: rows of device {}", d.id.0);
            let peak = (0..=twin.events).map(|at| twin.sum(d.id.0, at, is_live).1).max();
            assert_eq!(Some(d.peak_allocated.bytes.0), peak, "seed {seed}: peak of device {}", d.id.0);
        }
        folded +=
            usize::from(twin.manual && job(seed, false).iter().any(|b| matches!(b, Body::OptimizerEnd(_))));
    }
    assert!(folded > 20, "folds were tried");
}

#[test]
fn wild_recordings_are_counted_and_never_panic() {
    let names = names();
    let mut contradictions = 0;
    for seed in 1..=150 {
        let (replay, twin) = run(&job(seed, true), &names);
        compare(seed, &replay, &twin);
        contradictions += replay.inconsistencies().iter().map(|i| i.count).sum::<u64>();
    }
    assert!(contradictions > 100);
}

#[test]
fn any_events_in_any_order_never_panic() {
    for seed in 1..=60 {
        let mut d = Dice(seed);
        let mut replay = Replay::new();
        for _ in 0..2000 {
            let any = |d: &mut Dice| [0, 1, 512, 1024, u64::MAX, u64::MAX - 511, 1 << 40][d.roll(7) as usize];
            let device = DeviceId([0, 1, 255][d.roll(3) as usize]);
            let b = Block {
                device,
                addr: Addr(any(&mut d)),
                size: Bytes(any(&mut d)),
                rounded: Bytes(any(&mut d)),
                stream: StreamHandle(any(&mut d)),
                pool: PoolId(0, d.roll(2)),
                totals: d
                    .chance(30)
                    .then(|| Totals { allocated: Bytes(any(&mut d)), reserved: Bytes(any(&mut d)) }),
                ..Block::default()
            };
            let ops = [SegmentOp::Alloc, SegmentOp::Free, SegmentOp::Map, SegmentOp::Unmap];
            let stream = b.stream;
            let body = match d.roll(16) {
                0..=3 => Body::Alloc(b),
                4 | 5 => Body::FreeRequested(b),
                6 | 7 => Body::FreeCompleted(b),
                8 => Body::Segment {
                    op: ops[d.roll(4) as usize],
                    device,
                    addr: b.addr,
                    size: b.size,
                    stream,
                    pool: b.pool,
                },
                9 => Body::Gap { lost: b.size.0 },
                10 => Body::Scope { device, from: stream, to: StreamHandle(any(&mut d)) },
                11 => Body::StreamDestroy(stream),
                12 => Body::FreeWaits { device, addr: b.addr, stream },
                13 => Body::OptimizerEnd(d.roll(3)),
                14 => Body::ManualStep(0),
                _ => Body::DeviceDone(device),
            };
            let thread = ThreadId(d.roll(3) as u16);
            replay.apply_event(&Event { time: Nanos(any(&mut d)), thread, body });
        }
        replay.finish();
    }
}

/// Totals as the allocator itself would report them; some events are lost, and the replay is told so.
#[test]
fn totals_agree_again_after_a_loss() {
    let names = names();
    for seed in 1..=100 {
        let mut d = Dice(seed + 1000);
        let (mut replay, mut allocated) = (Replay::new(), [0u64; 2]);
        let mut losing = 0u64;
        for (i, body) in job(seed, false).into_iter().enumerate() {
            let totals = |a: [u64; 2], dev: DeviceId| {
                Some(Totals { allocated: Bytes(a[dev.0 as usize]), reserved: Bytes(0) })
            };
            let body = match body {
                Body::Alloc(mut b) => {
                    allocated[b.device.0 as usize] += b.rounded.0;
                    b.totals = totals(allocated, b.device);
                    Body::Alloc(b)
                }
                Body::FreeRequested(mut b) => {
                    allocated[b.device.0 as usize] -= b.rounded.0;
                    b.totals = totals(allocated, b.device);
                    Body::FreeRequested(b)
                }
                other => other,
            };
            if losing == 0 && d.chance(1) {
                losing = 1 + d.roll(20);
            }
            if losing > 0 {
                losing -= 1;
                if losing == 0 {
                    let e = Event { time: Nanos(i as u64), thread: ThreadId(0), body: Body::Gap { lost: 1 } };
                    replay.apply(&Item::Event(e), &names);
                }
                continue;
            }
            replay.apply(&Item::Event(Event { time: Nanos(i as u64), thread: ThreadId(0), body }), &names);
        }
        assert_eq!(replay.accounting_drift(), Bytes(0), "seed {seed}");
        assert_eq!(replay.inconsistencies(), [], "seed {seed}");
    }
}

#[test]
fn a_total_that_is_off_is_drift() {
    let mut replay = Replay::new();
    for (addr, allocated) in [(512, 512), (1024, 1024), (2048, 9999)] {
        let size = Bytes(512);
        let totals = Some(Totals { allocated: Bytes(allocated), reserved: Bytes(0) });
        let b = Block { addr: Addr(addr), size, rounded: size, totals, ..Block::default() };
        replay.apply_event(&Event { time: Nanos(addr), thread: ThreadId(0), body: Body::Alloc(b) });
    }
    assert_eq!(replay.accounting_drift(), Bytes(9999 - 1536));
    assert_eq!(replay.devices().next().unwrap().compared, 3);
}
