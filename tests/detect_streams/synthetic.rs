//! Allocator events with ground truth, for error rates: the jobs of `tests/leakbench/synthetic.py`, event for event
//! (`rates` compares them), without Python.

use crate::judged::CARD;
use crate::load::STEP;
use crate::random::Random;
use crate::script::is_mark;
use strandline::event::{
    Addr, Block, Body, Bytes, DeviceId, DriverMemory, Event, Frame, Item, Names, Nanos, Phase, StackId,
    StreamHandle, ThreadId,
};

/// What leaks.
#[derive(Clone, Debug)]
pub(crate) struct Leak {
    pub(crate) sites: u64,
    pub(crate) side: bool,
    /// Bytes a step, at first.
    pub(crate) rate: f64,
    pub(crate) burst: u64,
    pub(crate) start: u64,
    /// The rate halves every 40 steps.
    pub(crate) decays: bool,
}

/// A job drawn from its seed.
pub(crate) struct Drawn {
    pub(crate) steps: u64,
    pub(crate) leak: Option<Leak>,
    pub(crate) names: Names,
    pub(crate) items: Vec<Item>,
}

impl Drawn {
    /// How often something leaks in the run.
    pub(crate) fn bursts(&self) -> u64 {
        self.leak.as_ref().map_or(0, |l| (self.steps - l.start).div_ceil(l.burst))
    }
}

/// A job with more done at the end of each of its steps: `each` is told which one (from 0).
pub(crate) fn beside(job: Drawn, mut each: impl FnMut(&mut Tape, u64)) -> Drawn {
    let stacks = job.items.iter().filter(|i| matches!(i, Item::Stack(_))).count();
    // Addresses and lines of its own.
    let lines = vec![("", u32::MAX); stacks];
    let mut t = Tape { names: job.names, items: Vec::new(), lines, next: 1 << 40, step: 0, n: 0 };
    let mut items = Vec::with_capacity(job.items.len());
    for item in job.items {
        if is_mark(&item) {
            t.n = STEP / 2;
            let step = t.step;
            each(&mut t, step);
            items.append(&mut t.items);
            t.step += 1;
        }
        items.push(item);
    }
    Drawn { names: t.names, items, ..job }
}

/// A job's memory, and what it says.
pub(crate) struct Tape {
    pub(crate) names: Names,
    pub(crate) items: Vec<Item>,
    lines: Vec<(&'static str, u32)>,
    next: u64,
    step: u64,
    n: u64,
}

/// Address (in 512 bytes), size, stream.
pub(crate) type Live = (u64, u64, StreamHandle);

impl Tape {
    /// A job on a card of 24 GiB that has done nothing yet.
    pub(crate) fn new() -> Tape {
        let total = Bytes(CARD);
        let driver = DriverMemory { time: Nanos(0), device: DeviceId(0), total, free: total, process: None };
        let items = vec![Item::Driver(driver)];
        Tape { names: Names::default(), items, lines: Vec::new(), next: 1, step: 0, n: 0 }
    }

    fn say(&mut self, body: Body) {
        self.n += 1;
        let time = Nanos(self.step * STEP + self.n);
        self.items.push(Item::Event(Event { time, thread: ThreadId(0), body }));
    }

    fn block(&self, (addr, size, stream): Live) -> Block {
        Block { addr: Addr(addr * 512), size: Bytes(size), stream, ..Block::default() }
    }

    /// What no Python line allocates (`file` is empty) is of a backward; what `adamw.py` does, of an optimizer.
    pub(crate) fn alloc(&mut self, size: u64, side: bool, file: &'static str, line: u32) -> Live {
        self.alloc_on(size, u64::from(side), file, line)
    }

    /// The same on a stream by its number: 0 is the one that trains.
    pub(crate) fn alloc_on(&mut self, size: u64, stream: u64, file: &'static str, line: u32) -> Live {
        let live = (self.next, size, StreamHandle(stream));
        self.next += size.div_ceil(512).max(1);
        let stack = match self.lines.iter().position(|l| *l == (file, line)) {
            _ if file.is_empty() => StackId(0),
            Some(i) => StackId(i as u32 + 1),
            None => {
                self.lines.push((file, line));
                let id = StackId(self.lines.len() as u32);
                self.names.add_stack(id, [Frame { file: file.into(), line, function: "f".into() }]);
                self.items.push(Item::Stack(id));
                id
            }
        };
        let phase = Phase { backward: file.is_empty(), optimizer: file == "adamw.py", ..Phase::default() };
        self.say(Body::Alloc(Block { stack, phase, ..self.block(live) }));
        live
    }

    pub(crate) fn free(&mut self, live: Live) {
        let b = self.block(live);
        self.say(Body::FreeRequested(b));
        self.say(Body::FreeCompleted(b));
    }

    /// A step ends.
    pub(crate) fn mark(&mut self) {
        self.step += 1;
        self.n = 0;
        self.say(Body::ManualStep(self.step));
    }
}

/// The job of a seed.
pub(crate) fn draw(seed: u64, leaky: bool) -> Drawn {
    let mut r = Random::new(seed);
    let steps = r.choice(&[12u64, 20, 40, 80, 160, 300]);
    let mut t = Tape::new();
    let mut trait_ = || r.yes(0.4);
    let [lazy, experts, varlen, accum, ring, cache] = std::array::from_fn(|_| trait_());
    let [prefetch, resident, eval, cycles, kv, inflight] = std::array::from_fn(|_| trait_());
    let (layers, base) = (r.between(4, 24), 1u64 << r.between(16, 24));
    for i in 0..layers {
        t.alloc(base * 2, false, "model.py", 10 + i as u32);
    }
    let (ring_n, cache_n, depth) = (r.between(4, 60), r.between(4, 40), r.between(1, 16));
    if resident {
        for _ in 0..r.between(1, 8) {
            t.alloc(base, true, "bucket.py", 7);
        }
    }
    let leak = Leak {
        sites: r.choice(&[1, 1, 1, 3, 10, 40]),
        side: r.choice(&[false, false, true]),
        rate: r.uniform(2e-6f64.ln(), 2e-2f64.ln()).exp() * CARD as f64,
        burst: r.choice(&[1, 1, 1, 2, 5, 10, 30, 50]),
        start: r.between(0, (steps / 3).max(1)),
        decays: r.yes(1.0 / 3.0),
    };
    let mut known = [false; 31];
    let mut cached = [false; 41];
    let (mut queue, mut buffer) = (std::collections::VecDeque::new(), std::collections::VecDeque::new());
    let (mut garbage, mut flight): (Vec<Live>, Vec<(u64, Live)>) = (Vec::new(), Vec::new());
    let mut keys: Option<Live> = None;
    for s in 0..steps {
        if prefetch {
            for _ in 0..if (queue.len() as u64) < depth { 2 } else { 1 } {
                queue.push_back(t.alloc(base, true, "loader.py", 31));
            }
            queue.pop_front().into_iter().for_each(|b| t.free(b));
        }
        for _ in 0..if accum { r.between(2, 4) } else { 1 } {
            let f = if varlen { r.uniform(0.5, 2.5) } else { 1.0 };
            let activations: Vec<Live> = (0..layers as u32)
                .map(|i| t.alloc((base as f64 * f) as u64 + 512 * r.between(0, 3), false, "model.py", 50 + i))
                .collect();
            let temporaries: Vec<Live> = (0..r.between(1, 4))
                .map(|_| t.alloc((base as f64 * f / 2.0) as u64, false, "model.py", 90))
                .collect();
            temporaries.into_iter().for_each(|b| t.free(b));
            let mut gradients = Vec::new();
            for a in activations.into_iter().rev() {
                gradients.push(t.alloc(base, false, "", 0));
                t.free(a);
            }
            gradients.into_iter().for_each(|b| t.free(b));
        }
        if lazy && s == 1 {
            for _ in 0..layers {
                t.alloc(base * 2, false, "adamw.py", 17);
            }
        }
        if experts {
            let e = (r.exponential(0.15) as usize).min(30);
            if !std::mem::replace(&mut known[e], true) {
                t.alloc(base, false, "adamw.py", 17);
                t.alloc(base, false, "adamw.py", 18);
            }
        }
        if ring {
            buffer.push_back(t.alloc(1 << 20, false, "metrics.py", 5));
            if buffer.len() as u64 > ring_n {
                buffer.pop_front().into_iter().for_each(|b| t.free(b));
            }
        }
        if cache && !std::mem::replace(&mut cached[r.between(0, cache_n) as usize], true) {
            t.alloc(1 << 21, false, "rope.py", 12);
        }
        if cycles {
            garbage.push(t.alloc(1 << 21, false, "trainer.py", 44));
            if r.yes(0.08) {
                garbage.drain(..).rev().for_each(|b| t.free(b));
            }
        }
        if kv && s % 4 == 0 {
            let new = t.alloc((1 << 20) * (1 + s.min(100)), false, "kv.py", 9);
            keys.replace(new).into_iter().for_each(|b| t.free(b));
        }
        if inflight {
            flight.push((s + r.between(1, 3), t.alloc(base, true, "offload.py", 61)));
            flight.iter().filter(|f| f.0 <= s).for_each(|f| t.free(f.1));
            flight.retain(|f| f.0 > s);
        }
        if eval && s % 10 == 9 {
            let logits: Vec<Live> = (0..8).map(|_| t.alloc(base * 2, false, "evaluate.py", 20)).collect();
            logits.into_iter().for_each(|b| t.free(b));
        }
        if leaky && s >= leak.start && (s - leak.start).is_multiple_of(leak.burst) {
            let fading = if leak.decays { 0.5f64.powf((s - leak.start) as f64 / 40.0) } else { 1.0 };
            let total = (leak.rate * leak.burst as f64 * fading) as u64;
            let n = leak.sites.min((total / 512).max(1));
            for i in 0..n {
                t.alloc((total / n).max(512), leak.side, "leak.py", 100 + i as u32);
            }
        }
        t.mark();
    }
    Drawn { steps, leak: leaky.then_some(leak), names: t.names, items: t.items }
}
