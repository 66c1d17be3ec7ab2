//! Which event belongs to which step, as it is known once the recording has been read.

use std::io::{self, Write};

use super::Source;
use super::pickle::Pickler;
use crate::event::{Body, Event, Item, Nanos};
use crate::replay::{Held, Progress, Replay};

/// The ends of steps of a recording, by number of event. Fed along with the replay.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    ends: Vec<End>,
    events: u64,
    /// Steps that had ended before the first event.
    before: u32,
    trained: bool,
    /// Blocks that were live at the last mark and were freed since.
    left: Vec<Held>,
}

/// The end of a step.
#[derive(Clone, Copy, Debug)]
struct End {
    step: u32,
    /// Number of the first event after it.
    event: u64,
    time: Nanos,
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

    /// Blocks that were live at the last mark and were freed since.
    pub(super) fn left(&self) -> &[Held] {
        &self.left
    }

    /// Takes an item of the first pass and what [`crate::replay::Replay::apply`] said of it.
    pub fn see(&mut self, item: &Item, progress: Progress) {
        if progress.step.is_some() || progress.microbatch.is_some() && self.ends.is_empty() {
            self.left.clear();
        }
        match item {
            Item::Event(e) => {
                if let Some(step) = progress.step {
                    // Where steps are folded, the later ones never were.
                    let keep = self.ends.partition_point(|s| s.step < step);
                    self.ends.truncate(keep);
                    self.ends.push(End { step, event: self.events, time: e.time });
                }
                self.trained |= matches!(e.body, Body::BackwardBegin { .. } | Body::OptimizerBegin(_))
                    || matches!(e.body, Body::Alloc(b) if b.phase.backward || b.phase.optimizer);
                self.events += 1;
            }
            Item::Checkpoint(c) if self.events == 0 => self.before = c.steps,
            _ => {}
        }
    }

    /// The step in which an event happened (from 1).
    pub(super) fn of(&self, event: u64) -> u32 {
        match self.ends.get(self.ends.partition_point(|s| s.event <= event)) {
            Some(s) => s.step,
            None => self.ends.last().map_or(self.before, |s| s.step) + 1,
        }
    }

    /// A backward or an optimizer was seen, so that allocations outside of both are a forward's.
    pub(super) fn trained(&self) -> bool {
        self.trained
    }

    /// Number of the first event of the last `n` steps that have ended; what follows them counts too.
    pub(super) fn first_event_of_last(&self, n: u32) -> u64 {
        match self.ends.len().checked_sub(n as usize + 1) {
            Some(i) => self.ends[i].event,
            None => 0,
        }
    }

    /// The steps as `external_annotations`, from the event where the history begins.
    pub(super) fn write<W: Write>(
        &self,
        out: &mut Pickler<W>,
        source: &Source<'_>,
        from: u64,
        until: Nanos,
    ) -> io::Result<()> {
        out.list()?;
        let mut begin = Nanos(0);
        for end in &self.ends {
            if end.event > from && end.time <= until {
                for device in source.replay.devices() {
                    for (stage, time) in [("START", begin), ("END", end.time)] {
                        out.dict()?;
                        out.text("stage")?;
                        out.text(stage)?;
                        out.text("name")?;
                        out.shared_text(&format!("step {}", end.step))?;
                        out.text("device")?;
                        out.int(device.id.0)?;
                        out.text("time_us")?;
                        out.unsigned(source.epoch_us.saturating_add(time.0 / 1000))?;
                        out.close()?;
                    }
                }
            }
            begin = end.time;
        }
        out.close()
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

    #[test]
    fn events_belong_to_the_step_that_ends_after_them() {
        let mut s = Steps::default();
        for p in [None, Some(1), None, Some(2), None] {
            s.see(&item(), progress(p));
        }
        assert_eq!([0, 1, 2, 3, 4, 9].map(|e| s.of(e)), [1, 2, 2, 3, 3, 3]);
        assert_eq!(s.first_event_of_last(1), 1);
        assert_eq!(s.first_event_of_last(2), 0);
        assert_eq!(s.first_event_of_last(9), 0);
    }

    #[test]
    fn folded_steps_are_one() {
        let mut s = Steps::default();
        for p in [None, Some(1), Some(2), Some(3), Some(2), None] {
            s.see(&item(), progress(p));
        }
        assert_eq!([0, 1, 2, 3, 4].map(|e| s.of(e)), [1, 2, 2, 2, 3]);
    }

    #[test]
    fn a_recording_that_begins_late_counts_on() {
        let mut s = Steps::default();
        s.see(
            &Item::Checkpoint(Box::new(crate::event::Checkpoint { steps: 40, ..Default::default() })),
            progress(None),
        );
        s.see(&item(), progress(None));
        assert_eq!(s.of(0), 41);
        s.see(&item(), progress(Some(41)));
        assert_eq!([0, 1].map(|e| s.of(e)), [41, 42]);
    }
}
