//! The machine's state as bytes: little-endian words behind a version, checked when they come back.

mod v1;
mod words;

use super::machine::StepMachine;
use super::party::Party;
use super::threads::{MAX, Thread};
use super::turns::{Dropped, SLOTS};
use words::Words;

const VERSION: u64 = 4;
/// The one before did not tell of loops in which each optimizer runs once, nor of extra runs.
const WITHOUT_ONCE: u64 = 3;
/// The one before that did not tell where gradients were dropped.
const WITHOUT_DROPPED: u64 = 2;

impl StepMachine {
    /// The state as bytes, for a checkpoint.
    pub fn save(&self) -> Vec<u8> {
        let mut words = Words::Written(vec![VERSION]);
        let _ = machine(&mut self.clone(), &mut words, VERSION);
        match words {
            Words::Written(words) => words.iter().flat_map(|w| w.to_le_bytes()).collect(),
            Words::Read(_) => Vec::new(),
        }
    }

    /// The state out of a checkpoint; `None` where the bytes are not one.
    pub fn load(bytes: &[u8]) -> Option<StepMachine> {
        if !bytes.len().is_multiple_of(8) {
            return None;
        }
        let mut words = Words::Read(bytes.chunks_exact(8));
        let mut m = StepMachine::default();
        match words.next::<u64>()? {
            1 => v1::load(&mut m, &mut words)?,
            version @ WITHOUT_DROPPED..=VERSION => machine(&mut m, &mut words, version)?,
            _ => return None,
        }
        words.is_over().then_some(m)
    }
}

/// All words behind the version, in their order.
fn machine(m: &mut StepMachine, w: &mut Words, version: u64) -> Option<()> {
    let (t, g, threads) = (&mut m.turns, &mut m.gradients, &mut m.threads.list);
    w.number(&mut m.steps)?;
    w.pair(&mut m.stands, &mut m.count)?;
    w.number(&mut m.microbatches)?;
    w.source(&mut m.source)?;
    w.bits([&mut m.optimizer_mode, &mut m.armed, &mut m.backward_seen, &mut m.graphed, &mut t.fosters])?;
    w.due(&mut m.due)?;
    w.pair(&mut m.capturing, &mut m.parts)?;
    w.tick(&mut m.next_tick)?;
    w.pair(&mut g.kept, &mut g.gone)?;
    w.pair(&mut g.live, &mut g.left)?;
    w.number(&mut g.usual)?;
    w.numbers([&mut t.beats, &mut t.newest])?;
    w.pair(&mut t.labels, &mut t.latest)?;
    w.pair(&mut t.singly, &mut t.fresh)?;
    w.pair(&mut t.marker, &mut t.held)?;
    w.pair(&mut t.swallowed, &mut t.stretch)?;
    w.count(&mut t.parties, SLOTS)?;
    w.count(&mut t.optimizers, SLOTS)?;
    w.count(threads, MAX)?;
    if version > WITHOUT_ONCE {
        w.bits([&mut t.once, &mut t.leads, &mut t.left_out, &mut t.one_line])?;
        w.pair(&mut t.swaps, &mut t.alone)?;
        w.pair(&mut t.in_a_row, &mut t.extra_site)?;
        w.number(&mut t.extras)?;
    }
    if version > WITHOUT_DROPPED {
        w.count(&mut t.dropped, SLOTS)?;
        for Dropped { sites: [first, last], used } in &mut t.dropped {
            w.pair(first, last)?;
            w.number(used)?;
        }
    }
    w.numbers(g.sample.each_mut())?;
    t.parties.iter_mut().try_for_each(|p| party(p, w, version))?;
    for (id, label) in &mut t.optimizers {
        w.number(id)?;
        w.number(label)?;
    }
    threads.iter_mut().try_for_each(|t| thread(t, w))
}

fn party(p: &mut Party, w: &mut Words, version: u64) -> Option<()> {
    let ([first_site, last_site], [first_recent, last_recent]) = (&mut p.sites, &mut p.recent);
    w.pair(&mut p.label, &mut p.thread.0)?;
    w.numbers([&mut p.first, &mut p.last, &mut p.start])?;
    w.pair(&mut p.prior, &mut p.lead)?;
    w.bits([&mut p.returned, &mut p.bare, &mut p.moved])?;
    w.pair(first_site, last_site)?;
    w.pair(first_recent, last_recent)?;
    w.pair(&mut p.turns, &mut p.base)?;
    w.pair(&mut p.credit, &mut p.gap)?;
    w.pair(&mut p.widest, &mut p.clean)?;
    w.pair(&mut p.dirty, &mut p.uneven)?;
    if version > WITHOUT_ONCE {
        w.pair(&mut p.alike, &mut p.wide)?;
        w.numbers([&mut p.extras])?;
        w.number(&mut p.extra_site)?;
    }
    Some(())
}

fn thread(t: &mut Thread, w: &mut Words) -> Option<()> {
    let n = &mut t.window;
    w.number(&mut t.id.0)?;
    w.bits([&mut t.began, &mut t.hook_in_backward, &mut t.in_optimizer, &mut t.microbatch_due])?;
    w.pair(&mut t.open, &mut t.group)?;
    w.pair(&mut n.backwards, &mut n.parts)?;
    w.pair(&mut n.first, &mut n.last)?;
    w.pair(&mut n.hook_backwards, &mut n.hook_drops)
}
