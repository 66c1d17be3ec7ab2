//! What the next record is expected to be. Writer and reader feed it the same records and so expect the same.

use crate::format::raw::{Kind, Record, SEQUENCE_MODULUS, flag};

/// Expectations from the records so far.
pub(super) struct Model {
    devices: Vec<Device>,
    /// By number of the stack in the page: what came after it, and what it last asked for.
    stacks: Vec<Habit>,
    last_stack: u32,
}

#[derive(Clone, Copy, Default)]
struct Device {
    sequence: u32,
    allocated: u64,
    reserved: u64,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Habit {
    pub(super) next: u32,
    pub(super) size: u64,
    pub(super) stream: u64,
}

/// Whether a record names a block or a range by its address, and goes by the model.
#[inline]
pub(super) fn is_block(kind: u8) -> bool {
    kind <= Kind::SegmentUnmap as u8
        || kind == Kind::Report as u8
        || kind == Kind::FreeWaits as u8
        || kind == Kind::RecordStream as u8
}

/// torch's default rounding.
#[inline]
pub(super) fn rounded_up(size: u64) -> u64 {
    size.max(1).saturating_add(511) & !511
}

impl Default for Model {
    fn default() -> Model {
        Model { devices: vec![Device::default(); 256], stacks: Vec::new(), last_stack: 0 }
    }
}

impl Model {
    pub(super) fn reset(&mut self) {
        self.devices.fill(Device::default());
        self.stacks.clear();
        self.last_stack = 0;
    }

    #[inline]
    fn device(&self, d: u8) -> Device {
        self.devices.get(usize::from(d)).copied().unwrap_or_default()
    }

    #[inline]
    pub(super) fn sequence(&self, device: u8) -> u32 {
        self.device(device).sequence.wrapping_add(1) % SEQUENCE_MODULUS
    }

    /// Page number of the stack that follows the last one.
    #[inline]
    pub(super) fn next_stack(&self) -> u32 {
        self.habit(self.last_stack).next
    }

    #[inline]
    pub(super) fn habit(&self, stack: u32) -> Habit {
        self.stacks.get(stack as usize).copied().unwrap_or_default()
    }

    /// Notes what an allocation from the stack with this page number asked for.
    #[inline]
    pub(super) fn asked(&mut self, stack: u32, size: u64, stream: u64) {
        let i = stack as usize;
        if i >= self.stacks.len() {
            self.stacks.resize(i + 1, Habit::default());
        }
        if let Some(h) = self.stacks.get_mut(self.last_stack as usize) {
            h.next = stack;
        }
        if let Some(h) = self.stacks.get_mut(i) {
            h.size = size;
            h.stream = stream;
        }
        self.last_stack = stack;
    }

    /// Totals that are expected with this record, whose other words are known.
    #[inline]
    pub(super) fn totals(&self, r: &Record) -> (u64, u64) {
        if r.flags & flag::REPORTED == 0 {
            return (0, 0);
        }
        let d = self.device(r.device);
        let allocated = match r.kind {
            k if k == Kind::Alloc as u8 => d.allocated.wrapping_add(r.rounded()),
            k if k == Kind::FreeRequested as u8 => d.allocated.wrapping_sub(r.rounded()),
            k if k == Kind::Report as u8 => d.allocated.wrapping_add(r.b),
            _ => d.allocated,
        };
        (allocated, d.reserved)
    }

    /// Notes a block record.
    #[inline]
    pub(super) fn seen(&mut self, r: &Record) {
        let Some(d) = self.devices.get_mut(usize::from(r.device)) else { return };
        if r.kind <= Kind::SegmentUnmap as u8 {
            d.sequence = r.sequence();
        }
        if r.flags & flag::REPORTED != 0 {
            d.allocated = r.allocated;
            d.reserved = r.reserved;
        } else if r.kind == Kind::SegmentAlloc as u8 || r.kind == Kind::SegmentMap as u8 {
            d.reserved = d.reserved.wrapping_add(r.b);
        } else if r.kind == Kind::SegmentFree as u8 || r.kind == Kind::SegmentUnmap as u8 {
            d.reserved = d.reserved.wrapping_sub(r.b);
        }
    }
}
