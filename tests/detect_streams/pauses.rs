//! What comes in turns with long breaks: leaks that pause and go on, copies of each round, rates that fall, what is left of each cycle. And
//! healthy jobs that look like them until they are full, or let go of what is old.

use crate::fills::{Model, size};
use crate::healthy::Shape;
use crate::random::Random;
use crate::synthetic::{Live, Tape};
use std::collections::VecDeque;

/// Healthy ones.
pub(crate) const SHAPES: [Shape; 4] =
    [("phases", phases), ("last copies", last_copies), ("slower table", slower_table), ("cycles", cycles)];

/// Leaks: lines of `leak.py`.
pub(crate) const LEAKS: [Shape; 4] =
    [("pauses", pauses), ("copies", copies), ("rate that falls", rate_that_falls), ("residue", residue)];

const KIB: u64 = 1 << 10;

/// Phases of a job and the breaks between them: each as long as the others, or about so.
struct Turns {
    works: u64,
    rests: u64,
    is_even: bool,
    /// Steps that are left of this one; and whether it works.
    left: u64,
    on: bool,
}

impl Turns {
    fn new(r: &mut Random, steps: u64) -> Turns {
        let works = r.between(4, 4 + steps / 8);
        let rests = r.between(4, 4 + steps / 6);
        Turns { works, rests, is_even: r.yes(0.5), left: works, on: true }
    }

    fn next(&mut self, r: &mut Random) -> bool {
        if self.left == 0 {
            self.on = !self.on;
            let mean = if self.on { self.works } else { self.rests };
            self.left = if self.is_even { mean } else { r.between(mean.div_ceil(2), mean + mean / 2) };
        }
        self.left -= 1;
        self.on
    }
}

/// A line of which what is made in a phase is kept, up to `most` blocks; beyond it the oldest goes, or nothing more is kept.
fn turns(
    r: &mut Random,
    t: &mut Tape,
    steps: u64,
    file: &'static str,
    most: impl Fn(&mut Random, &Turns) -> u64,
) {
    let m = Model::new(r, t);
    let bytes = size(r, 4 * KIB, 4 << 20);
    let mut turns = Turns::new(r, steps);
    let (runs_always, drops, most) = (r.yes(0.5), r.yes(0.5), most(r, &turns));
    let mut kept: VecDeque<Live> = VecDeque::new();
    for s in 0..steps {
        let on = turns.next(r);
        let x = (on || runs_always).then(|| t.alloc(bytes, false, file, 41));
        m.step(t, s);
        if on && (drops || (kept.len() as u64) < most) {
            kept.extend(x);
        } else {
            x.into_iter().for_each(|x| t.free(x));
        }
        if kept.len() as u64 > most {
            kept.pop_front().into_iter().for_each(|x| t.free(x));
        }
        t.mark();
    }
}

/// Kept in phases, with breaks between them.
fn pauses(r: &mut Random, t: &mut Tape, steps: u64) {
    turns(r, t, steps, "leak.py", |_, _| u64::MAX);
}

/// A buffer that is filled in phases, until it is full.
fn phases(r: &mut Random, t: &mut Tape, steps: u64) {
    turns(r, t, steps, "phases.py", |r, turns| {
        let all = steps * turns.works / (turns.works + turns.rests);
        r.between(4, 4 + all * 3 / 2)
    });
}

/// Keeps these, and of what was kept before the last so many.
fn keep(t: &mut Tape, past: &mut VecDeque<Vec<Live>>, these: Vec<Live>, last: usize) {
    past.push_back(these);
    if past.len() > last {
        past.pop_front().into_iter().flatten().for_each(|x| t.free(x));
    }
}

/// In each round some clients get a copy of the model each, at once or one after the other, which lives until the next round; and one copy of each
/// of the last rounds is kept.
fn rounds(r: &mut Random, t: &mut Tape, steps: u64, file: &'static str, last: usize) {
    let m = Model::new(r, t);
    let (bytes, layers, clients) = (size(r, 4 * KIB, 4 << 20), r.between(1, 6), r.between(0, 4));
    let (every, in_turn) = (r.between(2, (steps / 8).max(3)), r.yes(0.5));
    let (mut past, mut now): (VecDeque<Vec<Live>>, Vec<Live>) = (VecDeque::new(), Vec::new());
    for s in 0..steps {
        if s % every == 0 {
            now.drain(..).for_each(|x| t.free(x));
            let kept = (0..layers).map(|_| t.alloc(bytes, false, file, 153)).collect();
            keep(t, &mut past, kept, last);
        }
        let begins = |client: u64| if in_turn { client * every / clients } else { 0 };
        for _ in (0..clients).filter(|client| begins(*client) == s % every) {
            now.extend((0..layers).map(|_| t.alloc(bytes, false, file, 153)));
        }
        m.step(t, s);
        t.mark();
    }
}

/// One copy of each round is kept.
fn copies(r: &mut Random, t: &mut Tape, steps: u64) {
    rounds(r, t, steps, "leak.py", usize::MAX);
}

/// One copy of each of the last rounds.
fn last_copies(r: &mut Random, t: &mut Tape, steps: u64) {
    let last = r.between(1, 8) as usize;
    rounds(r, t, steps, "copies.py", last);
}

/// One in each step, and later one in so many, up to `most`.
fn slower(r: &mut Random, t: &mut Tape, steps: u64, file: &'static str, most: u64) {
    let m = Model::new(r, t);
    let bytes = size(r, 4 * KIB, 4 << 20);
    let (part, every) = (r.between(3, 12), r.between(4, 12));
    let (is_by_chance, mut kept) = (r.yes(0.5), 0);
    for s in 0..steps {
        m.step(t, s);
        let comes = if is_by_chance { r.yes(1.0 / every as f64) } else { s % every == 0 };
        if (s < steps / part || comes) && kept < most {
            t.alloc(bytes, false, file, 8);
            kept += 1;
        }
        t.mark();
    }
}

/// A leak at each step, and later at one in many.
fn rate_that_falls(r: &mut Random, t: &mut Tape, steps: u64) {
    slower(r, t, steps, "leak.py", u64::MAX);
}

/// A table that fills as fast, then slowly, and is full in the end.
fn slower_table(r: &mut Random, t: &mut Tape, steps: u64) {
    let most = r.between(4, 4 + steps / 2);
    slower(r, t, steps, "table.py", most);
}

/// What is made in a cycle goes at its end, but for a few of it; `last`: of so many cycles.
fn cleared(r: &mut Random, t: &mut Tape, steps: u64, file: &'static str, last: usize) {
    let m = Model::new(r, t);
    let bytes = size(r, 4 * KIB, 4 << 20);
    let cycle = r.between(3, (steps / 8).max(4));
    let stay = r.between(1, (cycle / 2).max(1));
    let (mut past, mut now): (VecDeque<Vec<Live>>, Vec<Live>) = (VecDeque::new(), Vec::new());
    for s in 0..steps {
        m.step(t, s);
        now.push(t.alloc(bytes, false, file, 8));
        if s % cycle == cycle - 1 {
            let stays: Vec<Live> =
                (0..stay).map(|_| now.swap_remove(r.between(0, now.len() as u64 - 1) as usize)).collect();
            now.drain(..).for_each(|x| t.free(x));
            keep(t, &mut past, stays, last);
        }
        t.mark();
    }
}

/// A few of each cycle stay.
fn residue(r: &mut Random, t: &mut Tape, steps: u64) {
    cleared(r, t, steps, "leak.py", usize::MAX);
}

/// The few of the last cycles, as the best ones.
fn cycles(r: &mut Random, t: &mut Tape, steps: u64) {
    let last = r.between(1, 4) as usize;
    cleared(r, t, steps, "best.py", last);
}
