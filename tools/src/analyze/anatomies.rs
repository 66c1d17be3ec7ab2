//! The second pass: what filled each device at its peak, and where an allocation failed.

use super::analysis::TELL;
use super::given::Given;
use super::judged::Judged;
use crate::error::Error;
use strandline::replay::anatomy::{self, Pass};
use strandline::report::Moment;

/// Devices that get a table. Each costs a replay of its own.
const MOST: usize = 8;

/// The anatomies of a judged recording.
///
/// # Errors
/// The recording cannot be read again.
pub(super) fn measure(judged: &Judged, tell: &mut dyn FnMut(u64)) -> Result<Vec<Moment>, Error> {
    let mut moments = Vec::new();
    for device in judged.replay.devices().filter(|d| d.peak_allocated.bytes.0 > 0).take(MOST) {
        // Where memory ran out, that is the moment to be explained; else the peak is.
        moments.push(match judged.until {
            Some(until) => {
                let event = until.events.saturating_sub(1);
                anatomy::Moment { device: device.id, event, at: anatomy::At::Event, free: None }
            }
            None => anatomy::Moment::of(device),
        });
    }
    let mut passes: Vec<(anatomy::Moment, Pass)> = moments.into_iter().map(|m| (m, Pass::new(m))).collect();
    if passes.is_empty() {
        return Ok(Vec::new());
    }
    let mut feed = judged.again()?;
    let mut seen = judged.replay.events();
    let mut told = seen;
    while let Some((given, names)) = feed.next() {
        match given {
            Given::Events(events) => {
                // One pass after the other: each has its own replay.
                for (_, pass) in &mut passes {
                    events.iter().for_each(|e| pass.apply_event(e));
                }
                seen += events.len() as u64;
            }
            Given::Item(item) => passes.iter_mut().for_each(|(_, pass)| pass.apply(&item, names)),
        }
        if seen - told > TELL {
            told = seen;
            tell(seen);
        }
    }
    if !judged.is_running() {
        passes.iter_mut().for_each(|(_, pass)| pass.ends());
    }
    let finish = |(moment, pass): (anatomy::Moment, Pass)| {
        let anatomy =
            pass.finish(&|held| judged.is_counted(held), &|_, held| judged.class(held, &judged.replay))?;
        Some(Moment { device: moment.device, at: moment.at, anatomy })
    };
    Ok(passes.into_iter().filter_map(finish).collect())
}

impl Judged {
    /// Whether memory was allocated already when the recording began: such is there now, or was at a device's peak.
    ///
    /// # Errors
    /// The recording cannot be read again.
    pub(crate) fn has_memory_from_before(&self) -> Result<bool, Error> {
        let now = self.replay.devices().any(|d| d.before_recording.0 > 0);
        if now || !self.replay.devices().any(|d| d.had_from_before) {
            return Ok(now);
        }
        let then = measure(self, &mut |_| {})?;
        Ok(then.iter().any(|m| m.anatomy.before_recording.0 > 0))
    }
}
