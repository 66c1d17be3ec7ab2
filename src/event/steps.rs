//! Where a step ends: a pure machine over events, used by whoever must tag blocks with their step.
//!
//! Raw facts come in (optimizer hooks, backward calls, scaler updates, manual marks, allocations); ends of steps and
//! of microbatches come out. See [`StepMachine`].

use super::Event;

/// What steps are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum StepSource {
    /// Nothing that could be counted was seen.
    #[default]
    None,
    /// Ticks of time.
    Time,
    /// Ends of backward.
    Backward,
    /// Optimizer hooks.
    Optimizer,
    /// `strandline_step`.
    Manual,
}

/// What the machine says after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// Step `n` (from 1) ended just *before* the event that was fed. Where `n` is not greater than the last step that
    /// was announced, the steps from `n` on were one step: they are folded into `n`.
    Step {
        /// Which.
        n: u32,
        /// How it is known.
        source: StepSource,
    },
    /// Microbatch `n` (from 1) ended just before the event that was fed.
    Microbatch(u32),
}

/// The machine.
#[derive(Clone, Debug, Default)]
pub struct StepMachine {
    steps: u32,
    microbatches: u32,
    source: StepSource,
}

impl StepMachine {
    /// Feeds the next event in order; at most one step and one microbatch end before it.
    pub fn feed(&mut self, _e: &Event) -> [Option<Boundary>; 2] {
        [None, None]
    }
    /// The recording is over: a step whose optimizer has run has ended.
    pub fn finish(&mut self) -> Option<Boundary> {
        None
    }
    /// Steps that have ended.
    pub fn steps(&self) -> u32 {
        self.steps
    }
    /// Microbatches that have ended.
    pub fn microbatches(&self) -> u32 {
        self.microbatches
    }
    /// What steps are counted by at present.
    pub fn source(&self) -> StepSource {
        self.source
    }
    /// The state as bytes, for a checkpoint.
    pub fn save(&self) -> Vec<u8> {
        Vec::new()
    }
    /// The state out of a checkpoint; `None` where the bytes are not one.
    pub fn load(_b: &[u8]) -> Option<StepMachine> {
        None
    }
}
