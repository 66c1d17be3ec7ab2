//! What a reader hands out: events, and what must be known to understand them.

use super::{Bytes, Checkpoint, DeviceId, Event, Nanos, StackId, ThreadId};

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
    /// A thread that later events name.
    Thread(ThreadInfo),
    /// Events that the bound on the file's size has dropped; a [`Item::Checkpoint`] follows.
    Dropped(Dropped),
    /// What the driver said about a device, as the watcher read it.
    Driver(DriverMemory),
    /// The recording says that it is complete (`ended` of the last `Meta` tells how), at this time.
    End(Nanos),
}

/// A thread of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Its number in this recording.
    pub thread: ThreadId,
    /// Its number in the system.
    pub tid: u32,
    /// Its name then, at most 15 bytes.
    pub name: String,
    /// An autograd worker.
    pub autograd: bool,
}

/// A range of events that is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Records in it.
    pub records: u64,
    /// When it begins.
    pub from: Nanos,
    /// When it ends.
    pub to: Nanos,
    /// The step (from 1) in which it begins.
    pub first_step: u32,
    /// The last step that is not kept event by event.
    pub last_step: u32,
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
