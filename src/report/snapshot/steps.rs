//! Which event belongs to which step, as it is known once the recording has been read.

use std::ops::Range;

use crate::event::{Body, Event, Item, Nanos, SegmentOp};
use crate::replay::{Held, Progress, Replay};

/// The ends of steps of a recording, by number of event. Fed along with the replay.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    pub(super) ends: Vec<End>,
    /// Numbers of the first events after the ends of microbatches.
    microbatches: Vec<u64>,
    pub(super) events: u64,
    /// The step that ended with the process.
    pub(super) last: Option<u32>,
    /// Steps that had ended before the first event.
    before: u32,
    pub(super) trained: bool,
    /// The first event of those that have obtained memory of the device since the last of another kind: for the allocation that comes next.
    obtains: Option<u64>,
    /// Blocks that were live at the last mark and were freed since.
    pub(super) left: Vec<Held>,
}

/// The end of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) step: u32,
    /// Number of the first event after it.
    pub(super) event: u64,
    pub(super) time: Nanos,
}

/// A place in the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// Events of which the same is true.
    pub(super) events: Range<u64>,
    /// The step.
    pub(super) step: u32,
    /// The microbatch within it, and how many there are.
    pub(super) microbatch: Option<(u32, u32)>,
}

impl Steps {
    /// Takes an event of the first pass *before* the replay does. Optional: with it, blocks that a job frees on its way
    /// out, after its last step, can still be called left behind, as the verdict does.
    pub fn leaving(&mut self, e: &Event, replay: &Replay) {
        let Body::FreeRequested(b) = &e.body else { return };
        let Some(held) = replay.block(b.device, b.addr) else { return };
        let marked = match replay.steps() {
            0 => held.microbatch <= replay.microbatches(),
            n => held.step <= n,
        };
        // At most as many as were live at the mark.
        if marked {
            self.left.push(*held);
        }
    }

    /// Takes an item of the first pass and what [`crate::replay::Replay::apply`] said of it.
    pub fn see(&mut self, item: &Item, progress: Progress) {
        match item {
            Item::Event(e) => return self.see_event(e, progress),
            Item::Checkpoint(c) if self.events == 0 => self.before = c.steps,
            _ => {}
        }
        self.pass(progress);
        self.ends_with_it(progress);
    }

    /// The same of an event.
    #[inline]
    pub fn see_event(&mut self, e: &Event, progress: Progress) {
        if progress != Progress::default() {
            self.pass(progress);
            if let Some(step) = progress.step {
                let event = self.obtains.unwrap_or(self.events);
                self.ends.push(End { step, event, time: e.time });
            }
            if progress.microbatch.is_some() {
                self.microbatches.push(self.events);
            }
        }
        self.obtains = match &e.body {
            Body::Segment { op: SegmentOp::Alloc | SegmentOp::Map, .. } | Body::Runtime { .. } => {
                self.obtains.or(Some(self.events))
            }
            _ => None,
        };
        self.trained = self.trained
            || matches!(&e.body, Body::BackwardBegin { .. } | Body::OptimizerBegin(_))
            || matches!(&e.body, Body::Alloc(b) if b.phase.backward || b.phase.optimizer);
        self.events += 1;
    }

    /// A step or a microbatch has ended, if one has.
    fn pass(&mut self, progress: Progress) {
        if progress.step.is_some() || progress.microbatch.is_some() && self.ends.is_empty() {
            self.left.clear();
        }
        self.fold(progress);
    }

    /// Takes what [`crate::replay::Replay::finish`] said: the last step ended with the process, which no event announces.
    pub fn finish(&mut self, progress: Progress) {
        self.fold(progress);
        self.ends_with_it(progress);
    }

    fn ends_with_it(&mut self, progress: Progress) {
        self.last = progress.step.or(self.last);
    }

    fn fold(&mut self, progress: Progress) {
        let known = self.ends.last().map(|s| s.step);
        if let Some(step) = progress.step.filter(|step| known >= Some(*step)) {
            // Where steps are folded, the later ones never were.
            let keep = self.ends.partition_point(|s| s.step < step);
            self.ends.truncate(keep);
        }
    }

    /// The step (from 1) that ends there; `None`: the one that runs.
    fn number(&self, end: Option<&End>) -> u32 {
        end.map_or_else(|| self.ends.last().map_or(self.before, |s| s.step) + 1, |s| s.step)
    }

    /// The microbatch of its step in which an event happened (from 1), and how many the step has; `None` where steps are not
    /// made of several.
    fn microbatch_of(&self, event: u64) -> Option<(u32, u32)> {
        if self.microbatches.is_empty() {
            return None;
        }
        let step = self.ends.partition_point(|s| s.event <= event);
        let begin = step.checked_sub(1).map_or(0, |i| self.ends[i].event);
        let end = self.ends.get(step).map_or(u64::MAX, |s| s.event);
        let ended_by = |event| self.microbatches.partition_point(|&m| m <= event);
        let (before, here) = (ended_by(begin), ended_by(event));
        let number = here - before + 1;
        let count = ended_by(end).saturating_sub(before);
        // What follows the last one, such as the optimizer, belongs to it. Of a step that runs nobody knows how many it has.
        let of = if end == u64::MAX { number.max(count) } else { count };
        (of > 1).then_some((number.min(of) as u32, of as u32))
    }

    /// Where in the run an event happened.
    pub(super) fn place(&self, event: u64) -> Place {
        let end = self.ends.get(self.ends.partition_point(|s| s.event <= event));
        let microbatch = self.microbatches.get(self.microbatches.partition_point(|&m| m <= event)).copied();
        let until = end.map_or(u64::MAX, |s| s.event).min(microbatch.unwrap_or(u64::MAX));
        Place { events: event..until, step: self.number(end), microbatch: self.microbatch_of(event) }
    }

    /// Number of the first event of a step; `None` where it is not in the recording.
    pub fn begin_of(&self, step: u32) -> Option<u64> {
        if step == self.before + 1 {
            return Some(0);
        }
        self.end_of(step.checked_sub(1)?)
    }

    /// Number of the first event after a step; `None` where it has not ended, or is not in the recording.
    pub fn end_of(&self, step: u32) -> Option<u64> {
        self.ends.iter().find(|e| e.step == step).map(|e| e.event)
    }

    /// Numbers of the first and last step that have ended; `None` where none has.
    pub fn ended(&self) -> Option<(u32, u32)> {
        Some((self.ends.first()?.step, self.ends.last()?.step))
    }

    /// Number of the first event of the last `n` steps that have ended before event `until`; what follows them counts too.
    pub fn first_event_of_last(&self, n: u32, until: u64) -> u64 {
        let ended = self.ends.partition_point(|e| e.event <= until);
        ended.checked_sub(n as usize + 1).map_or(0, |i| self.ends[i].event)
    }

    /// As they were before event `until`: nothing has been freed on the way out yet. `leaves`: the event with which the process begins to free what
    /// it holds.
    pub fn before(&self, until: u64, leaves: Option<u64>) -> Steps {
        let is_newest = |last: &u32| self.ends.last().is_none_or(|end| end.step < *last);
        let last = self.last.filter(|_| until >= leaves.unwrap_or(self.events)).filter(is_newest);
        Steps { left: Vec::new(), events: self.events.min(until), last, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, ThreadId};

    fn item() -> Item {
        Item::Event(Event { time: Nanos(7), thread: ThreadId(0), body: Body::ScalerUpdate })
    }

    fn progress(step: Option<u32>) -> Progress {
        Progress { step, ..Progress::default() }
    }

    /// Seconds that were counted before the first optimizer ran: the end of the process turns them into its one step.
    #[test]
    fn a_step_that_the_end_of_the_process_folds_others_into_is_the_last_one() {
        let mut s = Steps::default();
        for p in [None, Some(1), Some(2), None] {
            s.see(&item(), progress(p));
        }
        s.finish(Progress { folded: true, ..progress(Some(1)) });
        let all = s.before(4, None);
        assert_eq!((all.ends.len(), all.last), (0, Some(1)));
        s.see(&item(), progress(Some(1)));
        assert_eq!(s.before(5, None).last, None, "an event ended it");
    }

    #[test]
    fn events_belong_to_the_step_that_ends_after_them() {
        let mut s = Steps::default();
        for p in [None, Some(1), None, Some(2), None] {
            s.see(&item(), progress(p));
        }
        assert_eq!([0, 1, 2, 3, 4, 9].map(|e| s.place(e).step), [1, 2, 2, 3, 3, 3]);
        assert_eq!([1, 2, 9].map(|n| s.first_event_of_last(n, 5)), [1, 0, 0]);
        assert_eq!(s.first_event_of_last(1, 2), 0, "one step has ended by then");
        assert_eq!(
            (s.begin_of(1), s.end_of(1), s.begin_of(3), s.end_of(3)),
            (Some(0), Some(1), Some(3), None)
        );
        assert_eq!((s.begin_of(9), s.ended()), (None, Some((1, 2))));
    }

    #[test]
    fn microbatches_are_counted_within_their_step() {
        let mut s = Steps::default();
        let end =
            |step: Option<u32>, microbatch: Option<u32>| Progress { step, microbatch, ..Progress::default() };
        // Two microbatches a step: one ends within it, the other with it.
        for p in [
            end(None, None),
            end(None, Some(1)),
            end(Some(1), Some(2)),
            end(None, Some(3)),
            end(Some(2), Some(4)),
        ] {
            s.see(&item(), p);
        }
        assert_eq!(
            [0, 1, 2, 3].map(|e| s.microbatch_of(e)),
            [Some((1, 2)), Some((2, 2)), Some((1, 2)), Some((2, 2))]
        );
        let mut s = Steps::default();
        for p in [None, Some(1), Some(2)] {
            s.see(&item(), end(p, p));
        }
        assert_eq!([0, 1].map(|e| s.microbatch_of(e)), [None, None], "steps of one microbatch");
    }

    #[test]
    fn folded_steps_are_one() {
        let mut s = Steps::default();
        for p in [None, Some(1), Some(2), Some(3), Some(2), None] {
            s.see(&item(), progress(p));
        }
        assert_eq!([0, 1, 2, 3, 4].map(|e| s.place(e).step), [1, 2, 2, 2, 3]);
    }

    #[test]
    fn a_recording_that_begins_late_counts_on() {
        let mut s = Steps::default();
        s.see(
            &Item::Checkpoint(Box::new(crate::event::Checkpoint { steps: 40, ..Default::default() })),
            progress(None),
        );
        s.see(&item(), progress(None));
        assert_eq!(s.place(0).step, 41);
        s.see(&item(), progress(Some(41)));
        assert_eq!([0, 1].map(|e| s.place(e).step), [41, 42]);
    }
}
