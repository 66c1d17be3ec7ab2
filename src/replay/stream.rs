//! Streams: who they are, whether they are side streams, and how far they are known to be idle.

use crate::event::{DeviceId, Nanos, StreamHandle, StreamId};

/// Whether the work that used a block on a side stream is known to be over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Quiet {
    /// The host learnt that an event completed which was recorded on the stream after its scope had been left.
    Proven,
    /// Nothing was seen from which completion follows.
    #[default]
    NotProven,
    /// The scope was not left: the stream is still in use.
    Disproven,
}

/// One stream of one device; a handle that is reused after a destroy is another stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Dense number in order of first appearance.
    pub id: StreamId,
    /// Device.
    pub device: DeviceId,
    /// Raw handle; 0 is the default stream.
    pub handle: StreamHandle,
    /// How many streams had this handle on this device before.
    pub epoch: u32,
    /// When it appeared first.
    pub first_seen: Nanos,
    /// When it was destroyed.
    pub destroyed: Option<Nanos>,
    /// How often a thread made it its current stream.
    pub entered: u64,
    /// How often it was left again with no thread in it any more.
    pub left: u64,
    /// How often it was the current stream of the marking thread at a mark.
    pub at_marks: u32,
    /// Graph captures that began on it.
    pub captures: u32,
    /// The host was told that it is done (synchronize or successful query), or it is known through another stream.
    pub known_done: u64,
    /// At the last mark: all blocks that were old then are known to be out of use by the device.
    pub quiet_old: Quiet,
    /// Blocks allocated on it.
    pub allocs: u64,
}
