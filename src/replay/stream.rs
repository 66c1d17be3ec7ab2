//! Streams: who they are, whether they are side streams, and how far they are known to be idle.

use crate::event::{Bytes, DeviceId, Nanos, SiteId, StreamHandle, StreamId};
use rustc_hash::FxHashMap;

/// Whether the work that used a block on a side stream is known to be over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Quiet {
    /// The host learnt that an event completed which was recorded on the stream after its scope had been
    /// left.
    Proven,
    /// Nothing was seen from which completion follows.
    #[default]
    NotProven,
    /// The scope was not left: the stream is still in use.
    Disproven,
}

/// How a stream uses the pools that serve it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Blocks allocated from them.
    pub allocs: u64,
    /// The step in which one was allocated last (from 1).
    pub last_step: u32,
    /// The largest block ever, and the line that allocated it.
    pub largest: (Bytes, SiteId),
}

/// One stream of one device; a handle that is reused after a destroy is another stream.
///
/// Streams are numbered in the order in which a block was first allocated on them, or a thread first entered
/// them (as the recording's checkpoints do); not when they are created: PyTorch creates 128 at once.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// How often it was current on the thread that trains when an optimizer or a backward ended, or at a
    /// manual step.
    pub at_marks: u32,
    /// Graph captures that began on it.
    pub captures: u32,
    /// Exits from it whose work the host knows to be done.
    pub known_done: u64,
    /// At the last step's end: all blocks that were old then are known to be out of use by the device.
    pub quiet_old: Quiet,
    /// Blocks allocated on it.
    pub allocs: u64,
    /// Its default pools, and the private ones.
    pub pools: [PoolUse; 2],
}

/// All streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    pub(super) list: Vec<Stream>,
    by_handle: FxHashMap<(u8, u64), StreamId>,
    /// The device of a handle that is not the default stream's.
    device_of: FxHashMap<u64, StreamId>,
    /// Handles that were destroyed, and how often.
    epochs: FxHashMap<(u8, u64), u32>,
    last: Option<(u8, u64, StreamId)>,
    /// Marks at which some stream of the device was current.
    pub(super) marks: FxHashMap<u8, u32>,
    /// Devices on which a default stream is known.
    defaults: u32,
}

impl Streams {
    /// The stream with this handle on this device, made where it is new.
    #[inline]
    pub(super) fn id(&mut self, device: DeviceId, handle: StreamHandle, now: Nanos) -> StreamId {
        if let Some((d, h, id)) = self.last
            && (d, h) == (device.0, handle.0)
        {
            return id;
        }
        let id = match self.by_handle.get(&(device.0, handle.0)) {
            Some(id) => *id,
            None => self.add(device, handle, now),
        };
        self.last = Some((device.0, handle.0, id));
        id
    }

    /// The stream with this handle on this device, if it has appeared.
    pub(super) fn find(&self, device: DeviceId, handle: StreamHandle) -> Option<StreamId> {
        self.by_handle.get(&(device.0, handle.0)).copied()
    }

    fn add(&mut self, device: DeviceId, handle: StreamHandle, now: Nanos) -> StreamId {
        let id = StreamId(self.list.len() as u32);
        let key = (device.0, handle.0);
        let epoch = self.epochs.get(&key).copied().unwrap_or(0);
        self.list.push(Stream { id, device, handle, epoch, first_seen: now, ..Stream::default() });
        self.by_handle.insert(key, id);
        if handle.0 == 0 {
            self.defaults += 1;
        } else {
            self.device_of.insert(handle.0, id);
        }
        id
    }

    /// The stream a call named by handle alone. `None` where it is not known, or where it is the default
    /// stream of one of several devices.
    #[inline]
    pub(super) fn known(&self, handle: StreamHandle) -> Option<StreamId> {
        if handle.0 != 0 {
            return self.device_of.get(&handle.0).copied();
        }
        if self.defaults != 1 {
            return None;
        }
        self.list.iter().find(|s| s.handle.0 == 0).map(|s| s.id)
    }

    pub(super) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.list.get_mut(id.0 as usize)
    }

    /// The handle does not mean its stream any more.
    pub(super) fn destroy(&mut self, handle: StreamHandle, now: Nanos) -> Option<StreamId> {
        let id = self.device_of.remove(&handle.0)?;
        self.last = None;
        let s = self.list.get_mut(id.0 as usize)?;
        s.destroyed = Some(now);
        let key = (s.device.0, handle.0);
        self.by_handle.remove(&key);
        *self.epochs.entry(key).or_default() += 1;
        Some(id)
    }

    /// A side stream: not the default one, and current at less than a tenth of the device's marks.
    pub(super) fn is_side(&self, id: StreamId) -> bool {
        self.list.get(id.0 as usize).is_some_and(|s| {
            let marks = self.marks.get(&s.device.0).copied().unwrap_or(0);
            s.handle.0 != 0
                && u64::from(s.at_marks) * 10 <= u64::from(marks)
                && (marks > 0 || s.at_marks == 0)
        })
    }
}
