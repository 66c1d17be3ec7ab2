//! Bytes ⇄ events: the raw ring's records and their commit rule, the recording's pages, control messages and the names
//! of environment variables. No IO happens here: bytes in, values out, and the other way round.

pub mod checkpoint;
pub mod clock;
mod closure;
pub mod definition;
pub mod env;
pub mod events;
mod fields;
pub mod fold;
pub mod header;
pub mod holders;
pub mod map;
pub mod marks;
pub mod merge;
pub mod page;
pub mod python;
pub mod raw;
pub mod region;
pub mod secrets;
mod sequences;
pub mod tail;
pub mod wire;
