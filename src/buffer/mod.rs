//! Bounded rings in one region of memory, from hooks that may not wait to a drain that may.
//!
//! ```text
//! thread ── Lane (owns one ring) ──┐
//! thread ── Lane ──────────────────┼─▶ Region ─▶ Drain (one) ─▶ writer
//! thread ── Shared (overflow ring) ┘
//! cold path: Region::define ───────▶ definitions ring ─▶ Drain
//! ```
//!
//! A lane publishes with one Release store and never waits: a full ring is a counted loss, and a [`Kind::Gap`] record
//! stands where it happened. The region's layout is `format::region`; the commit rule is in `format::raw`.
//!
//! # Safety
//!
//! This is the only module of the crate with `unsafe`. All of it rests on four facts:
//!
//! 1. *The memory*: [`Region::init`]'s caller promises a zeroed, 4096-aligned, writable range that outlives the process
//!    and that nobody else in the process touches. Every pointer here is that base plus an offset below its length,
//!    because offsets come only from a [`Geometry`] whose `bytes()` fit, and ring indexes are masked.
//! 2. *Shared words* (heads, tails, counters, states) are only ever accessed as atomics.
//! 3. *A slot* belongs to its ring's owner while its index is in `head..tail+capacity`, and to the drain while it is in
//!    `tail..head`. Ownership passes by the Release store and Acquire load of `head` (owner to drain) and of `tail` (drain
//!    to owner), so no slot is ever read while it is written.
//! 4. *One owner, one drain*: a ring's owner is whoever changed its state from free to owned by compare-and-swap; the
//!    overflow ring's owner is whoever holds its busy flag; the drain is whoever set the drain flag. [`Lane`] and [`Drain`]
//!    are therefore neither `Clone` nor `Sync`.
//!
//! Another process that reads the file sees bytes through the kernel, not references; it validates what it reads.
//!
//! [`Kind::Gap`]: crate::format::raw::Kind::Gap
//! [`Geometry`]: crate::format::region::Geometry

#![allow(unsafe_code)]

mod definitions;
mod drain;
mod lane;
mod layout;
mod region;
mod shared;
#[cfg(test)]
mod tests;

pub use drain::Drain;
pub use lane::Lane;
pub use region::{Region, RegionError};
pub use shared::Shared;
