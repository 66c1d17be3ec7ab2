//! The state that the first format version's checkpoints have: another set of facts, of which the numbers count on.

use super::words::Words;
use crate::event::Nanos;
use crate::event::steps::machine::{PARTS, StepMachine};
use crate::event::steps::threads::{MAX, Thread, Window};
use crate::event::steps::turns::{LIMIT, Party, Turns};

/// Optimizers that were told apart.
const SLOTS: usize = 16;
/// An optimizer that stepped more than this many times less often than another one was ignored.
const RARE: u32 = 8;
/// Runs without a backward were parts of a step, as two bits of the flags have it.
const PART: u64 = 3;

pub(super) fn load(w: &mut Words) -> Option<StepMachine> {
    let (steps, microbatches) = (w.u32()?, w.u32()?);
    let source = w.source()?;
    let flags = w.u64()?;
    let due = w.due()?;
    let (backwards, _usual, _alike) = (w.u32()?, w.u32()?, w.u32()?);
    let next_tick = w.optional()?.map(Nanos);
    let (marker, slots, threads) = (w.count(SLOTS)?, w.count(SLOTS)?, w.count(MAX)?);
    let stands = if flags & 2 != 0 { 0 } else { steps };
    let mut m = StepMachine {
        steps,
        stands,
        count: stands.saturating_add(u32::from(due.is_some())),
        microbatches,
        source,
        optimizer_mode: flags & 1 != 0,
        armed: flags & 4 != 0,
        backward_seen: flags & 32 != 0,
        parts: if flags >> 6 & 3 == PART { PARTS } else { 0 },
        due,
        next_tick,
        ..StepMachine::default()
    };
    m.turns = turns(w, marker, slots, m.count)?;
    for _ in 0..threads {
        let id = w.thread()?;
        let flags = w.u64()?;
        let began = flags & 1 != 0;
        let open = w.u64()?.try_into().ok()?;
        // Bits of slots: labels begin at 1.
        let group = w.u32()?;
        m.threads.list.push(Thread {
            id,
            began,
            hook_in_backward: flags & 2 != 0,
            in_optimizer: flags & 4 != 0,
            microbatch_due: flags & 8 != 0,
            open,
            group: if group == 0 { 0 } else { group.trailing_zeros() + 1 },
            window: Window {
                backwards: if began { backwards } else { 0 },
                hook_backwards: if began { backwards } else { 0 },
                ..Window::default()
            },
        });
    }
    Some(m)
}

/// Which optimizers there were, and whether one of them ended rounds.
fn turns(w: &mut Words, marker: usize, slots: usize, steps: u32) -> Option<Turns> {
    let mut t = Turns { beats: u64::from(u32::MAX), labels: slots as u32, ..Turns::default() };
    for i in 0..slots {
        let (id, _runs, intervals) = (w.u64()?, w.u32()?, [w.u32()?, w.u32()?]);
        let mut since = 0;
        for _ in 0..SLOTS {
            since = since.max(w.u32()?);
        }
        let label = i as u32 + 1;
        let takes_turns = i == marker && (1..=RARE).contains(&intervals[1]) && since <= RARE;
        if takes_turns {
            (t.marker, t.held) = (label, since);
        }
        if since == 0 {
            t.latest = label;
        }
        t.optimizers.push((id, label));
        t.parties.push(Party {
            label,
            first: 1,
            last: t.beats - u64::from(since),
            returned: intervals[1] > 0,
            turns: if takes_turns { LIMIT } else { 0 },
            base: steps.saturating_sub(LIMIT),
            gap: intervals[1],
            widest: intervals[0].max(intervals[1]).max(1),
            ..Party::default()
        });
    }
    Some(t)
}
