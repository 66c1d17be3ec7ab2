//! Leaks of other shapes than `synthetic.py` draws, each beside one of the healthy jobs: what makes them hard to see. Lines of
//! `leak.py` leak.

use crate::healthy;
use crate::judged::CARD;
use crate::random::Random;
use crate::synthetic::{self, Drawn, Leak, Live, Tape};
use std::collections::VecDeque;

/// A kind of leak: its name, and how one is drawn.
pub(crate) type Kind = (&'static str, fn(&mut Random, &mut Step<'_>));

/// All of them.
pub(crate) const KINDS: [Kind; 8] = [
    ("among others", among),
    ("thin", thin),
    ("spread", spread),
    ("two streams", both),
    ("late", late),
    ("faster and faster", faster),
    ("at evaluations", evaluations),
    ("slower from then on", slower),
];

/// A step that leaks.
pub(crate) struct Step<'a> {
    t: &'a mut Tape,
    /// Its number, from the one at which the leak begins.
    n: u64,
    /// Steps of the run from there on.
    of: u64,
    /// Bytes a step, on average over the run.
    rate: u64,
    side: u64,
    /// What its line allocates beside what leaks.
    used: &'a mut VecDeque<(u64, Live)>,
    /// Drawn once for the run.
    drawn: u64,
    bursts: &'a mut u64,
}

impl Step<'_> {
    fn leak(&mut self, bytes: u64, stream: u64, line: u32) {
        self.t.alloc_on(bytes.max(512), stream, "leak.py", line);
    }
}

/// A line most of whose blocks are freed, some of them only steps later; one of them is kept.
fn among(r: &mut Random, s: &mut Step<'_>) {
    for _ in 0..2 + s.drawn % 12 {
        let b = s.t.alloc_on(s.rate, s.side, "leak.py", 1);
        s.used.push_back((s.n + r.between(0, 1 + s.drawn % 5), b));
    }
    let now = s.n;
    s.used.iter().filter(|u| u.0 <= now).for_each(|u| s.t.free(u.1));
    s.used.retain(|u| u.0 > now);
    s.leak(s.rate, s.side, 1);
    *s.bursts += 1;
}

/// Little, and not often.
fn thin(_: &mut Random, s: &mut Step<'_>) {
    let every = 1 + s.drawn % 40;
    if s.n % every == every - 1 {
        s.leak(s.rate * every, s.side, 1);
        *s.bursts += 1;
    }
}

/// Every step at other lines of many.
fn spread(r: &mut Random, s: &mut Step<'_>) {
    let lines = 2 + s.drawn % 60;
    let each = 1 + lines / 4;
    for _ in 0..each {
        let line = 1 + r.between(0, lines - 1) as u32;
        s.leak(s.rate / each, s.side, line);
    }
    *s.bursts += 1;
}

/// One on the stream that trains, one beside it.
fn both(_: &mut Random, s: &mut Step<'_>) {
    s.leak(s.rate / 2, 0, 1);
    s.leak(s.rate / 2, 1, 2);
    *s.bursts += 1;
}

/// As it begins late (see [`draw`]), nothing else is special about it.
fn late(_: &mut Random, s: &mut Step<'_>) {
    s.leak(s.rate, s.side, 1);
    *s.bursts += 1;
}

/// Three times as fast at the end as at the beginning.
fn faster(_: &mut Random, s: &mut Step<'_>) {
    s.leak(s.rate / 2 + s.rate * s.n / s.of, s.side, 1);
    *s.bursts += 1;
}

/// Only where it evaluates: of what a line allocates there, a quarter is kept.
fn evaluations(_: &mut Random, s: &mut Step<'_>) {
    let every = 3 + s.drawn % 20;
    if s.n % every == every - 1 {
        let all: Vec<Live> = (0..4).map(|_| s.t.alloc_on(s.rate * every, 0, "leak.py", 1)).collect();
        all.into_iter().skip(1).for_each(|b| s.t.free(b));
        *s.bursts += 1;
    }
}

/// At every step for a tenth to a third of the run, then at one in two to four: every so many steps, or by chance.
fn slower(r: &mut Random, s: &mut Step<'_>) {
    let (part, every) = (3 + s.drawn % 8, 2 + s.drawn / 8 % 3);
    let is_by_chance = s.drawn / 64 % 2 == 1;
    let comes = if is_by_chance { r.yes(1.0 / every as f64) } else { s.n.is_multiple_of(every) };
    if s.n < s.of / part || comes {
        s.leak(s.rate, s.side, 1);
        *s.bursts += 1;
    }
}

/// The leaky job of a kind and a seed: what leaks is added to a healthy job's steps.
pub(crate) fn draw(kind: Kind, seed: u64) -> (Drawn, u64) {
    let mut r = Random::new(seed ^ 0x5eed_1eaf);
    let shape = healthy::SHAPES[r.between(0, healthy::SHAPES.len() as u64 - 1) as usize];
    let rate = r.uniform(2e-6f64.ln(), 2e-2f64.ln()).exp() * CARD as f64;
    let side = u64::from(r.yes(1.0 / 3.0));
    let drawn = r.between(0, 1 << 20);
    let from = if kind.0 == "late" { r.uniform(0.5, 0.8) } else { r.uniform(0.0, 0.3) };
    let (mut used, mut bursts) = (VecDeque::new(), 0);
    let job = healthy::draw(shape, seed);
    let start = (job.steps as f64 * from) as u64;
    let of = job.steps - start;
    let leak = Some(Leak { sites: 1, side: side == 1, rate, burst: 1, start, decays: false });
    let job = synthetic::beside(Drawn { leak, ..job }, |t, step| {
        if step >= start {
            let (n, rate) = (step - start, rate as u64);
            let mut s = Step { t, n, of, rate, side, used: &mut used, drawn, bursts: &mut bursts };
            kind.1(&mut r, &mut s);
        }
    });
    (job, bursts)
}

/// Whether it must be found: it has leaked five times, and fifteen steps have passed since it began.
pub(crate) fn must_be_found(d: &Drawn, bursts: u64) -> bool {
    bursts >= 5 && d.leak.as_ref().is_some_and(|l| l.start + 15 <= d.steps)
}
