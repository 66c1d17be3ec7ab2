//! What is looked after while the job runs, by the thread that writes its recording.

use serde_json::Value;

/// Something that the writing thread calls in each of its rounds, a few hundred times a second, and once at the end.
pub(crate) trait Housekeeping: Send {
    /// One round, so many nanoseconds after the recording began. Facts that it returns go into the recording: a JSON object.
    fn poll(&mut self, elapsed_ns: u64) -> Option<Value>;

    /// It is in the middle of something: the next round should come soon.
    fn is_busy(&self) -> bool {
        false
    }

    /// Host memory that it has mapped, in bytes.
    fn resident(&self) -> u64 {
        0
    }

    /// What is still to be told when the process ends.
    fn last_facts(&mut self) -> Option<Value> {
        None
    }

    /// The recording is complete: what it keeps elsewhere can go.
    fn end(&mut self) {}
}

/// A round without anything else to it.
impl<F: FnMut(u64) -> Option<Value> + Send> Housekeeping for F {
    fn poll(&mut self, elapsed_ns: u64) -> Option<Value> {
        self(elapsed_ns)
    }
}
