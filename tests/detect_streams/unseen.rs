//! More healthy jobs, written by somebody who had not read the rules that judge them: what real training does that neither
//! `synthetic.py` nor `healthy.rs` draws.

use crate::random::Random;
use crate::synthetic::{Live, Tape};
use std::collections::VecDeque;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

fn free_all(t: &mut Tape, blocks: impl IntoIterator<Item = Live>) {
    blocks.into_iter().for_each(|b| t.free(b));
}

/// Between `low` and `high`, each power of two as likely as the others.
fn size(r: &mut Random, low: u64, high: u64) -> u64 {
    r.uniform((low as f64).ln(), (high as f64).ln()).exp() as u64
}

/// What is held from the beginning: parameters.
fn weights(t: &mut Tape, n: u64, bytes: u64, file: &'static str) {
    for i in 0..n as u32 {
        t.alloc(bytes, false, file, 10 + i);
    }
}

/// What an optimizer makes when it steps for the first time.
fn state(t: &mut Tape, n: u64, bytes: u64) {
    for _ in 0..n {
        t.alloc(bytes, false, "adamw.py", 17);
    }
}

/// Forward and backward; the gradients stay with the caller.
fn train(r: &mut Random, t: &mut Tape, layers: u64, bytes: u64, file: &'static str) -> Vec<Live> {
    let saved: Vec<Live> =
        (0..layers as u32).map(|i| t.alloc(bytes + 512 * r.between(0, 15), false, file, 100 + i)).collect();
    let mut gradients = Vec::new();
    for a in saved.into_iter().rev() {
        gradients.push(t.alloc(bytes / 2 + 512, false, "", 0));
        t.free(a);
    }
    gradients
}

/// A GAN: two optimizers that take turns, an average of the generator that begins late, grids of samples kept for the last
/// few logs, metrics that are gathered through an epoch and then reset, whose first one may be longer than the run.
pub(crate) fn adversarial(r: &mut Random, t: &mut Tape, steps: u64) {
    let (layers, base) = (r.between(3, 20), size(r, 64 * KIB, 16 * MIB));
    weights(t, layers, base, "generator.py");
    weights(t, layers, base, "critic.py");
    let (every, average_from) = (r.between(1, 5), r.between(1, steps));
    let (grid_every, grids) = (r.between(1, 20), r.between(1, 16));
    let epoch = r.choice(&[7, 25, 50, 100, 250, 500]);
    let gathered: Vec<u64> = (0..r.between(1, 6)).map(|_| size(r, 512, 200 * KIB)).collect();
    let mut kept: VecDeque<Live> = VecDeque::new();
    let mut metrics: Vec<Live> = Vec::new();
    let mut states = [false; 2];
    for s in 0..steps {
        let critic = train(r, t, layers, base, "critic.py");
        free_all(t, critic);
        let generator = s % every == every - 1;
        if generator {
            let g = train(r, t, layers, base, "generator.py");
            free_all(t, g);
        }
        for (i, due) in [true, generator].into_iter().enumerate() {
            if due && !std::mem::replace(&mut states[i], true) {
                state(t, 2 * layers, base);
            }
        }
        if s == average_from {
            weights(t, layers, base, "ema.py");
        }
        for (i, bytes) in gathered.iter().enumerate() {
            metrics.push(t.alloc(*bytes, false, "metrics.py", 5 + i as u32));
        }
        if s % epoch == epoch - 1 {
            // What an epoch gathered is put together, and let go of.
            let all = t.alloc(gathered.iter().sum::<u64>() * epoch, false, "metrics.py", 40);
            free_all(t, metrics.drain(..));
            t.free(all);
        }
        if s % grid_every == 0 {
            kept.push_back(t.alloc(size(r, 3, 3) * MIB, false, "samples.py", 8));
            if kept.len() as u64 > grids {
                kept.pop_front().into_iter().for_each(|b| t.free(b));
            }
        }
        t.mark();
    }
}

/// A stage of a pipeline: activations of several microbatches in flight within a step, whose number is ramped up; buffers to
/// send and receive on streams of their own, made when a shape is first seen; experts whose load shifts, so that buffers of
/// larger capacity replace smaller ones; buckets that are rebuilt after the first step.
pub(crate) fn pipeline(r: &mut Random, t: &mut Tape, steps: u64) {
    let (layers, base) = (r.between(2, 16), size(r, 64 * KIB, 16 * MIB));
    weights(t, layers, 2 * base, "stage.py");
    let mut buckets: Vec<Live> = (0..r.between(1, 8)).map(|_| t.alloc(base, true, "reducer.py", 7)).collect();
    let (depth, most, ramp) = (r.between(1, 6), r.between(1, 12), r.between(1, steps));
    let experts = r.choice(&[0u64, 0, 4, 16, 64]);
    let mut capacity: Vec<(u64, Option<Live>)> = vec![(0, None); experts as usize];
    let mut load: Vec<f64> = (0..experts).map(|_| r.uniform(0.5, 1.5)).collect();
    let mut channel: Vec<Live> = Vec::new();
    for s in 0..steps {
        let microbatches = (1 + (most - 1) * s.min(ramp) / ramp).max(1);
        let mut flying: VecDeque<Vec<Live>> = VecDeque::new();
        for m in 0..microbatches {
            if (channel.len() as u64) < 2 * microbatches.min(depth) {
                channel.push(t.alloc_on(base, 2 + m % 2, "p2p.py", 12));
            }
            let saved =
                (0..layers as u32).map(|i| t.alloc(base + 512 * r.between(0, 7), false, "stage.py", 100 + i));
            flying.push_back(saved.collect());
            if flying.len() as u64 >= depth {
                free_all(t, flying.pop_front().into_iter().flatten());
            }
        }
        for (e, (room, buffer)) in capacity.iter_mut().enumerate() {
            load[e] = (load[e] * r.uniform(0.93, 1.07)).clamp(0.1, 3.0);
            let wanted = ((load[e] * 8.0).ceil() as u64) * (base / 8).max(512);
            if wanted > *room {
                let new = t.alloc(wanted, false, "experts.py", 60);
                buffer.replace(new).into_iter().for_each(|b| t.free(b));
                *room = wanted;
            }
        }
        while let Some(f) = flying.pop_front() {
            let gradients: Vec<Live> = f.iter().map(|_| t.alloc(base, false, "", 0)).collect();
            free_all(t, f);
            free_all(t, gradients);
        }
        if s == 0 {
            let old = std::mem::take(&mut buckets);
            buckets = old.iter().map(|_| t.alloc(base, true, "reducer.py", 9)).collect();
            free_all(t, old);
            state(t, layers, 4 * base);
        }
        t.mark();
    }
}

/// Programs compiled anew for new shapes, each with its constants and the workspace that was tried out for it, up to a limit
/// of the compiler; a length that grows through the whole run; masks kept by length, of which the least used goes; a
/// checkpoint that is copied out on a stream of its own while training goes on, and may still run when the next begins, but
/// not when the one after that does.
pub(crate) fn recompiled(r: &mut Random, t: &mut Tape, steps: u64) {
    let (layers, base) = (r.between(4, 24), size(r, 32 * KIB, 4 * MIB));
    weights(t, layers, 2 * base, "model.py");
    let limit = r.choice(&[8usize, 16, 64]);
    let (shapes, constant) = (r.between(1, 80), size(r, 4 * KIB, MIB));
    let (masks_kept, every, takes) = (r.between(2, 30) as usize, r.between(4, 60), r.between(1, 25));
    let grows = r.yes(0.5);
    let mut compiled: Vec<u64> = Vec::new();
    let mut masks: VecDeque<(u64, Live)> = VecDeque::new();
    let mut table: Option<Live> = None;
    let mut saves: Vec<(u64, Vec<Live>)> = Vec::new();
    for s in 0..steps {
        let length = if grows { 16 + 64 * s / steps } else { 16 + r.between(1, shapes) };
        if !compiled.contains(&length) && compiled.len() < limit {
            compiled.push(length);
            let tried: Vec<Live> =
                (0..4).map(|_| t.alloc(base * r.between(1, 4), false, "autotune.py", 31)).collect();
            free_all(t, tried);
            for i in 0..r.between(1, 6) as u32 {
                t.alloc(constant, false, "inductor.py", 70 + i);
            }
        }
        match masks.iter().position(|m| m.0 == length) {
            Some(i) => {
                let m = masks.remove(i).expect("just found");
                masks.push_back(m);
            }
            None => masks.push_back((length, t.alloc(length * length * 512, false, "mask.py", 14))),
        }
        if masks.len() > masks_kept {
            masks.pop_front().into_iter().for_each(|m| t.free(m.1));
        }
        if table.is_none_or(|b| b.1 < length * 4096) {
            let new = t.alloc(length * 4096, false, "rope.py", 9);
            table.replace(new).into_iter().for_each(|b| t.free(b));
        }
        for _ in 0..r.choice(&[1, 1, 2, 4]) {
            let g = train(r, t, layers, base * length / 16, "model.py");
            free_all(t, g);
        }
        if s == 0 {
            state(t, layers, 4 * base);
        }
        if s % every == every - 1 {
            if saves.len() > 1 {
                free_all(t, saves.remove(0).1);
            }
            let copies = (0..layers).map(|_| t.alloc_on(2 * base, 3, "checkpoint.py", 77)).collect();
            saves.push((s + takes + r.between(0, 3), copies));
        }
        for (_, copies) in saves.extract_if(.., |c| c.0 <= s) {
            free_all(t, copies);
        }
        t.mark();
    }
}

/// Answers generated beside training: requests come and go, with ever more of them up to what is allowed at once, a few of
/// them very long; each holds pages for its keys until it ends. Weights are sent over now and then; a replay buffer of
/// what was answered fills up to its size.
pub(crate) fn serving(r: &mut Random, t: &mut Tape, steps: u64) {
    let (layers, base) = (r.between(2, 12), size(r, 64 * KIB, 2 * MIB));
    weights(t, layers, 2 * base, "actor.py");
    weights(t, layers, 2 * base, "engine.py");
    let (page, at_once) = (size(r, 16 * KIB, 512 * KIB), r.between(4, 48) as usize);
    let (typical, warm) = (r.uniform(2.0, 12.0), r.between(1, steps));
    let (kept, entry) = (r.between(8, 300) as usize, size(r, 4 * KIB, MIB));
    let sync = r.between(2, 30);
    let mut running: Vec<(u64, Vec<Live>)> = Vec::new();
    let mut replay: VecDeque<Live> = VecDeque::new();
    for s in 0..steps {
        let allowed = 1 + at_once * (s.min(warm) as usize) / warm as usize;
        while running.len() < allowed {
            // Lengths have a heavy tail.
            let length = (typical * r.exponential(1.0).exp().min(40.0)) as u64;
            running.push((s + length.max(1), Vec::new()));
        }
        for (_, pages) in &mut running {
            pages.push(t.alloc(page, false, "pages.py", 21));
        }
        for (_, pages) in running.extract_if(.., |q| q.0 <= s) {
            free_all(t, pages);
            replay.push_back(t.alloc(entry, false, "replay.py", 33));
            if replay.len() > kept {
                replay.pop_front().into_iter().for_each(|b| t.free(b));
            }
        }
        for _ in 0..r.between(1, 3) {
            let g = train(r, t, layers, base, "actor.py");
            free_all(t, g);
        }
        if s == 1 {
            state(t, layers, 4 * base);
        }
        if s % sync == 0 {
            let sent: Vec<Live> = (0..layers).map(|_| t.alloc_on(2 * base, 2, "weights.py", 50)).collect();
            free_all(t, sent);
        }
        t.mark();
    }
}

/// Pictures of many sizes: activations that go to the host and come back on two streams, the last of a step in the next one;
/// a data set that is kept on the card as it is first read, until all of it is; statistics in a window; a memory bank for
/// contrast; cycles that a collector ends now and then; results of a long evaluation gathered over many marks.
pub(crate) fn pictures(r: &mut Random, t: &mut Tape, steps: u64) {
    let (layers, base) = (r.between(3, 24), size(r, 64 * KIB, 16 * MIB));
    weights(t, layers, base, "backbone.py");
    let (batch, batches) = (size(r, 4 * KIB, MIB), r.between(5, 200));
    let (bank, window) = (r.between(8, 120) as usize, r.between(2, 100) as usize);
    let (every, lasts) = (r.between(20, 120), r.between(3, 15));
    let (collects, cyclic) = (r.uniform(0.01, 0.2), size(r, 4 * KIB, MIB));
    let mut held: [VecDeque<Live>; 2] = Default::default();
    let (mut late, mut cycles, mut scores) = (Vec::new(), Vec::new(), Vec::new());
    for s in 0..steps {
        if s < batches {
            t.alloc(batch, false, "dataset.py", 19);
        }
        if s % every < lasts && s >= every {
            // An evaluation: its batches count as steps, too.
            let logits = t.alloc(base, false, "backbone.py", 300);
            scores.push(t.alloc(64 * KIB, false, "evaluate.py", 25));
            t.free(logits);
            if s % every == lasts - 1 {
                free_all(t, scores.drain(..));
            }
            t.mark();
            continue;
        }
        let scale = r.uniform(0.3, 2.0);
        let bytes = (base as f64 * scale) as u64 + 512;
        let back: Vec<Live> = (0..layers as u32)
            .map(|i| t.alloc_on(bytes, 2 + u64::from(i % 2), "offload.py", 60 + i))
            .collect();
        free_all(t, std::mem::take(&mut late));
        let g = train(r, t, layers, bytes, "backbone.py");
        free_all(t, g);
        let stays = r.between(0, 2).min(back.len() as u64) as usize;
        for (i, b) in back.into_iter().enumerate() {
            if i < stays { late.push(b) } else { t.free(b) }
        }
        for (i, (n, bytes)) in [(bank, MIB), (window, 2 * KIB)].into_iter().enumerate() {
            held[i].push_back(t.alloc(bytes, false, "memory.py", 70 + i as u32));
            if held[i].len() > n {
                held[i].pop_front().into_iter().for_each(|b| t.free(b));
            }
        }
        cycles.push(t.alloc(cyclic, false, "boxes.py", 44));
        if r.yes(collects) {
            free_all(t, cycles.drain(..));
        }
        if s == 0 {
            state(t, layers, 2 * base);
        }
        t.mark();
    }
}
