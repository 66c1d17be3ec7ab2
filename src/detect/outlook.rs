//! How soon a device is full by what a finding adds to it: alone, or together with what else grows there.

use super::certainty::Certainty;
use super::finding::Finding;
use super::forecast::{self, Headroom, Rate};
use super::severity::{Severity, Urgency};
use super::until_full::SecondsToOom;

/// Of what a device gains, a finding's own part must be one in so many, so that what else grows counts for its forecast: who adds a
/// thousandth fills nothing.
const PART: f64 = 4.0;

/// What a forecast is made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    /// What the finding gains in a mark.
    pub(super) rate: Rate,
    /// Marks to a step.
    pub(super) per_step: f64,
    /// Marks that growth was seen for.
    pub(super) marks: u32,
    pub(super) room: Headroom,
    /// Seconds that a mark takes lately, where a clock tells.
    pub(super) pace: Option<f64>,
    /// How sure its events make it.
    pub(super) certainty: Certainty,
    /// Too early for an alert.
    pub(super) hasty: bool,
    /// Steps that the job still has to do, where known.
    pub(super) left: Option<u64>,
    /// The part of it that is there twice while it is made anew.
    pub(super) twice: Option<f64>,
    /// Python's collector may still free what it counts.
    pub(super) waits: bool,
}

impl Outlook {
    /// What it gains in a step.
    pub(super) fn per_step(&self) -> Rate {
        self.rate.times(self.per_step)
    }

    /// Tells `f` when the device is full, where all that grows there gains `all` in a step, itself included.
    pub(super) fn tell(&self, f: &mut Finding, all: Rate) {
        /// What others add must be one in so many of it, to count.
        const WORTH: f64 = 10.0;
        let own = self.per_step().current;
        f.with_others = own * PART >= all.current && (all.current - own) * WORTH > all.current;
        let rate = if f.with_others { all.times(1.0 / self.per_step) } else { self.rate };
        f.speeds_up = rate.gain > 0.0;
        let mut steps = forecast::interval(&self.room, &rate, self.marks);
        if f.with_others {
            // They may end before it does.
            steps.high = steps.high.max(forecast::interval(&self.room, &self.rate, self.marks).mid);
        }
        if self.marks >= forecast::NARROW {
            let room = self.room.without(self.room.slack);
            steps.low = steps.low.min(forecast::interval(&room, &rate, self.marks).low);
        }
        // What a block that is made anew leaves behind is whole segments, which torch gives back when it needs room.
        let pieces = self.room.pieces.filter(|_| !f.is_remade());
        if pieces.is_some() || self.room.needs > 0.0 {
            // Pieces that nothing fits into become more as well, and so does what a step needs at its peak: with what grows, whose share of it
            // this is.
            let share =
                if f.with_others || all.current <= 0.0 { 1.0 } else { (own / all.current).clamp(0.0, 1.0) };
            let more = pieces.map_or(0.0, |p| p.per_step) + self.room.needs;
            let more = more * share / self.per_step;
            let sooner = self.room.without(pieces.map_or(0, |p| p.bytes));
            let sooner = forecast::interval(&sooner, &rate.plus(more), self.marks);
            f.with_others |= more * WORTH > rate.current && sooner.mid < steps.mid;
            (steps.low, steps.mid) = (steps.low.min(sooner.low), steps.mid.min(sooner.mid));
        }
        // Whatever else steps need: each time it is made anew, the old block and the new one are there.
        if let Some(part) = self.twice {
            let room = self.room.beside((f.bytes_now as f64 * part) as u64);
            let rate = rate.plus(self.rate.current * part);
            let sooner = forecast::interval(&room, &rate, self.marks);
            let least = forecast::interval(&room.without(self.room.slack), &rate, self.marks).low;
            f.with_others |= sooner.mid < steps.mid;
            (steps.low, steps.mid) = (steps.low.min(least), steps.mid.min(sooner.mid));
            steps.high = steps.high.min(sooner.high).max(steps.mid);
        }
        let seconds = self.pace.map(|pace| SecondsToOom::of(&steps, pace));
        let urgency = Urgency {
            steps,
            seconds,
            seen: forecast::seen(&rate, self.marks),
            certainty: self.certainty,
            hasty: self.hasty,
            left: self.left,
            is_known: self.room.known,
        };
        f.urgency = urgency.severity();
        // Reference cycles may be what keeps it, and the collector is about to come: no alert, unless it is too late for that.
        let capped = self.waits && !urgency.is_near();
        f.severity = if capped { f.urgency.min(Severity::Warning) } else { f.urgency };
        f.steps_to_oom = self.room.known.then_some(steps);
        f.seconds_to_oom = seconds.filter(|_| self.room.known);
    }
}
