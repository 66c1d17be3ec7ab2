//! What kind of thing a finding is of, and all that is said of the kind and not of the one finding.

use std::fmt;

/// What is said of a kind. The file of `detect/kinds` that finds it has it; nothing else branches on the kind.
#[derive(PartialEq, Eq, Hash)]
pub struct KindInfo {
    /// The stable name, as in JSON.
    pub name: &'static str,
    /// What was seen, as the phrase that a finding begins with in a report; `{grain}` stands for step, microbatch or second.
    pub headline: &'static str,
    /// What helps against it in general, as a clause; `None` where nothing needs help.
    pub remedy: Option<&'static str>,
    /// The same where autograd graphs keep the blocks; `None` where that makes no difference.
    pub remedy_with_graph: Option<&'static str>,
    /// The same for a program that does not use PyTorch: in the words of whoever asks CUDA itself.
    pub remedy_without_torch: Option<&'static str>,
    /// The same where what holds the blocks is known and none of it is an autograd graph; `None` where that makes no difference.
    pub remedy_without_graph: Option<&'static str>,
    /// Whether it is about blocks that live on; the others are about memory that was freed, or explain.
    pub is_leak: bool,
    /// Whether an object keeps its blocks, which the job is asked for.
    pub has_holder: bool,
    /// Whether what every job fills as it begins looks like it: it makes no alert in its first dozen marks.
    pub may_be_buffer: bool,
}

impl KindInfo {
    /// A kind that explains, accuses nobody and needs no help: what differs is written over it.
    pub(super) const fn named(name: &'static str, headline: &'static str) -> KindInfo {
        KindInfo {
            name,
            headline,
            remedy: None,
            remedy_with_graph: None,
            remedy_without_torch: None,
            remedy_without_graph: None,
            is_leak: false,
            has_holder: false,
            may_be_buffer: false,
        }
    }
}

/// What kind of thing was found. Its constants, such as `Kind::StepGrowth`, are in the registry, `detect/kinds/mod.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind(&'static KindInfo);

impl Kind {
    /// The kind of which this is said.
    pub(super) const fn new(info: &'static KindInfo) -> Kind {
        Kind(info)
    }

    /// All that is said of it.
    pub fn info(self) -> &'static KindInfo {
        self.0
    }

    /// The stable name, as in JSON.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// See [`KindInfo::remedy_without_torch`].
    pub fn remedy_without_torch(self) -> Option<&'static str> {
        self.0.remedy_without_torch
    }

    /// See [`KindInfo::remedy`].
    pub fn remedy(self) -> Option<&'static str> {
        self.0.remedy
    }

    /// See [`KindInfo::is_leak`].
    pub fn is_leak(self) -> bool {
        self.0.is_leak
    }

    /// See [`KindInfo::has_holder`].
    pub fn has_holder(self) -> bool {
        self.0.has_holder
    }

    /// See [`KindInfo::may_be_buffer`].
    pub fn may_be_buffer(self) -> bool {
        self.0.may_be_buffer
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}
