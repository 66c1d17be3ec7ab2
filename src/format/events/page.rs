//! What a page of events begins with, and the bits of its tags.

use crate::format::fields::{Field, fields};
use crate::format::wire::{Cursor, Malformed};

/// Most records in a page.
pub const MAX_RECORDS: usize = 1 << 16;
/// Columns of a page: tags, new tags, time, back references, addresses, sizes, words, stacks, sequence, totals, literals.
pub(super) const COLUMNS: usize = 11;
pub(super) const TAGS: usize = 0;
pub(super) const NEW_TAGS: usize = 1;
pub(super) const TIME: usize = 2;

/// Expectations that were met, in a tag of an allocator record.
pub(super) mod met {
    pub(in crate::format::events) const SEQUENCE: u8 = 1;
    pub(in crate::format::events) const TOTALS: u8 = 2;
    pub(in crate::format::events) const BACK: u8 = 4;
    pub(in crate::format::events) const SIZE: u8 = 8;
    pub(in crate::format::events) const STREAM: u8 = 16;
    /// Two bits: how the rounded size is known.
    pub(in crate::format::events) const ROUNDED: u8 = 32 | 64;
    pub(in crate::format::events) const ROUNDED_UP: u8 = 32;
    pub(in crate::format::events) const ROUNDED_SAME: u8 = 64;
    pub(in crate::format::events) const ROUNDED_WRITTEN: u8 = 32 | 64;
    pub(in crate::format::events) const STACK: u8 = 128;
}

/// Words that are not zero, in a tag of any other record.
pub(super) mod present {
    pub(in crate::format::events) const A: u8 = 1;
    pub(in crate::format::events) const B: u8 = 2;
    pub(in crate::format::events) const C: u8 = 4;
    pub(in crate::format::events) const ROUNDED_SEQ: u8 = 8;
    pub(in crate::format::events) const ALLOCATED: u8 = 16;
    pub(in crate::format::events) const RESERVED: u8 = 32;
    pub(in crate::format::events) const STACK: u8 = 64;
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

fields! { EventsHead { ring, thread, first, count, shift } }

impl EventsHead {
    /// Reads the head of a page, without the records.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(c: &mut Cursor<'_>) -> Result<EventsHead, Malformed> {
        let head = EventsHead::take(c, "events head")?;
        if head.count as usize > MAX_RECORDS || head.shift > 20 || head.ring > 255 || head.first > 1 << 60 {
            return Err(c.bad("events head"));
        }
        Ok(head)
    }
}

/// `kind, device, flags, phase, met`: what a tag stands for.
pub(super) type TagKey = [u8; 5];
/// The tag that says "a new one follows".
pub(super) const NEW: u8 = 255;
