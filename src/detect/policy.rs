//! What is known of a job from outside of its recording.

/// What the user set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The step after which the job will end by itself, where known: a leak that fills the device later is no
    /// alert.
    pub planned_steps: Option<u32>,
}
