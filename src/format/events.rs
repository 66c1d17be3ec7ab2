//! An Events page: consecutive records of one ring, as columns that predict each other.
//!
//! What a record says is mostly known from the records before it: a free repeats its allocation's size and stream, torch's
//! totals move by the rounded size, sequence numbers count up, the same line asks for the same size again. A [`Model`] that
//! writer and reader share says what is expected; a *tag* per record tells which expectations were met, and only the rest
//! is written. Addresses refer back to the last record with the same address. The columns then go through zstd as a whole.

mod decode;
mod encode;
mod model;
#[cfg(test)]
mod tests;

use super::wire::{Cursor, Malformed, put};
pub use decode::Decoder;
pub use encode::Encoder;

/// Most records in a page.
pub const MAX_RECORDS: usize = 1 << 16;
/// Columns of a page: tags, new tags, time, back references, addresses, sizes, words, stacks, sequence, totals, literals.
const COLUMNS: usize = 11;
const TAGS: usize = 0;
const NEW_TAGS: usize = 1;
const TIME: usize = 2;

/// Expectations that were met, in a tag of an allocator record.
mod met {
    pub(super) const SEQUENCE: u8 = 1;
    pub(super) const TOTALS: u8 = 2;
    pub(super) const BACK: u8 = 4;
    pub(super) const SIZE: u8 = 8;
    pub(super) const STREAM: u8 = 16;
    /// Two bits: how the rounded size is known.
    pub(super) const ROUNDED: u8 = 32 | 64;
    pub(super) const ROUNDED_UP: u8 = 32;
    pub(super) const ROUNDED_SAME: u8 = 64;
    pub(super) const ROUNDED_WRITTEN: u8 = 32 | 64;
    pub(super) const STACK: u8 = 128;
}

/// Words that are not zero, in a tag of any other record.
mod present {
    pub(super) const A: u8 = 1;
    pub(super) const B: u8 = 2;
    pub(super) const C: u8 = 4;
    pub(super) const ROUNDED_SEQ: u8 = 8;
    pub(super) const ALLOCATED: u8 = 16;
    pub(super) const RESERVED: u8 = 32;
    pub(super) const STACK: u8 = 64;
}

/// Which records a page holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventsHead {
    /// The ring they came from.
    pub ring: u32,
    /// The ring's owner: see [`crate::event::ThreadId`].
    pub thread: u32,
    /// Index of the first record in its ring, counted from the recording's beginning.
    pub first: u64,
    /// How many they are.
    pub count: u32,
    /// Times are multiples of 2^shift ticks.
    pub shift: u8,
}

impl EventsHead {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, u64::from(self.ring));
        put(out, u64::from(self.thread));
        put(out, self.first);
        put(out, u64::from(self.count));
        out.push(self.shift);
    }

    /// Reads the head of a page, without the records.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(c: &mut Cursor<'_>) -> Result<EventsHead, Malformed> {
        let head = EventsHead {
            ring: c.number32("ring")?,
            thread: c.number32("thread")?,
            first: c.number("first index")?,
            count: c.number32("record count")?,
            shift: c.byte("time shift")?,
        };
        if head.count as usize > MAX_RECORDS || head.shift > 20 || head.ring > 255 || head.first > 1 << 60 {
            return Err(c.bad("events head"));
        }
        Ok(head)
    }
}

/// `kind, device, flags, phase, met`: what a tag stands for.
type TagKey = [u8; 5];
/// The tag that says "a new one follows".
const NEW: u8 = 255;
