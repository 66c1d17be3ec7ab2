//! Events: an instant copied from a stream, or a place in a capture.

use crate::capture::Point;
use crate::code::{Code, Outcome};
use crate::handle::Handles;

/// `cudaEventDisableTiming`.
pub const NO_TIMING: u32 = 2;
/// `cudaEventRecordExternal` and `cudaEventWaitExternal`: a node of the captured graph, not an edge of it.
pub const EXTERNAL: u32 = 1;

/// What an event was last recorded as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Nothing yet: complete.
    Never,
    /// Work that will be done at that instant.
    At(u64),
    /// A place in a capture of that id.
    Captured(u64, Point),
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// Flags it was created with.
    pub flags: u32,
    /// What it stands for now.
    pub recorded: Recorded,
}

/// All events.
pub struct Events {
    live: Handles<Event>,
}

impl Default for Events {
    fn default() -> Self {
        Events { live: Handles::new(1) }
    }
}

impl Events {
    /// Makes an event.
    pub fn create(&mut self, flags: u32) -> usize {
        self.live.insert(Event { flags, recorded: Recorded::Never })
    }

    /// Destroys an event.
    pub fn destroy(&mut self, handle: usize) -> Outcome {
        self.live.remove(handle).map(drop)
    }

    /// An event.
    pub fn get(&self, handle: usize) -> Outcome<&Event> {
        self.live.get(handle)
    }

    /// Makes the event stand for something else.
    pub fn record(&mut self, handle: usize, recorded: Recorded) -> Outcome {
        self.live.get_mut(handle)?.recorded = recorded;
        Ok(())
    }

    /// When the event completes; an event of a capture never does.
    pub fn done(&self, handle: usize) -> Outcome<u64> {
        match self.live.get(handle)?.recorded {
            Recorded::Never => Ok(0),
            Recorded::At(instant) => Ok(instant),
            Recorded::Captured(..) => Err(Code::CAPTURED_EVENT),
        }
    }

    /// Milliseconds between two events that have both completed.
    pub fn elapsed(&self, from: usize, to: usize, now: u64) -> Outcome<f32> {
        let instant = |handle: usize| {
            let event = self.live.get(handle)?;
            match event.recorded {
                Recorded::At(instant) if event.flags & NO_TIMING == 0 => Ok(instant),
                Recorded::Captured(..) => Err(Code::CAPTURED_EVENT),
                _ => Err(Code::INVALID_HANDLE),
            }
        };
        let (from, to) = (instant(from)?, instant(to)?);
        if now < from.max(to) {
            return Err(Code::NOT_READY);
        }
        Ok(((to as f64 - from as f64) / 1e6) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_needs_two_completed_events_with_timing() {
        let mut events = Events::default();
        let (a, b, silent) = (events.create(0), events.create(0), events.create(NO_TIMING));
        assert_eq!(events.elapsed(a, b, 0), Err(Code::INVALID_HANDLE));
        events.record(a, Recorded::At(1_000_000)).unwrap();
        events.record(b, Recorded::At(3_500_000)).unwrap();
        events.record(silent, Recorded::At(1)).unwrap();
        assert_eq!(events.elapsed(a, b, 3_499_999), Err(Code::NOT_READY));
        assert_eq!(events.elapsed(a, b, 3_500_000), Ok(2.5));
        assert_eq!(events.elapsed(b, a, 3_500_000), Ok(-2.5));
        assert_eq!(events.elapsed(a, silent, 9_999_999), Err(Code::INVALID_HANDLE));
    }
}
