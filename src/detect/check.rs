//! What a file of `detect/kinds` consists of: what is said of its kind, and how it is found.

use super::finding::Finding;
use super::growth::Member;
use super::kind::Kind;
use super::note::Note;
use crate::replay::{Cohort, Device, Replay};

/// A detector: one entry of the registry.
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) check: Check,
}

/// How a kind is found.
pub(super) enum Check {
    /// By a look at the replay as of its last mark: all findings of the kind. What it found before is replaced.
    Look { when: When, all: fn(&Context<'_>) -> Vec<Finding> },
    /// A line is found to grow by what survives (see `detect/case.rs`); this says whether growth of a cohort is of the kind, and
    /// why it is told. The first entry that claims a cohort has it.
    Growth { claims: fn(&Replay, &Cohort) -> bool, explain: Sentence },
}

/// Why growth is told, in one sentence.
pub(super) type Sentence = fn(&Grown<'_>) -> String;

/// When a detector looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// At every mark that has news: what costs little, and may be urgent.
    EveryMark,
    /// Where notes are due: at the first marks, later now and then, and when findings are read.
    Due,
    /// The same, and also of a job that has freed what it held as it ended.
    DueAndAtTheEnd,
}

impl When {
    /// Whether this is the time. `whole`: notes are due; `torn_down`: the job has freed what it held, so that no block tells what lay
    /// where at its last step's end.
    pub(super) fn is_now(self, whole: bool, torn_down: bool) -> bool {
        match self {
            When::EveryMark => !torn_down,
            When::Due => whole && !torn_down,
            When::DueAndAtTheEnd => whole,
        }
    }
}

/// What a detector looks at.
pub(super) struct Context<'a> {
    pub(super) replay: &'a Replay,
    /// Leaks that stand: what they count is no matter of a note.
    pub(super) accused: &'a [&'a Finding],
    /// What was found at the look before.
    pub(super) before: &'a [Finding],
}

impl<'a> Context<'a> {
    /// A note as a finding.
    pub(super) fn finding(&self, note: Note<'_>) -> Finding {
        note.finding(self.replay, self.before)
    }

    /// The notes of each device as findings.
    pub(super) fn of_devices<N: IntoIterator<Item = Note<'a>>>(
        &self,
        check: impl Fn(&'a Device) -> N,
    ) -> Vec<Finding> {
        self.replay.devices().flat_map(check).map(|n| self.finding(n)).collect()
    }
}

/// Growth that is told: what its sentence is made of.
pub(super) struct Grown<'a> {
    pub(super) replay: &'a Replay,
    pub(super) finding: &'a Finding,
    /// What grows of it, by falling rate.
    pub(super) members: &'a [Member],
    /// The mark as of which it is told.
    pub(super) mark: u32,
}
