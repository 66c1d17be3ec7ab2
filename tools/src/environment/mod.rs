//! PyTorch on a simulated GPU, as the commands use it: `strandline simulate`, `run --simulate`, `demo`.

mod command;
mod prepare;

pub(crate) use command::main;
pub(crate) use prepare::{TORCH, cache, is_simulated, is_within, prepare, variables};
