//! The machine's state as bytes: little-endian words behind a version, checked when they come back.

mod v1;
mod words;

use super::gradients::{Gradients, SAMPLE};
use super::machine::StepMachine;
use super::threads::{MAX, Thread, Threads, Window};
use super::turns::{Party, SLOTS, Turns};
use crate::event::{Nanos, ThreadId};
use words::{NONE, SOURCES, Words};

const VERSION: u64 = 2;
fn bits<const N: usize>(flags: [bool; N]) -> u64 {
    flags.iter().enumerate().fold(0, |a, (i, f)| a | u64::from(*f) << i)
}

/// Two numbers in a word.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl StepMachine {
    /// The state as bytes, for a checkpoint.
    pub fn save(&self) -> Vec<u8> {
        save(self)
    }

    /// The state out of a checkpoint; `None` where the bytes are not one.
    pub fn load(b: &[u8]) -> Option<StepMachine> {
        load(b)
    }
}

fn save(m: &StepMachine) -> Vec<u8> {
    let (t, g) = (&m.turns, &m.gradients);
    let mut w = vec![
        VERSION,
        u64::from(m.steps),
        pair(m.stands, m.count),
        u64::from(m.microbatches),
        SOURCES.iter().position(|s| *s == m.source).unwrap_or(0) as u64,
        bits([m.optimizer_mode, m.armed, m.backward_seen, m.graphed, t.fosters]),
        m.due.map_or(NONE, |t| u64::from(t.0)),
        pair(m.capturing, m.parts),
        m.next_tick.map_or(NONE, |t| t.0),
        pair(g.kept, g.gone),
        pair(g.live, g.left),
        u64::from(g.usual),
        t.beats,
        t.newest,
        pair(t.labels, t.latest),
        pair(t.singly, t.fresh),
        pair(t.marker, t.held),
        pair(t.swallowed, t.stretch),
        t.parties.len() as u64,
        t.optimizers.len() as u64,
        m.threads.list.len() as u64,
    ];
    w.extend(g.sample);
    for p in &t.parties {
        w.extend([
            pair(p.label, u32::from(p.thread.0)),
            p.first,
            p.last,
            p.start,
            pair(p.prior, p.lead),
            bits([p.returned, p.bare]),
            pair(p.sites[0], p.sites[1]),
            pair(p.recent[0], p.recent[1]),
            pair(p.turns, p.base),
            pair(p.credit, p.gap),
            pair(p.widest, p.clean),
            pair(p.dirty, p.uneven),
        ]);
    }
    w.extend(t.optimizers.iter().flat_map(|o| [o.0, u64::from(o.1)]));
    for t in &m.threads.list {
        let n = &t.window;
        w.extend([
            u64::from(t.id.0),
            bits([t.began, t.hook_in_backward, t.in_optimizer, t.microbatch_due]),
            pair(u32::from(t.open), t.group),
            pair(n.backwards, n.parts),
            pair(n.first, n.last),
            pair(n.hook_backwards, n.hook_drops),
        ]);
    }
    w.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn load(bytes: &[u8]) -> Option<StepMachine> {
    if !bytes.len().is_multiple_of(8) {
        return None;
    }
    let mut w = Words(bytes.chunks_exact(8));
    let m = match w.u64()? {
        1 => v1::load(&mut w)?,
        VERSION => current(&mut w)?,
        _ => return None,
    };
    w.u64().is_none().then_some(m)
}

fn current(w: &mut Words) -> Option<StepMachine> {
    let steps = w.u32()?;
    let (stands, count) = w.pair()?;
    let microbatches = w.u32()?;
    let source = w.source()?;
    let [optimizer_mode, armed, backward_seen, graphed, fosters] = w.bits()?;
    let due = w.due()?;
    let (capturing, parts) = w.pair()?;
    let next_tick = w.optional()?.map(Nanos);
    let ((kept, gone), (live, left), usual) = (w.pair()?, w.pair()?, w.u32()?);
    let (beats, newest) = (w.u64()?, w.u64()?);
    let ((labels, latest), (singly, fresh), (marker, held)) = (w.pair()?, w.pair()?, w.pair()?);
    let (swallowed, stretch) = w.pair()?;
    let (parties, optimizers, threads) = (w.count(SLOTS)?, w.count(SLOTS)?, w.count(MAX)?);
    let mut sample = [0; SAMPLE];
    for a in &mut sample {
        *a = w.u64()?;
    }
    let parties = (0..parties).map(|_| party(w)).collect::<Option<Vec<Party>>>()?;
    let optimizers = (0..optimizers).map(|_| Some((w.u64()?, w.u32()?))).collect::<Option<Vec<_>>>()?;
    let list = (0..threads).map(|_| thread(w)).collect::<Option<Vec<Thread>>>()?;
    let mut all = Threads::default();
    all.list = list;
    Some(StepMachine {
        steps,
        stands,
        count,
        microbatches,
        source,
        threads: all,
        turns: Turns {
            parties,
            optimizers,
            beats,
            labels,
            latest,
            singly,
            fresh,
            newest,
            marker,
            fosters,
            held,
            swallowed,
            stretch,
        },
        gradients: Gradients { sample, kept, gone, live, left, usual },
        optimizer_mode,
        due,
        armed,
        backward_seen,
        capturing,
        graphed,
        parts,
        next_tick,
    })
}

fn party(w: &mut Words) -> Option<Party> {
    let (label, thread) = w.pair()?;
    let (first, last, start) = (w.u64()?, w.u64()?, w.u64()?);
    let (prior, lead) = w.pair()?;
    let [returned, bare] = w.bits()?;
    let (sites, recent) = (w.pair()?.into(), w.pair()?.into());
    let ((turns, base), (credit, gap), (widest, clean)) = (w.pair()?, w.pair()?, w.pair()?);
    let thread = ThreadId(thread.try_into().ok()?);
    let (dirty, uneven) = w.pair()?;
    Some(Party {
        label,
        first,
        last,
        start,
        prior,
        lead,
        thread,
        returned,
        bare,
        sites,
        recent,
        turns,
        base,
        credit,
        gap,
        widest,
        uneven,
        clean,
        dirty,
    })
}

fn thread(w: &mut Words) -> Option<Thread> {
    let id = w.thread()?;
    let [began, hook_in_backward, in_optimizer, microbatch_due] = w.bits()?;
    let (open, group) = w.pair()?;
    let ((backwards, parts), (first, last), (hook_backwards, hook_drops)) = (w.pair()?, w.pair()?, w.pair()?);
    Some(Thread {
        id,
        began,
        open: open.try_into().ok()?,
        hook_in_backward,
        in_optimizer,
        microbatch_due,
        group,
        window: Window { backwards, first, last, parts, hook_backwards, hook_drops },
    })
}
