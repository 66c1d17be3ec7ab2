//! Object stores (S3 and what speaks its language, Google's, Azure's): recordings are read from one, and tables are written to one.
//!
//! An object is whole or not there, as a file of ours is. What is large goes in parts; those of an upload that was cut off are no
//! object, and the store's own rule for incomplete uploads removes them. What is there already, with the same bytes, is not sent again.

mod address;
mod bucket;
mod copies;
mod failed;
mod fetch;
mod http;
mod parts;
#[cfg(test)]
mod tests;
mod upload;

pub(crate) use address::Address;
pub(crate) use bucket::{PART, Store};
pub(crate) use fetch::Fetched;
pub(crate) use parts::{Kind, Part, folder as folder_of_parts, lay, whole};
pub(crate) use upload::Uploads;
