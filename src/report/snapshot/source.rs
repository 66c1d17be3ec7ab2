//! What a snapshot is made from.

use super::filter::Filter;
use super::out::Language;
use super::steps::Steps;
use crate::event::Names;
use crate::replay::Replay;

/// What a snapshot is made from, besides the items of the second pass.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The process at the moment of the snapshot.
    pub replay: &'a Replay,
    /// Stacks.
    pub names: &'a Names,
    /// Steps, from the same first pass.
    pub steps: &'a Steps,
    /// Unix time in microseconds at which the recording's clock was 0.
    pub epoch_us: u64,
    /// What the job had in `PYTORCH_CUDA_ALLOC_CONF`; empty where it was not set.
    pub alloc_conf: &'a str,
    /// Number of the event with which the history begins; 0: all of it. What was there before is there from the beginning.
    pub from: u64,
    /// What is left out.
    pub filter: &'a Filter,
    /// The language to write it in.
    pub language: Language,
}
