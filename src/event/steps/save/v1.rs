//! The state that the first format version's checkpoints have: another set of facts, of which the numbers count on.

use super::words::Words;
use crate::event::ThreadId;
use crate::event::steps::machine::{PARTS, StepMachine};
use crate::event::steps::party::{LIMIT, Party};
use crate::event::steps::threads::{MAX, Thread, Window};
use crate::event::steps::turns::Turns;

/// Optimizers that were told apart.
const SLOTS: usize = 16;
/// An optimizer that stepped more than this many times less often than another one was ignored.
const RARE: u32 = 8;
/// Runs without a backward were parts of a step, as two bits of the flags have it.
const PART: u64 = 3;

pub(super) fn load(m: &mut StepMachine, w: &mut Words) -> Option<()> {
    w.number(&mut m.steps)?;
    w.number(&mut m.microbatches)?;
    w.source(&mut m.source)?;
    let flags: u64 = w.next()?;
    w.due(&mut m.due)?;
    let (backwards, _usual, _alike): (u32, u32, u32) = (w.next()?, w.next()?, w.next()?);
    w.tick(&mut m.next_tick)?;
    let marker = count(w, SLOTS)?;
    let (slots, threads) = (count(w, SLOTS)?, count(w, MAX)?);
    m.stands = if flags & 2 != 0 { 0 } else { m.steps };
    m.count = m.stands.saturating_add(u32::from(m.due.is_some()));
    m.optimizer_mode = flags & 1 != 0;
    m.armed = flags & 4 != 0;
    m.backward_seen = flags & 32 != 0;
    m.parts = if flags >> 6 & 3 == PART { PARTS } else { 0 };
    m.turns = turns(w, marker, slots, m.count)?;
    for _ in 0..threads {
        let id = ThreadId(w.next()?);
        let flags: u64 = w.next()?;
        let began = flags & 1 != 0;
        let open = w.next::<u64>()?.try_into().ok()?;
        // Bits of slots: labels begin at 1.
        let group: u32 = w.next()?;
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
    Some(())
}

fn count(w: &mut Words, most: usize) -> Option<usize> {
    w.next::<u64>()?.try_into().ok().filter(|n| *n <= most)
}

/// Which optimizers there were, and whether one of them ended rounds.
fn turns(w: &mut Words, marker: usize, slots: usize, steps: u32) -> Option<Turns> {
    let mut t = Turns { beats: u64::from(u32::MAX), labels: slots as u32, ..Turns::default() };
    for i in 0..slots {
        let (id, _runs, intervals): (u64, u32, [u32; 2]) = (w.next()?, w.next()?, [w.next()?, w.next()?]);
        let mut since = 0;
        for _ in 0..SLOTS {
            since = since.max(w.next::<u32>()?);
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
