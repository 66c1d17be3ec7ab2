//! The steps as a snapshot's `external_annotations`.

use super::out::Out;
use super::source::Source;
use super::steps::{End, Steps};
use crate::event::Nanos;
use std::io::{self, Write};

impl Steps {
    /// The steps as `external_annotations`, from the event where the history begins.
    pub(super) fn write<W: Write>(
        &self,
        out: &mut Out<W>,
        source: &Source<'_>,
        until: Nanos,
    ) -> io::Result<()> {
        out.list()?;
        let mut begin = Nanos(0);
        // Nothing of the last one comes after its end.
        let last = self.last.map(|step| End { step, event: self.events, time: Nanos(until.0 + 1000) });
        for end in self.ends.iter().chain(&last) {
            if end.event > source.from && end.event <= self.events {
                let time = if last.is_some() { end.time } else { end.time.min(until) };
                for device in source.replay.devices() {
                    for (stage, time) in [("START", begin), ("END", time)] {
                        out.dict()?;
                        out.key("stage")?.text(stage)?;
                        out.key("name")?.shared_text(&format!("step {}", end.step))?;
                        out.key("device")?.int(device.id.0)?;
                        out.key("time_us")?.unsigned(source.epoch_us.saturating_add(time.0 / 1000))?;
                        out.close()?;
                    }
                }
            }
            begin = end.time;
        }
        out.close()
    }
}
