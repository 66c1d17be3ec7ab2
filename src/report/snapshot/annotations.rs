//! The steps as a snapshot's `external_annotations`.

use super::field::Field;
use super::out::Out;
use super::source::Source;
use super::steps::{End, Steps};
use super::words::Word;
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
                let name = format!("step {}", end.step);
                for device in source.replay.devices() {
                    for (stage, time) in [(Word::Start, begin), (Word::End, time)] {
                        let time_us = source.epoch_us.saturating_add(time.0 / 1000);
                        out.record(
                            source.names,
                            &[
                                (Word::Stage, Field::Word(stage)),
                                (Word::Name, Field::New(&name)),
                                (Word::Device, Field::Number(device.id.0.into())),
                                (Word::TimeUs, Field::Number(time_us)),
                            ],
                        )?;
                    }
                }
            }
            begin = end.time;
        }
        out.close()
    }
}
