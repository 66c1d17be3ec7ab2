//! Replays that begin at a checkpoint, and checkpoints that a replay meets on its way.

use crate::{SITES, job, names, run};
use strandline::event::steps::StepMachine;
use strandline::event::{
    Body, Bytes, Checkpoint, DeviceTotals, Event, Item, LiveBlock, Names, Nanos, StackId, ThreadId,
};
use strandline::replay::{Device, Replay};

/// The state as a writer's checkpoint has it, told by the replay's own readers.
fn checkpoint(replay: &Replay, machine: &StepMachine) -> Checkpoint {
    let mut c = Checkpoint {
        time: replay.time(),
        steps: replay.steps(),
        microbatches: replay.microbatches(),
        events: replay.events(),
        lost: replay.lost(),
        step_machine: machine.save(),
        streams: replay.streams().iter().map(|s| (s.device, s.handle)).collect(),
        ..Checkpoint::default()
    };
    for d in replay.devices() {
        c.blocks.extend(replay.blocks(d.id).map(|h| LiveBlock {
            block: h.block,
            born: h.born,
            step: h.step,
            microbatch: h.microbatch,
            pending: h.pending,
            unverified: h.unverified,
        }));
        c.segments.extend(replay.segments(d.id).copied());
        c.rows.extend(d.rows.iter().map(|r| (d.id, *r)));
        c.devices.push(DeviceTotals {
            device: d.id,
            allocated: d.allocated,
            reserved: d.reserved,
            pending: d.pending,
            peak_allocated: d.peak_allocated.bytes,
            peak_time: d.peak_allocated.time,
            peak_step: d.peak_allocated.step,
            peak_reserved: d.peak_reserved.bytes,
            drift: d.accounting_drift,
        });
    }
    c
}

/// Replays the first `cut` events, and then the rest in a new replay that begins at the checkpoint between.
fn resumed(bodies: &[Body], cut: usize, names: &Names) -> (Checkpoint, Replay) {
    let (mut first, mut machine) = (Replay::new(), StepMachine::default());
    let mut second = Replay::new();
    let mut state = Checkpoint::default();
    for i in 1..=SITES {
        first.apply(&Item::Stack(StackId(i)), names);
        second.apply(&Item::Stack(StackId(i)), names);
    }
    for (i, body) in bodies.iter().enumerate() {
        let e = Event { time: Nanos(i as u64), thread: ThreadId(0), body: *body };
        if i == cut {
            state = checkpoint(&first, &machine);
            second.apply(&Item::Checkpoint(Box::new(state.clone())), names);
        }
        if i < cut {
            machine.feed(&e);
            first.apply(&Item::Event(e), names);
        } else {
            second.apply(&Item::Event(e), names);
        }
    }
    (state, second)
}

#[test]
fn a_replay_that_begins_at_a_checkpoint_arrives_at_the_same_state() {
    let names = names();
    for seed in 1..=60 {
        let bodies = job(seed, false);
        let (whole, _) = run(&bodies, &names);
        let (state, later) = resumed(&bodies, bodies.len() / 2, &names);
        assert_eq!((later.steps(), later.events()), (whole.steps(), whole.events()), "seed {seed}");
        assert_eq!(later.inconsistencies(), [], "seed {seed}");
        for (a, b) in later.devices().zip(whole.devices()) {
            let of = |d: &Device| {
                let mut rows = d.rows.clone();
                // A checkpoint does not keep the peak within the step it lies in.
                rows.iter_mut().filter(|r| r.step == state.steps + 1).for_each(|r| r.peak = Bytes(0));
                (d.id, d.allocated, d.pending, d.blocks, d.before_recording, rows, d.peak_allocated.bytes)
            };
            assert_eq!(of(a), of(b), "seed {seed}");
        }
        for (a, b) in later.streams().iter().zip(whole.streams()) {
            assert_eq!((a.id, a.device, a.handle), (b.id, b.device, b.handle), "seed {seed}");
        }
        for c in whole.cohorts() {
            let same = later.cohorts().iter().find(|l| {
                (l.key.device, l.key.stream, l.key.private_pool, l.key.optimizer)
                    == (c.key.device, c.key.stream, c.key.private_pool, c.key.optimizer)
                    && later.site(l.key.site).map(|s| s.stack) == whole.site(c.key.site).map(|s| s.stack)
            });
            let (live, old) = same.map_or_else(Default::default, |l| (l.live, l.steps.old));
            assert_eq!((live, old), (c.live, c.steps.old), "seed {seed}: {:?}", c.key);
        }
    }
}

#[test]
fn a_checkpoint_on_the_way_is_compared() {
    let names = names();
    let bodies = job(3, false);
    let cut = bodies.len() / 2;
    let (state, _) = resumed(&bodies, cut, &names);
    let arrive = |c: &Checkpoint| {
        let (mut replay, _) = run(&bodies[..cut], &names);
        replay.apply(&Item::Checkpoint(Box::new(c.clone())), &names);
        replay
    };
    assert_eq!(arrive(&state).inconsistencies(), []);
    let mut other = state.clone();
    let gone = other.blocks.remove(0);
    let what = arrive(&other).inconsistencies()[0].clone();
    assert!(what.first.contains(&format!("{:#x}", gone.block.addr.0)), "{what:?}");
    // One that has seen more than we have is believed: pages between were dropped.
    other.events += 1000;
    let replay = arrive(&other);
    assert_eq!((replay.inconsistencies(), replay.generation()), (&[][..], 1));
    assert_eq!(replay.events(), other.events);
}
