//! Healthy jobs of other shapes than `synthetic.py` draws, each from its seed: what fills, warms, grows with its input or
//! begins late, and is no leak.

use crate::random::Random;
use crate::synthetic::{Drawn, Live, Tape};
use crate::unseen;
use std::collections::VecDeque;

/// A kind of job: its name, and how one is drawn.
pub(crate) type Shape = (&'static str, fn(&mut Random, &mut Tape, u64));

/// All of them.
pub(crate) const SHAPES: [Shape; 9] = [
    ("rollouts", rollouts),
    ("curriculum", curriculum),
    ("offload", offload),
    ("finetune", finetune),
    ("adversarial", unseen::adversarial),
    ("pipeline", unseen::pipeline),
    ("recompiled", unseen::recompiled),
    ("serving", unseen::serving),
    ("pictures", unseen::pictures),
];

/// The job of a shape and a seed.
pub(crate) fn draw(shape: Shape, seed: u64) -> Drawn {
    let mut r = Random::new(seed);
    let steps = r.choice(&[12u64, 20, 40, 80, 160, 300]);
    let mut t = Tape::new();
    shape.1(&mut r, &mut t, steps);
    Drawn { steps, leak: None, names: t.names, items: t.items }
}

const MIB: u64 = 1 << 20;

fn free_all(t: &mut Tape, blocks: impl IntoIterator<Item = Live>) {
    blocks.into_iter().for_each(|b| t.free(b));
}

/// What an optimizer makes when it steps for the first time.
fn state(t: &mut Tape, layers: u64, bytes: u64) {
    for _ in 0..layers {
        t.alloc(bytes, false, "adamw.py", 17);
    }
}

/// Forward and backward of one microbatch: activations that backward frees in turn, gradients that stay where asked.
fn microbatch(r: &mut Random, t: &mut Tape, layers: u64, bytes: u64) -> Vec<Live> {
    let mut saved = Vec::new();
    for i in 0..layers as u32 {
        saved.push(t.alloc(bytes + 512 * r.between(0, 7), false, "model.py", 50 + i));
        let scratch = t.alloc(bytes / 2 + 512, false, "model.py", 90);
        t.free(scratch);
    }
    let mut gradients = Vec::new();
    for a in saved.into_iter().rev() {
        gradients.push(t.alloc(bytes, false, "", 0));
        t.free(a);
    }
    gradients
}

/// Key `k` of `n`, the first ones asked for most often.
fn popular(r: &mut Random, n: u64) -> u64 {
    let x = (n as f64 + 1.0).powf(r.unit());
    (x as u64).clamp(1, n) - 1
}

/// Reinforcement learning: key/value caches that grow token by token and go with their sequence, a window of past rollouts,
/// a reference model that is brought in now and then.
fn rollouts(r: &mut Random, t: &mut Tape, steps: u64) {
    let (layers, base) = (r.between(4, 16), 1u64 << r.between(17, 22));
    let weights = |t: &mut Tape, line: u32| -> Vec<Live> {
        (0..layers).map(|i| t.alloc(base * 2, false, "model.py", line + i as u32)).collect()
    };
    weights(t, 10);
    let (window, every) = (r.between(2, 24), r.between(3, 20));
    let stays = r.yes(0.5);
    let mut past: VecDeque<Vec<Live>> = VecDeque::new();
    let mut prefixes = vec![None; r.between(4, 40) as usize];
    for s in 0..steps {
        // A prefix cache, asked for by popularity.
        let k = popular(r, prefixes.len() as u64) as usize;
        if prefixes[k].is_none() {
            prefixes[k] = Some(t.alloc(2 * MIB, false, "prefix.py", 14));
        }
        // Longer answers as training goes on.
        let tokens = r.between(2, 6 + 20 * s / steps);
        let mut keys: Vec<Option<Live>> = vec![None; layers as usize];
        for n in 1..=tokens {
            for (i, slot) in keys.iter_mut().enumerate() {
                let longer = t.alloc(n * (base / 8).max(512), false, "kv.py", 30 + i as u32);
                slot.replace(longer).into_iter().for_each(|b| t.free(b));
            }
        }
        let answers: Vec<Live> = (0..4).map(|_| t.alloc(tokens * 64 * 1024, false, "buffer.py", 8)).collect();
        past.push_back(answers);
        if past.len() as u64 > window {
            free_all(t, past.pop_front().into_iter().flatten());
        }
        free_all(t, keys.into_iter().flatten());
        let reference = (s % every == every - 1).then(|| weights(t, 200));
        for _ in 0..r.between(1, 3) {
            let g = microbatch(r, t, layers, base * tokens / 8 + 512);
            free_all(t, g);
        }
        free_all(t, reference.into_iter().flatten());
        if s == 1 && stays {
            state(t, layers, base * 4);
        }
        t.mark();
    }
}

/// A curriculum: inputs get longer in stages, and with them the workspaces of each shape and the tables of positions; the
/// number of microbatches changes midway; a moving average of the weights begins late.
fn curriculum(r: &mut Random, t: &mut Tape, steps: u64) {
    let (layers, base) = (r.between(4, 24), 1u64 << r.between(16, 22));
    for i in 0..layers {
        t.alloc(base * 2, false, "model.py", 10 + i as u32);
    }
    let stages = r.between(2, 8);
    let (average_from, change_at) = (r.between(1, steps - 1), r.between(1, steps - 1));
    let (before, after) = (r.between(1, 4), r.between(1, 8));
    let mut known: Vec<u64> = Vec::new();
    let (mut positions, mut workspace): (Option<Live>, Option<Live>) = (None, None);
    for s in 0..steps {
        let stage = s * stages / steps + 1;
        // Lengths vary within a stage, in multiples.
        let length = stage * 8 - r.between(0, 3);
        if !known.contains(&length) {
            known.push(length);
            // A plan for this shape, kept; the workspace is replaced by a larger one.
            t.alloc(64 * 1024, false, "plans.py", 41);
            let longest = known.iter().max() == Some(&length);
            if longest {
                let new = t.alloc(MIB * length, false, "workspace.py", 22);
                workspace.replace(new).into_iter().for_each(|b| t.free(b));
                let new = t.alloc(MIB * length / 4, false, "rope.py", 9);
                positions.replace(new).into_iter().for_each(|b| t.free(b));
            }
        }
        let mut sums = Vec::new();
        for m in 0..if s < change_at { before } else { after } {
            let g = microbatch(r, t, layers, base * length / 8);
            // The first microbatch's gradients are added to.
            if m == 0 { sums = g } else { free_all(t, g) }
        }
        free_all(t, sums);
        if s == 0 {
            state(t, layers, base * 4);
        }
        if s == average_from {
            for i in 0..layers as u32 {
                t.alloc(base * 2, false, "ema.py", 30 + i);
            }
        }
        t.mark();
    }
}

/// Streams beside: a loader that prefetches, deeper from some step on; activations that go out and come back; an evaluation
/// every k steps on ever more data, whose results are gathered until it ends; a copy for the checkpoint every n steps.
fn offload(r: &mut Random, t: &mut Tape, steps: u64) {
    let (layers, base) = (r.between(4, 24), 1u64 << r.between(16, 23));
    for i in 0..layers {
        t.alloc(base * 2, false, "model.py", 10 + i as u32);
    }
    let (shallow, deep, deeper_at) = (r.between(1, 6), r.between(2, 12), r.between(1, steps));
    let (every, save) = (r.between(3, 25), r.between(5, 40));
    let mut queue: VecDeque<Live> = VecDeque::new();
    let mut flight: Vec<(u64, Live)> = Vec::new();
    let mut staged: Vec<Live> = Vec::new();
    let mut scores: VecDeque<Live> = VecDeque::new();
    let window = r.between(4, 100);
    for s in 0..steps {
        let depth = if s < deeper_at { shallow } else { shallow.max(deep) };
        // One more than is used, until the queue is full.
        for _ in 0..if (queue.len() as u64) < depth { 2 } else { 1 } {
            queue.push_back(t.alloc(base * r.between(1, 2), true, "loader.py", 31));
        }
        queue.pop_front().into_iter().for_each(|b| t.free(b));
        for i in 0..r.between(1, layers) {
            flight.push((s + r.between(0, 3), t.alloc(base, true, "offload.py", 60 + i as u32)));
        }
        let g = microbatch(r, t, layers, base);
        free_all(t, g);
        flight.iter().filter(|f| f.0 <= s).for_each(|f| t.free(f.1));
        flight.retain(|f| f.0 > s);
        scores.push_back(t.alloc(512, false, "metrics.py", 5));
        if scores.len() as u64 > window {
            scores.pop_front().into_iter().for_each(|b| t.free(b));
        }
        if s % every == every - 1 {
            let batches = 4 + s / every;
            let gathered: Vec<Live> = (0..batches).map(|_| t.alloc(base, false, "evaluate.py", 20)).collect();
            free_all(t, gathered);
        }
        // The copy is written out while the next steps run.
        if s % save == save - 1 {
            staged = (0..layers).map(|_| t.alloc(base * 2, true, "checkpoint.py", 77)).collect();
        } else if s % save == 2 {
            free_all(t, staged.drain(..));
        }
        t.mark();
    }
}

/// Fine-tuning: layers thawed one by one, each with its optimizer state; adapters merged into copies for an evaluation;
/// adapters of many tenants kept by use; two optimizers; now and then a step that fails and is done again.
fn finetune(r: &mut Random, t: &mut Tape, steps: u64) {
    let (layers, base) = (r.between(4, 24), 1u64 << r.between(16, 22));
    for i in 0..layers {
        t.alloc(base * 2, false, "model.py", 10 + i as u32);
    }
    let (every, merge) = (r.between(1, 12), r.between(4, 30));
    let (kept, tenants) = (r.between(4, 32) as usize, r.between(8, 200));
    let mut thawed = 0;
    let mut recent: VecDeque<(u64, Live)> = VecDeque::new();
    for s in 0..steps {
        if s % every == 0 && thawed < layers {
            thawed += 1;
            t.alloc(base * 2, false, "adamw.py", 17);
            t.alloc(base * 2, false, "adamw.py", 18);
        }
        let who = popular(r, tenants);
        match recent.iter().position(|e| e.0 == who) {
            Some(i) => {
                let e = recent.remove(i).expect("it was just found");
                recent.push_back(e);
            }
            None => recent.push_back((who, t.alloc(MIB, false, "adapters.py", 63))),
        }
        if recent.len() > kept {
            recent.pop_front().into_iter().for_each(|e| t.free(e.1));
        }
        let times = if r.yes(0.05) { 2 } else { 1 };
        for _ in 0..times {
            let bytes = base * r.between(4, 12) / 8;
            let g = microbatch(r, t, thawed, bytes);
            free_all(t, g);
        }
        if s % merge == merge - 1 {
            let merged: Vec<Live> =
                (0..layers).map(|i| t.alloc(base * 2, false, "merge.py", 5 + i as u32)).collect();
            for _ in 0..r.between(2, 12) {
                let logits = t.alloc(base * 4, false, "evaluate.py", 20);
                t.free(logits);
            }
            free_all(t, merged);
        }
        t.mark();
    }
}
