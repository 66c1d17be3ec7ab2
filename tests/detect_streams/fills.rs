//! Healthy jobs that keep more and more for a while: what fills at a constant rate to a bound that nobody is told, what
//! grows by stages, what piles up and goes, what waits. And leaks that look like them.

use crate::healthy::Shape;
use crate::random::Random;
use crate::synthetic::{Live, Tape};
use crate::trimmed::{best, bursts, first_rounds, late_backlog, pool, trimmed};
use std::collections::VecDeque;

/// Healthy ones.
pub(crate) const SHAPES: [Shape; 15] = [
    ("replay buffer", replay_buffer),
    ("stages", stages),
    ("epochs", epochs),
    ("sawtooth", sawtooth),
    ("requests", requests),
    ("cache", cache),
    ("prefetch", prefetch),
    ("answers", answers),
    ("window", window),
    ("memo", memo),
    ("samples", samples),
    ("trimmed", trimmed),
    ("first rounds", first_rounds),
    ("best", best),
    ("pool", pool),
];

/// Leaks: lines of `leak.py`.
pub(crate) const LEAKS: [Shape; 10] = [
    ("needles", needles),
    ("backlog", backlog),
    ("unanswered", unanswered),
    ("no more collected", no_more_collected),
    ("adapters", adapters),
    ("after a cache", after_a_cache),
    ("every batch", every_batch),
    (LATE, late_backlog),
    (ANEW, made_anew),
    (BURSTS, bursts),
];

/// A leak that begins late.
pub(crate) const LATE: &str = "late backlog";
/// A leak that comes in bursts.
pub(crate) const BURSTS: &str = "bursts";
/// A leak of which no block grows old.
pub(crate) const ANEW: &str = "made anew";

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Between `low` and `high`, each power of two as likely as the others.
pub(crate) fn size(r: &mut Random, low: u64, high: u64) -> u64 {
    r.uniform((low as f64).ln(), (high as f64).ln()).exp() as u64
}

/// What every job does: weights, and a forward and a backward in each step.
pub(crate) struct Model {
    layers: u64,
    bytes: u64,
}

impl Model {
    pub(crate) fn new(r: &mut Random, t: &mut Tape) -> Model {
        let m = Model { layers: r.between(2, 12), bytes: size(r, 64 * KIB, 8 << 20) };
        (0..m.layers as u32).for_each(|i| {
            t.alloc(m.bytes, false, "model.py", 10 + i);
        });
        m
    }

    pub(crate) fn step(&self, t: &mut Tape, s: u64) {
        let saved: Vec<Live> =
            (0..self.layers as u32).map(|i| t.alloc(self.bytes, false, "model.py", 50 + i)).collect();
        if s == 0 {
            (0..self.layers).for_each(|_| {
                t.alloc(self.bytes, false, "adamw.py", 17);
            });
        }
        for a in saved.into_iter().rev() {
            let gradient = t.alloc(self.bytes, false, "", 0);
            t.free(a);
            t.free(gradient);
        }
    }
}

/// Filled at a constant rate to a bound, beyond which the oldest goes, or nothing more comes. The bound may lie beyond the run.
fn replay_buffer(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, bound) = (size(r, KIB, 4 << 20), r.between(4, 2 * steps) as usize);
    let (each, every, drops) = (r.between(1, 3), r.choice(&[1u64, 1, 2, 5]), r.yes(0.7));
    let mut buffer = VecDeque::new();
    for s in 0..steps {
        m.step(t, s);
        for _ in 0..if s % every == 0 { each } else { 0 } {
            if buffer.len() < bound || drops {
                buffer.push_back(t.alloc(bytes, false, "replay.py", 5));
            }
            if buffer.len() > bound {
                buffer.pop_front().into_iter().for_each(|b| t.free(b));
            }
        }
        t.mark();
    }
}

/// Layers that are added, with their state, one in so many steps, until there are enough.
fn stages(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (every, most) = (r.between(1, 1 + steps / 3), r.between(2, 12));
    let mut added = 0;
    for s in 0..steps {
        if s % every == every - 1 && added < most {
            added += 1;
            t.alloc(m.bytes, false, "model.py", 33);
            (0..2).for_each(|i| {
                t.alloc(m.bytes, false, "adamw.py", 17 + i);
            });
        }
        m.step(t, s);
        t.mark();
    }
}

/// What an epoch gathers, and its end lets go of; the last one may be cut off.
fn epochs(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, epoch) = (size(r, KIB, 4 << 20), r.between(3, steps));
    let mut bank = Vec::new();
    for s in 0..steps {
        m.step(t, s);
        bank.push(t.alloc(bytes, false, "bank.py", 8));
        if s % epoch == epoch - 1 {
            bank.drain(..).for_each(|b| t.free(b));
        }
        t.mark();
    }
}

/// Reference cycles that are collected at random.
fn sawtooth(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, often) = (size(r, KIB, 4 << 20), r.uniform(0.03, 0.3));
    let mut garbage = Vec::new();
    for s in 0..steps {
        m.step(t, s);
        garbage.push(t.alloc(bytes, false, "cycle.py", 8));
        if r.yes(often) {
            garbage.drain(..).for_each(|b| t.free(b));
        }
        t.mark();
    }
}

/// Requests that are served for a while, each as long as it takes.
fn requests(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, rate, life) = (size(r, KIB, 4 << 20), r.uniform(0.2, 3.0), r.uniform(1.0, 20.0));
    let mut open: Vec<(f64, Live)> = Vec::new();
    for s in 0..steps {
        m.step(t, s);
        let come = rate as u64 + u64::from(r.yes(rate.fract()));
        for _ in 0..come {
            open.push((s as f64 + r.exponential(1.0 / life), t.alloc(bytes, false, "serve.py", 8)));
        }
        open.iter().filter(|o| o.0 <= s as f64).for_each(|o| t.free(o.1));
        open.retain(|o| o.0 > s as f64);
        t.mark();
    }
}

/// A table by key: what is asked for often comes first, what is rare comes late.
fn cache(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, n) = (size(r, KIB, 4 << 20), r.between(4, 64));
    let mut known = vec![false; n as usize + 1];
    for s in 0..steps {
        m.step(t, s);
        let key = ((n as f64 + 1.0).powf(r.unit()) as u64).clamp(1, n) as usize;
        if !std::mem::replace(&mut known[key], true) {
            t.alloc(bytes, false, "cache.py", 8);
        }
        t.mark();
    }
}

/// The same where each result is computed, and kept only if its key has none yet.
fn memo(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, n) = (size(r, KIB, 4 << 20), r.between(4, 64));
    let mut known = vec![false; n as usize + 1];
    for s in 0..steps {
        let result = t.alloc(bytes, false, "cache.py", 8);
        m.step(t, s);
        let key = ((n as f64 + 1.0).powf(r.unit()) as u64).clamp(1, n) as usize;
        if std::mem::replace(&mut known[key], true) {
            t.free(result);
        }
        t.mark();
    }
}

/// Some batches are kept to look at, and no more once there are enough of them.
fn samples(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, often, most) = (size(r, 4 * KIB, 4 << 20), r.uniform(0.03, 0.5), r.between(1, 32));
    let mut kept = 0;
    for s in 0..steps {
        let batch = t.alloc(bytes, false, "samples.py", 8);
        m.step(t, s);
        if kept < most && r.yes(often) {
            kept += 1
        } else {
            t.free(batch)
        }
        t.mark();
    }
}

/// A loader ahead of its consumer, by so many batches and no more.
fn prefetch(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, depth) = (size(r, KIB, 4 << 20), r.between(1, 64) as usize);
    let mut queue = VecDeque::new();
    for s in 0..steps {
        for _ in 0..if queue.len() < depth { 2 } else { 1 } {
            queue.push_back(t.alloc(bytes, true, "loader.py", 31));
        }
        queue.pop_front().into_iter().for_each(|b| t.free(b));
        m.step(t, s);
        t.mark();
    }
}

/// Keys and values that are put together token by token, of as many answers at once as there are lines for.
fn answers(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (token, at_once) = (size(r, 4 * KIB, MIB), r.between(1, 4));
    let (shortest, longest) = (r.between(1, 10), r.between(11, 120));
    let mut running: Vec<Option<(u64, u64, Live)>> = vec![None; at_once as usize];
    for s in 0..steps {
        m.step(t, s);
        for (i, slot) in running.iter_mut().enumerate() {
            let (left, tokens, old) = match slot.take() {
                Some((left, tokens, old)) => (left - 1, tokens + 1, Some(old)),
                None => (r.between(shortest, longest), 1, None),
            };
            let new = t.alloc(tokens * token, false, "kv.py", 30 + i as u32 % 2);
            old.into_iter().for_each(|b| t.free(b));
            if left == 0 { t.free(new) } else { *slot = Some((left, tokens, new)) }
        }
        t.mark();
    }
}

/// One block that is put together anew, and larger, in each step or each few, until it has as much as is wanted.
fn window(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, most, every) = (size(r, 4 * KIB, MIB), r.between(2, 2 * steps), r.choice(&[1u64, 1, 2, 5]));
    let mut window: Option<Live> = None;
    for s in 0..steps {
        m.step(t, s);
        if s % every == 0 {
            let new = t.alloc((s / every + 1).min(most) * bytes, false, "window.py", 7);
            window.replace(new).into_iter().for_each(|b| t.free(b));
        }
        t.mark();
    }
}

/// The same without an end: of some lines, by a fixed or a random part of it.
fn made_anew(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, lines) = (size(r, 4 * KIB, MIB), r.between(1, 6) as u32);
    let (every, differs) = (r.choice(&[1u64, 1, 1, 2]), r.yes(0.5));
    let mut all: Vec<Option<(u64, Live)>> = vec![None; lines as usize];
    for s in 0..steps {
        m.step(t, s);
        for (i, slot) in all.iter_mut().enumerate().filter(|_| s % every == 0) {
            let more = if differs { r.between(bytes / 2, bytes * 2) } else { bytes };
            let size = slot.map_or(0, |(size, _)| size) + more.max(512);
            let new = t.alloc(size, false, "leak.py", 8 + i as u32);
            slot.replace((size, new)).into_iter().for_each(|(_, b)| t.free(b));
        }
        t.mark();
    }
}

/// A few batches are kept, most are not.
fn needles(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, often) = (size(r, 4 * KIB, 4 << 20), r.uniform(0.03, 0.5));
    for s in 0..steps {
        let batch = t.alloc(bytes, false, "leak.py", 8);
        m.step(t, s);
        if !r.yes(often) {
            t.free(batch);
        }
        t.mark();
    }
}

/// A producer that outruns its consumer.
fn backlog(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let bytes = size(r, 4 * KIB, 4 << 20);
    let (come, go) = (r.between(2, 4), 1);
    let mut queue = VecDeque::new();
    for s in 0..steps {
        (0..come).for_each(|_| queue.push_back(t.alloc(bytes, true, "leak.py", 31)));
        (0..go).for_each(|_| queue.pop_front().into_iter().for_each(|b| t.free(b)));
        m.step(t, s);
        t.mark();
    }
}

/// Requests of which some are never answered.
fn unanswered(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, stay, longest) = (size(r, 4 * KIB, 4 << 20), r.uniform(0.2, 0.6), r.between(1, 5));
    let mut open: Vec<(u64, Live)> = Vec::new();
    for s in 0..steps {
        for _ in 0..3 {
            let until = if r.yes(stay) { u64::MAX } else { s + r.between(0, longest) };
            open.push((until, t.alloc(bytes, true, "leak.py", 8)));
        }
        open.iter().filter(|o| o.0 <= s).for_each(|o| t.free(o.1));
        open.retain(|o| o.0 > s);
        m.step(t, s);
        t.mark();
    }
}

/// What was collected every so many steps is not any more.
fn no_more_collected(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, every) = (size(r, 4 * KIB, 4 << 20), r.between(2, 2 + steps / 20));
    let mut garbage = Vec::new();
    for s in 0..steps {
        m.step(t, s);
        garbage.push(t.alloc(bytes, false, "leak.py", 8));
        if s % every == every - 1 && s < steps / 2 {
            garbage.drain(..).for_each(|b| t.free(b));
        }
        t.mark();
    }
}

/// A new adapter for each task, none of which is taken away.
fn adapters(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let every = r.between(1, (steps / 7).max(1));
    for s in 0..steps {
        if s % every == 0 {
            t.alloc(m.bytes, false, "leak.py", 33);
            (0..2).for_each(|i| {
                t.alloc(m.bytes, false, "adamw.py", 17 + i);
            });
        }
        m.step(t, s);
        t.mark();
    }
}

/// A line that filled a table long ago, and leaks now.
fn after_a_cache(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, n) = (size(r, 4 * KIB, 4 << 20), r.between(1, 1 + steps / 8));
    for s in 0..steps {
        m.step(t, s);
        if s < n || s >= steps / 2 {
            t.alloc(bytes, false, "leak.py", 8);
        }
        t.mark();
    }
}

/// The plainest of all.
fn every_batch(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, side) = (size(r, 4 * KIB, 4 << 20), r.yes(0.3));
    for s in 0..steps {
        m.step(t, s);
        t.alloc(bytes, side, "leak.py", 8);
        t.mark();
    }
}
