//! What hooks need to record: whether the process does, its rings, and how facts get into its recording.

pub(crate) mod at_work;
pub(crate) mod before;
pub(crate) mod devices;
pub(crate) mod guard;
mod housekeeping;
pub(crate) mod overhead;
pub(crate) mod stack_memory;
mod state;
pub(crate) mod thread;

pub(crate) use housekeeping::Housekeeping;
#[cfg(test)]
pub(crate) use state::pretend_to_record;
pub(crate) use state::{
    Control, Session, arm, config, fail, is_inert, is_recording, is_stopped, on_first_call, pass_through,
    ready_lanes, record, record_metadata, recording_path, region, say_attached, session, set_ready_lanes,
    set_stopped, since_began, step_time, wants_steps,
};
pub(crate) use thread::Thread;
