//! What became, by the end of a recording, of what is reported as of one of its earlier steps.

use super::model::Process;
use super::units::{size, thousands};
use crate::detect::{Certainty, Finding};

/// What became of growth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Later<'p> {
    /// It goes on, or its holder ends it by itself: the finding at the end of the recording.
    Stands(&'p Finding),
    /// It was withdrawn, in this step where that is known; all of its memory was freed, or no more came.
    Ended {
        /// The step.
        step: Option<u32>,
        /// All of it was freed.
        freed: bool,
    },
}

impl Process<'_> {
    /// The judgement on the whole recording, where this is one on an earlier step.
    pub(super) fn at_end(&self) -> Option<&Self> {
        self.whole.as_deref().filter(|whole| self.at_step.is_some_and(|n| n < whole.replay.steps()))
    }

    /// `at the end of the recording (step 60)`.
    pub(super) fn by_end(&self) -> Option<String> {
        let r = self.at_end()?.replay;
        let (noun, steps) = (r.step_source().noun(), thousands(r.steps().into()));
        Some(format!("at the end of the recording ({noun} {steps})"))
    }
}

/// What became of a finding that grows; `None` of any other, and where nothing came later.
pub(super) fn later<'p>(p: &'p Process<'_>, f: &Finding) -> Option<Later<'p>> {
    let whole = p.at_end().filter(|_| f.grows())?;
    // The same events made both: a line has the same number in both.
    let shares_line = |g: &Finding| g.sites.iter().any(|s| f.sites.iter().any(|mine| mine.site == s.site));
    let is_same = |g: &&Finding| {
        let same_kind = g.kind == f.kind || g.kind.is_leak() && f.kind.is_leak();
        g.device == f.device && same_kind && (shares_line(g) || f.sites.is_empty())
    };
    let now = whole.findings.iter().filter(is_same).max_by_key(|g| (g.withdrawn_step.is_none(), g.certainty));
    Some(match now {
        Some(g) if g.withdrawn_step.is_none() => Later::Stands(g),
        Some(g) => Later::Ended { step: g.withdrawn_step, freed: g.certainty == Certainty::InUse },
        None => Later::Ended { step: None, freed: false },
    })
}

impl Later<'_> {
    /// It does not grow any more.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self, Later::Ended { .. })
    }

    /// As JSON has it: the certainty at the end, `in_use` of what was freed, or `ended`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Later::Stands(g) => g.certainty.name(),
            Later::Ended { freed: true, .. } => Certainty::InUse.name(),
            Later::Ended { freed: false, .. } => "ended",
        }
    }

    /// After `at the end of the recording (step 60),`.
    pub(super) fn words(&self) -> String {
        let said = |word: &str, g: &Finding| format!("it is {word}, at {}", size(g.bytes_now));
        match self {
            Later::Stands(g) if g.certainty == Certainty::Leak => said("a LEAK", g),
            Later::Stands(g) if g.certainty == Certainty::Growing => said("still GROWING", g),
            Later::Stands(g) => match &g.bound {
                Some(bound) => format!("it is known to have a limit: {}", bound.source),
                None => format!("it is only noted: {}", g.headline()),
            },
            Later::Ended { step, freed } => {
                let when = step.map(|n| format!(" by step {}", thousands(n.into()))).unwrap_or_default();
                let freed = if *freed { "; the blocks that were counted here have been freed" } else { "" };
                format!("this had stopped growing{when}{freed}")
            }
        }
    }
}
