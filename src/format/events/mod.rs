//! An Events page: consecutive records of one ring, as columns that predict each other.
//!
//! What a record says is mostly known from the records before it: a free repeats its allocation's size and stream, torch's
//! totals move by the rounded size, sequence numbers count up, the same line asks for the same size again. A [`Model`](model::Model) that
//! writer and reader share says what is expected; a *tag* per record tells which expectations were met, and only the rest
//! is written. Addresses refer back to the last record with the same address. The columns then go through zstd as a whole.

mod decode;
mod encode;
mod model;
mod page;
#[cfg(test)]
mod tests;

pub use decode::Decoder;
pub use encode::Encoder;
pub use page::{EventsHead, MAX_RECORDS};
