//! How a recording's header names its tail: the path of a file, or memory that some process keeps open.
//!
//! Memory has no path (`memfd_create(2)`): it is reached through `/proc/<process>/fd`, where its name stands. In the header it is
//! `memfd:NAME@PID`, with the process that keeps it open: `strandline run`, or the job itself where there is no such command.

use super::region::Identity;
use std::fmt;

/// Where a tail lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file of this path.
    File(String),
    /// In memory of this name, which this process keeps open; 0: a process that the job cannot see (another pid namespace).
    Memory {
        /// As [`name`] makes it.
        name: String,
        /// The process.
        keeper: u32,
    },
}

const MEMORY: &str = "memfd:";

impl Place {
    /// As the header has it.
    pub fn parse(text: &str) -> Place {
        let memory = text.strip_prefix(MEMORY).and_then(|rest| {
            let (name, keeper) = rest.rsplit_once('@')?;
            Some(Place::Memory { name: name.to_string(), keeper: keeper.parse().ok()? })
        });
        memory.unwrap_or_else(|| Place::File(text.to_string()))
    }

    /// The path, of a tail in a file.
    pub fn file(&self) -> Option<&str> {
        match self {
            Place::File(path) => Some(path),
            Place::Memory { .. } => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(path) => f.write_str(path),
            Place::Memory { name, keeper } => write!(f, "{MEMORY}{name}@{keeper}"),
        }
    }
}

/// The name of a process's tail, wherever it lies: whose it is, and a part of its region's id, so that no two are alike.
pub fn name(uid: u32, who: &Identity) -> String {
    format!("{PREFIX}{uid}-{}-{:016x}", who.pid, who.id[0])
}

/// How each of these names begins.
pub const PREFIX: &str = "strandline-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_and_what_is_no_memory_is_a_path() {
        let who = Identity { pid: 4711, start: 1, id: [0xab, 7] };
        let name = name(1000, &who);
        assert_eq!(name, "strandline-1000-4711-00000000000000ab");
        for place in [Place::File("/dev/shm/a@1".into()), Place::Memory { name, keeper: 12 }] {
            assert_eq!(Place::parse(&place.to_string()), place);
        }
        for odd in ["", "memfd:", "memfd:a", "memfd:a@", "memfd:a@x", "memfd:a@-1"] {
            assert_eq!(Place::parse(odd), Place::File(odd.into()), "{odd}");
        }
    }
}
