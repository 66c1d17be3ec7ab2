//! What is wrong with a recording, said so that a person can decide what to trust.

use crate::event::thousands;
use std::fmt;

/// Entries beyond which damage is only counted.
const MOST: usize = 200;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where in the file; `None` for the tail.
    pub at: Option<u64>,
    /// What.
    pub what: String,
    /// How many records are missing because of it, where that is known.
    pub records: Option<u64>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "{} (at byte {})", self.what, thousands(at))?,
            None => write!(f, "{} (in the tail)", self.what)?,
        }
        match self.records {
            Some(1) => write!(f, "; one event is missing"),
            Some(n) => write!(f, "; {} events are missing", thousands(n)),
            None => Ok(()),
        }
    }
}

/// All of it, bounded.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) all: Vec<Damage>,
    pub(super) more: u64,
}

impl List {
    pub(super) fn add(&mut self, at: Option<u64>, what: impl Into<String>, records: Option<u64>) {
        if self.all.len() < MOST {
            self.all.push(Damage { at, what: what.into(), records });
        } else {
            self.more += 1;
        }
    }
}
