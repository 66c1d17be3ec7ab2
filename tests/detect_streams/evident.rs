//! From which step on a drawn leak must be named, and at which steps nobody can tell that it goes on: what the events say, by the words of
//! docs/verdicts.md and without the detector.

use crate::seen::text;
use crate::synthetic::Drawn;
use std::collections::BTreeMap;
use strandline::event::{Body, Event, Item};

/// Steps a block must live through after its own.
const GRACE: u32 = 2;
/// Steps without a new block that say nothing: at least, and at most, where growth went on for a short time.
const SHORT: (u32, u32) = (8, 12);
/// By how much a silence must be longer than any before.
const LONGER: u32 = 3;
/// Mean steps between the last few blocks, of which so many are no silence where they come by chance.
const CHANCE: (usize, u32) = (5, 5);
/// Different steps that must have left blocks: since the leak began, or since it went on after a silence.
const STEPS: usize = 5;

/// What guilty lines (of `leak.py`) leave to the end.
#[derive(Debug, Default)]
pub(crate) struct Evident {
    /// The steps that left blocks.
    births: Vec<u32>,
    /// When other blocks of these lines ended, and how old they were.
    ends: Vec<(u32, u32)>,
}

impl Evident {
    pub(crate) fn of(d: &Drawn) -> Evident {
        let line = |stack| d.names.frames(stack).next().map(text);
        let is_guilty = |stack| line(stack).is_some_and(|l| l.starts_with("leak.py"));
        let (mut live, mut ends, mut step) = (BTreeMap::new(), Vec::new(), 1u32);
        for item in &d.items {
            match item {
                Item::Event(Event { body: Body::Alloc(b), .. }) if is_guilty(b.stack) => {
                    live.insert(b.addr.0, step);
                }
                Item::Event(Event { body: Body::FreeRequested(b), .. }) => {
                    ends.extend(live.remove(&b.addr.0).map(|born| (step, step - born)));
                }
                Item::Event(Event { body: Body::ManualStep(_), .. }) => step += 1,
                _ => {}
            }
        }
        let mut births: Vec<u32> = live.into_values().collect();
        births.sort_unstable();
        births.dedup();
        Evident { births, ends }
    }

    /// Whether the leak must be named as of the end of `step`: so many different steps have left blocks without a long silence, each of them older
    /// than half as long again as any life that has ended there, and there is no long silence now.
    pub(crate) fn at(&self, step: u32) -> bool {
        let life = self.ends.iter().filter(|e| e.0 <= step).map(|e| e.1).max().unwrap_or(0);
        let age = GRACE.max(if life >= GRACE { life + life / 2 + 1 } else { 0 });
        let old: Vec<u32> = self.births.iter().copied().take_while(|b| b + age <= step).collect();
        let Some(last) = old.last() else { return false };
        let is_silent = |i: usize, until: u32| is_long(&old[..=i], until - old[i]);
        let run = (1..old.len()).rev().find(|i| is_silent(i - 1, old[*i])).unwrap_or(0);
        old.len() - run >= STEPS && !is_long(&old, (step - age).saturating_sub(*last))
    }
}

/// Whether a silence after these births is longer than all that they tell of.
fn is_long(births: &[u32], silence: u32) -> bool {
    let span = births[births.len() - 1] - births[0];
    let gap = births.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
    let few = &births[births.len().saturating_sub(CHANCE.0)..];
    let lately = (few[few.len() - 1] - few[0]) / (few.len() as u32 - 1).max(1);
    let brief = (span + span / 2).clamp(SHORT.0, SHORT.1);
    silence > (gap + LONGER).max(brief).max(span / 4).max(lately * CHANCE.1)
}

#[test]
fn a_leak_that_pauses_must_be_named_until_it_has_been_silent_and_once_it_goes_on() {
    let births = (1..=20).chain(50..=60).collect();
    let e = Evident { births, ends: Vec::new() };
    let steps: Vec<u32> = (1..=80).filter(|s| e.at(*s)).collect();
    let want: Vec<u32> = (7..=34).chain(56..=80).collect();
    assert_eq!(steps, want);
    let slower = Evident { births: (1..=20).chain((30..=120).step_by(10)).collect(), ends: Vec::new() };
    assert!((7..=130).all(|s| slower.at(s)), "it goes on, though more slowly");
    let waits = Evident { births: (1..=20).collect(), ends: vec![(4, 3)] };
    assert!(!waits.at(9) && waits.at(10), "older by half than what has ended");
}
