//! The machine's state as bytes: little-endian words behind a version, checked when they come back.

use super::rounds::{Rounds, SLOTS, Slot};
use super::threads::{MAX, Thread, Threads};
use super::{Repeated, StepMachine, StepSource};
use crate::event::{Nanos, ThreadId};

const VERSION: u64 = 1;
/// No thread, no tick.
const NONE: u64 = u64::MAX;

const SOURCES: [StepSource; 5] =
    [StepSource::None, StepSource::Time, StepSource::Backward, StepSource::Optimizer, StepSource::Manual];
const REPEATED: [Repeated; 4] = [Repeated::Never, Repeated::Undecided, Repeated::Step, Repeated::Part];

pub(super) fn save(m: &StepMachine) -> Vec<u8> {
    let source = SOURCES.iter().position(|s| *s == m.source).unwrap_or(0) as u64;
    let flags = [m.optimizer_mode, m.fold, m.armed, m.scaler_seen, m.hooked, m.backward_seen];
    let flags = flags.iter().enumerate().fold(0, |a, (i, f)| a | u64::from(*f) << i);
    let repeated = REPEATED.iter().position(|r| *r == m.repeated).unwrap_or(0) as u64;
    let flags = flags | repeated << 6;
    let mut w = vec![
        VERSION,
        u64::from(m.steps),
        u64::from(m.microbatches),
        source,
        flags,
        m.due.map_or(NONE, |t| u64::from(t.0)),
        u64::from(m.backwards),
        u64::from(m.usual),
        u64::from(m.alike),
        m.next_tick.map_or(NONE, |t| t.0),
        m.rounds.marker as u64,
        m.rounds.slots.len() as u64,
        m.threads.list.len() as u64,
    ];
    for s in &m.rounds.slots {
        w.extend([s.id, u64::from(s.runs), u64::from(s.intervals[0]), u64::from(s.intervals[1])]);
        w.extend(s.since.iter().map(|n| u64::from(*n)));
    }
    for t in &m.threads.list {
        let flags = [t.began, t.hook_in_backward, t.in_optimizer, t.microbatch_due];
        let flags = flags.iter().enumerate().fold(0, |a, (i, f)| a | u64::from(*f) << i);
        w.extend([u64::from(t.id.0), flags, u64::from(t.open), u64::from(t.group)]);
    }
    w.iter().flat_map(|v| v.to_le_bytes()).collect()
}

struct Words<'a>(std::slice::ChunksExact<'a, u8>);

impl Words<'_> {
    fn u64(&mut self) -> Option<u64> {
        self.0.next().and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.u64().and_then(|v| v.try_into().ok())
    }
    fn count(&mut self, max: usize) -> Option<usize> {
        self.u64().and_then(|v| usize::try_from(v).ok()).filter(|n| *n <= max)
    }
    fn thread(&mut self) -> Option<ThreadId> {
        self.u64().and_then(|v| v.try_into().ok()).map(ThreadId)
    }
}

pub(super) fn load(bytes: &[u8]) -> Option<StepMachine> {
    if !bytes.len().is_multiple_of(8) {
        return None;
    }
    let mut w = Words(bytes.chunks_exact(8));
    if w.u64()? != VERSION {
        return None;
    }
    let (steps, microbatches) = (w.u32()?, w.u32()?);
    let source = *SOURCES.get(w.count(SOURCES.len())?)?;
    let flags = w.u64()?;
    let due = match w.u64()? {
        NONE => None,
        v => Some(ThreadId(v.try_into().ok()?)),
    };
    let (backwards, usual, alike) = (w.u32()?, w.u32()?, w.u32()?);
    let next_tick = Some(w.u64()?).filter(|v| *v != NONE).map(Nanos);
    let (marker, slots, threads) = (w.count(SLOTS)?, w.count(SLOTS)?, w.count(MAX)?);
    let mut m = StepMachine {
        steps,
        microbatches,
        source,
        optimizer_mode: flags & 1 != 0,
        fold: flags & 2 != 0,
        armed: flags & 4 != 0,
        scaler_seen: flags & 8 != 0,
        hooked: flags & 16 != 0,
        backward_seen: flags & 32 != 0,
        repeated: REPEATED[(flags >> 6 & 3) as usize],
        due,
        backwards,
        usual,
        alike,
        next_tick,
        rounds: Rounds { slots: Vec::with_capacity(slots), marker },
        threads: Threads::default(),
    };
    for _ in 0..slots {
        let mut s = Slot { id: w.u64()?, runs: w.u32()?, intervals: [w.u32()?, w.u32()?], since: [0; SLOTS] };
        for n in &mut s.since {
            *n = w.u32()?;
        }
        m.rounds.slots.push(s);
    }
    for _ in 0..threads {
        let id = w.thread()?;
        let flags = w.u64()?;
        m.threads.list.push(Thread {
            id,
            began: flags & 1 != 0,
            hook_in_backward: flags & 2 != 0,
            in_optimizer: flags & 4 != 0,
            microbatch_due: flags & 8 != 0,
            open: w.u64()?.try_into().ok()?,
            group: w.u32()?,
        });
    }
    w.u64().is_none().then_some(m)
}
