//! A window that is trimmed now and then, whose line made something once that stays; a queue that is served for long before it is not; and what is
//! kept in bursts.

use crate::fills::{Model, size};
use crate::random::Random;
use crate::seen::Seen;
use crate::synthetic::{Drawn, Live, Tape};
use std::collections::VecDeque;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

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

/// The best outputs of all, or a sample of them: as many as there are places, then each one takes the place of the worst or of any, or finds none.
/// The last output has a name of its own until the next one.
pub(crate) fn best(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, places) = (size(r, 4 * KIB, 4 << 20), r.between(3, 4 + steps / 4) as usize);
    let (way, is_named) = (r.between(0, 2), r.yes(0.6));
    let (mut kept, mut loose): (Vec<(f64, Live)>, Vec<Live>) = (Vec::new(), Vec::new());
    for s in 0..steps {
        m.step(t, s);
        kept.push((r.unit(), t.alloc(bytes, false, "best.py", 10)));
        loose.drain(..).for_each(|b| t.free(b));
        if kept.len() > places {
            let worst = (0..kept.len()).min_by(|a, b| kept[*a].0.total_cmp(&kept[*b].0)).unwrap_or(0);
            let any = r.below(places as u32) as usize;
            let goes = match way {
                0 => worst,
                1 => any,
                _ if r.yes(places as f64 / (s + 1) as f64) => any,
                _ => places,
            };
            let gone = kept.swap_remove(goes).1;
            let waits = is_named && goes == places;
            if waits { loose.push(gone) } else { t.free(gone) }
        }
        t.mark();
    }
}

/// A pool of at most so many: some come, and when it is full any of them goes; or any goes now and then, the more often the fuller it is.
pub(crate) fn pool(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let (bytes, comes) = (size(r, 4 * KIB, 4 << 20), r.choice(&[1.0, 0.6, 0.3, 0.2, 0.1]));
    let places = r.between(4, 4 + (steps as f64 * comes / 4.0) as u64) as usize;
    let is_evicted = r.yes(0.5);
    let mut pool: Vec<Live> = Vec::new();
    for s in 0..steps {
        m.step(t, s);
        if r.yes(comes) && (is_evicted || pool.len() < places) {
            pool.push(t.alloc(bytes, false, "pool.py", 10));
        }
        let goes =
            if is_evicted { pool.len() > places } else { r.yes(comes * pool.len() as f64 / places as f64) };
        if goes && !pool.is_empty() {
            let any = r.below(pool.len() as u32) as usize;
            t.free(pool.swap_remove(any));
        }
        t.mark();
    }
}

/// A cache of a few places, from which what was asked for least often goes: some keys are asked for again and again, and stay for ever.
pub(crate) fn hot(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let mut cache: Vec<(u64, Live)> = Vec::new();
    let mut asked = [0u64; 300];
    for s in 0..steps {
        m.step(t, s);
        let key = (1.0 / r.unit().max(1e-3).powf(1.0 / 0.7)) as u64 % 300;
        asked[key as usize] += 1;
        if !cache.iter().any(|(k, _)| *k == key) {
            if cache.len() == 16 {
                let least = (0..16).min_by_key(|i| asked[cache[*i].0 as usize]).unwrap_or(0);
                t.free(cache.remove(least).1);
            }
            cache.push((key, t.alloc(MIB / 2, false, "hot.py", 8)));
        }
        t.mark();
    }
}

/// Requests that take their time, one a step; each ninth is forgotten.
pub(crate) fn forgotten(r: &mut Random, t: &mut Tape, steps: u64) {
    let m = Model::new(r, t);
    let mut live: Vec<(u64, Live)> = Vec::new();
    for s in 0..steps {
        m.step(t, s);
        let end = if s % 9 == 0 { u64::MAX } else { s + r.between(3, 15) };
        live.push((end, t.alloc(MIB / 2, false, "leak.py", 4)));
        live.extract_if(.., |(end, _)| *end <= s).for_each(|(_, b)| t.free(b));
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

/// Judges so many of these jobs, of so many steps.
fn judged(of: fn(&mut Random, &mut Tape, u64), steps: u64, jobs: u64) -> Vec<Seen> {
    let draw = |seed| {
        let (mut r, mut t) = (Random::new(seed), Tape::new());
        of(&mut r, &mut t, steps);
        Seen::of(&Drawn { steps, leak: None, names: t.names, items: t.items })
    };
    (0..jobs).map(draw).collect()
}

/// What is asked for most often stays, and what comes besides takes the place of what went. In one of these jobs that has not been so for long.
#[test]
fn a_cache_of_what_is_asked_for_most_is_full() {
    let all = judged(hot, 110, 24);
    let idle: Vec<_> = all.iter().filter_map(|s| s.idle.as_ref()).collect();
    assert!(idle.len() <= 1 && all.iter().all(|s| s.leak.is_none()), "{idle:#?}");
}

/// Fewer requests run at one moment than before: what is forgotten is still more than ever.
#[test]
fn what_is_forgotten_beside_requests_that_end_is_found_to_the_end() {
    let lost: Vec<_> = judged(forgotten, 150, 12).iter().filter_map(|s| s.lost).collect();
    assert!(lost.is_empty(), "{lost:?}");
}
