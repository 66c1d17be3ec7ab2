//! What a kind of advice looks at, and what it answers.

use super::timeline::{Cut, Timeline};
use crate::event::{Frame, Names, SiteId, StackId};
use crate::replay::Replay;

/// What is said of a kind of advice, whatever job it is given to.
#[derive(Debug, PartialEq, Eq)]
pub struct KindInfo {
    /// The stable name, as in JSON.
    pub name: &'static str,
    /// What was seen, after its bytes; `{blocks}` stands for how many blocks it is.
    pub seen: &'static str,
    /// What to do.
    pub change: &'static str,
}

/// A device of a job, for those who look for advice.
pub struct Look<'a> {
    /// What was allocated from moment to moment.
    pub timeline: &'a Timeline,
    /// The state at the end.
    pub replay: &'a Replay,
    /// Stacks.
    pub names: &'a Names,
    /// The text of a line of Python, where its file is at hand and was not changed.
    pub source: &'a dyn Fn(&Frame) -> Option<String>,
}

impl Look<'_> {
    /// Whether a stack leads through a function of PyTorch's whose name and file are like this.
    pub(super) fn leads_through(&self, stack: StackId, is: impl Fn(&str, &str) -> bool) -> bool {
        self.names.frames(stack).any(|f| is(&f.function, &f.file))
    }

    /// The text of a site's line.
    pub(super) fn text(&self, site: SiteId) -> Option<String> {
        (self.source)(&self.replay.site(site)?.frame)
    }
}

/// What a changed job would not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The line that it is about.
    pub(super) site: SiteId,
    /// What is left out.
    pub(super) cuts: Vec<Cut>,
}

/// A kind of advice: what is said of it, and how it is found.
pub(super) struct Kind {
    pub(super) info: KindInfo,
    pub(super) find: fn(&Look<'_>) -> Vec<Candidate>,
}

/// One candidate for each site.
pub(super) fn by_site(cuts: impl IntoIterator<Item = (SiteId, Cut)>) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    for (site, cut) in cuts {
        match all.iter_mut().find(|c| c.site == site) {
            Some(c) => c.cuts.push(cut),
            None => all.push(Candidate { site, cuts: vec![cut] }),
        }
    }
    all
}
