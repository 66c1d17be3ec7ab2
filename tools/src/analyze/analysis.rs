//! A replay with the detectors that look at it: whoever reads a recording, whole or while it is written, hands its items to one.

use super::native::symbolized;
use super::suppress::{Suppressions, Within};
use crate::known;
use crate::share::Share;
use crate::symbols::Symbols;
use strandline::detect::{Detector, Policy};
use strandline::event::{Event, Item, Names};
use strandline::replay::{Progress, Replay};

/// So many events are read before progress is told again.
pub(super) const TELL: u64 = 1 << 16;

/// What is true of a process so far.
pub(crate) struct Analysis {
    /// Its memory.
    pub(crate) replay: Replay,
    /// What was found in it.
    pub(crate) detector: Detector,
}

impl Analysis {
    /// Of a process of which nothing is known yet.
    pub(crate) fn new() -> Analysis {
        Analysis { replay: Replay::new(), detector: Detector::new(Policy::default()) }
    }

    /// Takes the next item; what ended with it.
    #[inline]
    pub(crate) fn take(&mut self, item: &Item, names: &Names) -> Progress {
        let progress = self.replay.apply(item, names);
        self.detector.after(progress, &self.replay);
        progress
    }

    /// The same of an event.
    #[inline]
    pub(super) fn take_event(&mut self, event: &Event) -> Progress {
        let progress = self.replay.apply_event(event);
        self.detector.after(progress, &self.replay);
        progress
    }

    /// Nothing more comes. A killed process says no end: its last step is over all the same.
    pub(crate) fn finish(&mut self) -> Progress {
        let progress = self.replay.finish();
        self.detector.after(progress, &self.replay);
        progress
    }

    /// Lets findings hear what is known of who keeps their blocks, and marks those that are suppressed. `began`: when the recording did,
    /// in nanoseconds of the Unix epoch; `share`: what folds its private names.
    pub(crate) fn refine(
        &mut self,
        names: &Names,
        began: u64,
        share: Option<&Share>,
        suppressions: &Suppressions,
        symbols: &mut Symbols,
    ) {
        let Analysis { replay, detector } = self;
        detector.hear(|f| known::testimony(f, replay, began, share));
        if suppressions.is_empty() {
            return;
        }
        let within = Within { replay, names, share };
        detector.suppress(|f| {
            let known = known::about(f, replay, names, began, share);
            let native = |stack| symbolized(names.native(stack), share, symbols).frames;
            suppressions.of(f, &known, &within, native)
        });
    }
}
