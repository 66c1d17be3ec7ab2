//! What stops for a while and goes on is one leak; what lives for long and ends is in use.

use crate::judged::Judged;
use crate::script::{MAIN, Script};
use strandline::detect::{Certainty, Detector, Finding, Outcome, Policy};
use strandline::event::{Block, Body, Item, Phase};
use strandline::replay::Replay;

const SIZE: u64 = 16 << 20;

/// A job that keeps a block in each of these steps; every other block of its line is freed at once.
fn keeps(steps: u64, is_kept: impl Fn(u64) -> bool) -> Script {
    let mut s = Script::new();
    for i in 1..=steps {
        let addr = i * (SIZE / 512);
        s.alloc(addr, SIZE, MAIN, 1);
        if !is_kept(i) {
            s.free(addr, SIZE, MAIN);
        }
        s.step();
    }
    s
}

/// A job whose blocks live for as many steps as `life` says of the one of each step.
fn serves(steps: u64, life: impl Fn(u64) -> u64) -> Script {
    let mut s = Script::new();
    let mut live: Vec<(u64, u64)> = Vec::new();
    for i in 1..=steps {
        let (due, rest): (Vec<_>, Vec<_>) = live.into_iter().partition(|(until, _)| *until <= i);
        due.into_iter().for_each(|(_, addr)| s.free(addr, SIZE, MAIN));
        live = rest;
        s.alloc(i * (SIZE / 512), SIZE, MAIN, 1);
        live.push((i + life(i), i * (SIZE / 512)));
        s.step();
    }
    s
}

/// Episodes of twelve steps, whose blocks are freed at their end until they are kept from step 150 on; the line made a workspace as the job began.
#[test]
fn a_late_leak_of_a_line_that_made_a_workspace_has_all_its_bytes() {
    let mut s = Script::new();
    s.alloc(1 << 30, 64 * SIZE, MAIN, 1);
    let mut episode = Vec::new();
    for i in 1..=200 {
        let addr = i * (SIZE / 512);
        s.alloc(addr, SIZE, MAIN, 1);
        episode.push(addr);
        if i % 12 == 0 {
            let ended = std::mem::take(&mut episode);
            ended.into_iter().filter(|_| i < 150).for_each(|addr| s.free(addr, SIZE, MAIN));
        }
        s.step();
    }
    let judged = Judged::of(&s.items, &s.names);
    let f = judged.standing().into_iter().find(|f| f.grows()).expect("it leaks");
    assert!(f.bytes_now == f.blocks_now * SIZE && f.blocks_now > 30, "{f:?}");
}

/// The steps from which on it is said that something grows, and that nothing does.
fn said(s: &Script) -> Vec<(u32, bool)> {
    let (mut replay, mut detector) = (Replay::new(), Detector::new(Policy::default()));
    let mut said: Vec<(u32, bool)> = Vec::new();
    for item in &s.items {
        let p = replay.apply(item, &s.names);
        detector.after(p, &replay);
        let Some(step) = p.step else { continue };
        let grows = detector.findings().iter().any(Finding::grows);
        if said.last().map_or(grows, |last| last.1 != grows) {
            said.push((step, grows));
        }
    }
    said
}

#[test]
fn a_leak_that_came_back_after_a_pause_is_waited_for() {
    // Three times fifty steps of 160; the second pause is as long as the first.
    let pauses = said(&keeps(600, |i| i % 160 < 50));
    assert!(matches!(pauses[..], [(_, true), (_, false), (160..=175, true)]), "{pauses:?}");
    // And what comes back as often as before does not fade.
    let pauses = said(&keeps(420, |i| i < 60 || (160..240).contains(&i) || i >= 340));
    assert!(matches!(pauses[..], [(_, true), (_, false), (160..=175, true)]), "{pauses:?}");
    // It is not waited for without an end.
    let ended = said(&keeps(700, |i| i < 60 || (130..160).contains(&i)));
    assert!(matches!(ended[..], [(_, true), (_, false), (_, true), (_, false)]), "{ended:?}");
}

/// A silence that is shorter than it went on for, or than one that it came back from, is none; a longer one ends it.
#[test]
fn a_leak_is_not_given_up_for_a_short_silence() {
    let bursts = said(&keeps(200, |i| i % 24 < 12));
    assert!(matches!(bursts[..], [(_, true)]), "{bursts:?}");
    // Each step for a while, and then each fourth, ninth and sixth of them, in turn.
    let slower = said(&keeps(300, |i| i < 60 || matches!(i % 19, 0 | 4 | 13)));
    assert!(matches!(slower[..], [(_, true)]), "{slower:?}");
    let ended = said(&keeps(60, |i| i < 12));
    assert!(matches!(ended[..], [(_, true), (_, false)]) && ended[1].0 <= 12 + 20, "{ended:?}");
}

/// Once all is freed on which it was based that a line keeps memory, that is said no more, though as much is there as before.
#[test]
fn what_lives_for_long_and_ends_is_in_use() {
    let lives =
        |most: u64| move |i: u64| if i.is_multiple_of(4) { most } else { [3, 10, 25][(i % 3) as usize] };
    for (what, s) in [("a ring", serves(300, |_| 80)), ("requests", serves(500, lives(110)))] {
        let j = Judged::of(&s.items, &s.names);
        let all = j.detector.findings();
        assert_eq!((j.outcome(), all.len()), (Outcome::Clean, 1), "{what}: {all:#?}");
        let f = &all[0];
        assert_eq!(f.certainty, Certainty::InUse, "{what}: {f:#?}");
        let longest = if what == "a ring" { 80 } else { 110 };
        assert!(f.withdrawn_step.is_some_and(|w| w <= longest + 40), "{what}: {:?}", f.withdrawn_step);
        assert_eq!(f.in_use_for(), Some(longest.into()), "{what}: {:?}", f.evidence);
    }
    // Every fourth request is never freed: some of what it was based on is still there.
    let s = serves(500, |i| if i.is_multiple_of(4) { 10_000 } else { lives(60)(i + 1) });
    let j = Judged::of(&s.items, &s.names);
    assert_eq!(j.outcome(), Outcome::Growing, "{:#?}", j.detector.findings());
}

/// Weights that are kept bring the state of their optimizer with them, which is larger: the line that makes the weights is the cause.
#[test]
fn the_state_of_an_optimizer_follows_the_weights_that_are_kept() {
    let mut s = Script::new();
    let mut next = 1;
    for task in 0..12 {
        for step in 0..10 {
            if step == 0 {
                s.alloc(next * (SIZE / 512), SIZE, MAIN, 1);
                next += 1;
                for _ in 0..2 {
                    let phase = Phase { optimizer: true, ..Phase::default() };
                    let block = Script::block(next * (SIZE / 512), SIZE, MAIN, 2);
                    s.say(0, Body::Alloc(Block { phase, ..block }));
                    next += 1;
                }
            }
            s.step();
        }
        let items: Vec<Item> = s.items.clone();
        let j = Judged::of(&items, &s.names);
        if let Some(f) = j.standing().first().filter(|_| task > 9) {
            assert_eq!(j.lines(f), ["/job/a.py:f:1", "/job/a.py:f:2"], "{f:#?}");
            assert!(f.sites[0].share < 0.5, "{f:#?}");
        } else {
            assert!(task <= 9, "nothing stands");
        }
    }
}
