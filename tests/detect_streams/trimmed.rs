//! A window that is trimmed now and then, whose line made something once that stays; a queue that is served for long before it is not; and what is
//! kept in bursts.

use crate::fills::{Model, size};
use crate::random::Random;
use crate::synthetic::{Live, Tape};
use std::collections::VecDeque;

const KIB: u64 = 1 << 10;

/// Outputs of the last steps. Beyond so many the oldest go, some at once. The line has its workspace from the first step on, or its first output
/// has another name that stays.
pub(crate) fn trimmed(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let bytes = size(r, 4 * KIB, 4 << 20);
    let (most, every) = (r.between(8, 8 + steps / 3), r.choice(&[1u64, 1, 1, 2]));
    let goes = r.between(1, most);
    if r.yes(0.7) {
        t.alloc(r.choice(&[bytes, 8_519_680]), false, "window.py", 10);
    }
    let mut window: VecDeque<Live> = VecDeque::new();
    for s in 0..steps {
        m.step(t, s);
        if s % every == 0 {
            window.push_back(t.alloc(bytes, false, "window.py", 10));
        }
        if window.len() as u64 > most {
            window.drain(..goes as usize).for_each(|b| t.free(b));
        }
        t.mark();
    }
}

/// A queue that is served at once for half of the job, and then too rarely.
pub(crate) fn late_backlog(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, waits) = (size(r, 4 * KIB, 4 << 20), r.between(0, 6) as usize);
    let (begins, misses) = (steps / r.between(3, 8), r.between(2, 4));
    let mut queue = VecDeque::new();
    for s in 0..steps {
        queue.push_back(t.alloc(bytes, true, "leak.py", 31));
        m.step(t, s);
        if queue.len() > waits && (s < begins || s % misses != 0) {
            queue.pop_front().into_iter().for_each(|b| t.free(b));
        }
        t.mark();
    }
}

/// Some batches of each round are kept, and none of the others.
fn rounds(r: &mut Random, t: &mut Tape, steps: u64, file: &'static str, last: u64) {
    let m = Model::new(r, t);
    let bytes = size(r, 4 * KIB, 4 << 20);
    let every = r.between(15, 40);
    let kept = r.between(3, every * 3 / 4);
    for s in 0..steps {
        let x = t.alloc(bytes, false, file, 41);
        m.step(t, s);
        if s % every >= kept || s >= last {
            t.free(x);
        }
        t.mark();
    }
}

/// The first batches of each epoch stay, to the end.
pub(crate) fn bursts(r: &mut Random, t: &mut Tape, steps: u64) {
    rounds(r, t, steps, "leak.py", steps);
}

/// The same in the first two rounds or three: what is made then is used again.
pub(crate) fn first_rounds(r: &mut Random, t: &mut Tape, steps: u64) {
    rounds(r, t, steps, "rounds.py", steps / 4);
}
