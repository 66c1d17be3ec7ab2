//! Bytes ⇄ events: the raw ring's records and their commit rule, the recording's pages, control messages and the names
//! of environment variables. No IO happens here: bytes in, values out, and the other way round.

pub mod definition;
pub mod env;
pub mod events;
pub mod header;
pub mod page;
pub mod raw;
pub mod region;
pub mod wire;
