//! More of what keeps tensors.

mod graphs;
mod otherwise;

use super::support::Folder;
use super::{all_kept, holder, largest, marked, reports};
