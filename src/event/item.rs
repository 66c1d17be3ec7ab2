//! What a reader hands out: events, and what must be known to understand them.

use super::{Bytes, Checkpoint, DeviceId, Event, Nanos, StackId};

/// One thing out of a recording, in order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Item {
    /// Something happened.
    Event(Event),
    /// A stack id used by later events, already resolved into [`super::Names`] by the reader.
    Stack(StackId),
    /// A text used by later events, already in [`super::Names`].
    Name(u32),
    /// Facts about the process (a JSON object, see docs/recording.md); later ones override earlier ones key by key.
    Meta(serde_json::Value),
    /// The whole state at this moment, so that what came before may be missing.
    Checkpoint(Box<Checkpoint>),
    /// What the driver said about a device, as the watcher read it.
    Driver(DriverMemory),
    /// The recording says that it is complete (`ended` of the last `Meta` tells how), at this time.
    End(Nanos),
}

/// Memory of a device as the driver counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverMemory {
    /// When it was read.
    pub time: Nanos,
    /// Which device (the job's ordinal).
    pub device: DeviceId,
    /// Total.
    pub total: Bytes,
    /// Free.
    pub free: Bytes,
    /// Used by the recorded process; `None` where the driver does not tell (containers).
    pub process: Option<Bytes>,
}
