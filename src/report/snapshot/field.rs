//! What both languages are written from.

use super::words::Word;
use crate::event::{PoolId, StackId};

/// Bytes kept before they go to the sink.
pub(super) const CHUNK: usize = 256 * 1024;

/// Something already written, to be named again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memo(pub(super) u32);

/// A value of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field<'a> {
    Word(Word),
    Number(u64),
    Signed(i64),
    /// What was written before.
    Again(Memo),
    /// A text that was not, and can be named again.
    New(&'a str),
    /// A text, written once.
    Text(&'a str),
    Pool(PoolId),
    Stack(StackId),
    /// There is no such key.
    Absent,
}
