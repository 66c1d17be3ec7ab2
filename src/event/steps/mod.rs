//! Where a step ends: a pure machine over events, used by whoever must tag blocks with their step.
//!
//! Raw facts come in (optimizer hooks, backward calls, scaler updates, manual marks, allocations); ends of
//! steps and of microbatches come out. See [`StepMachine`].

mod gradients;
mod in_pass;
mod iterations;
mod machine;
mod once;
mod party;
mod passes;
mod save;
#[cfg(test)]
mod tests;
mod threads;
mod turns;

pub use iterations::{Iterations, Recurring};
pub use machine::{Boundary, StepMachine, StepSource, TICK};
pub use passes::InPass;
