//! One recording, judged.

use super::feed::{Feed, Read};
use super::native::symbolized;
use crate::error::Error;
use crate::say;
use crate::share::Share;
use crate::symbols::Symbols;
use std::collections::BTreeMap;
use std::path::PathBuf;
use strandline::detect::{Detector, Finding, GrainName, SelfFault, Verdict};
use strandline::event::{Bytes, HostKiller, StackId};
use strandline::reader::Frozen;
use strandline::replay::anatomy::Class;
use strandline::replay::{Coverage, Device, GRACE, Held, Replay};
use strandline::report::html;
use strandline::report::{Cost, Ended, Known, Moment, Native, Process, snapshot};

/// A recording with everything that can be said of it.
pub(crate) struct Judged {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// Its steps, for snapshots.
    pub(crate) steps: snapshot::Steps,
    /// Of a process that goes on: what of its recording was judged.
    pub(super) frozen: Option<Frozen>,
    /// What is private is folded.
    pub(crate) share: Option<Share>,
    /// What its feed said.
    pub(crate) read: Read,
    pub(crate) replay: Replay,
    pub(super) detector: Detector,
    pub(super) verdict: Verdict,
    pub(super) known: Vec<Known>,
    pub(super) moments: Vec<Moment>,
    pub(super) native: BTreeMap<StackId, Native>,
    pub(super) ended: Ended,
    pub(super) killer: HostKiller,
    pub(super) self_fault: Option<SelfFault>,
    /// Where it was left off, of a recording that goes on.
    pub(super) until: Option<Until>,
    /// Of one that was left off: the same with all of its recording.
    pub(super) whole: Option<Box<Judged>>,
}

/// A past moment that is judged as if it were now: the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Until {
    /// So many events are before it.
    pub(crate) events: u64,
    /// The step.
    pub(crate) step: u32,
    /// It ended with the process: no event announces it.
    pub(crate) last: bool,
}

impl Judged {
    /// The same items again.
    ///
    /// # Errors
    /// The recording cannot be read any more.
    pub(crate) fn again(&self) -> Result<Feed, Error> {
        let feed = match &self.frozen {
            Some(frozen) => Feed::frozen(frozen, &self.path),
            None => Feed::open(&self.path),
        }?;
        Ok(feed.shared(self.share.as_ref()).by_iterations(self.replay.iterations()))
    }

    /// Says on stderr that part of the recording is missing, for commands whose output has no place for that.
    pub(crate) fn warn_of_damage(&self) {
        say::damage(&self.path, &self.read.damage);
    }

    /// As a report prints it.
    pub(crate) fn process(&self) -> Process<'_> {
        let mut process =
            Process::new(&self.replay, &self.read.names, &self.verdict, self.detector.findings());
        process.known = self.known.clone();
        process.anatomies = self.moments.clone();
        process.damage = self.read.damage.clone();
        process.ended = self.ended;
        process.at_step = self.until.map(|u| u.step);
        process.whole = self.whole.as_ref().map(|whole| Box::new(whole.process()));
        process.killer = self.killer;
        process.self_fault.clone_from(&self.self_fault);
        // A snapshot is no cost of recording.
        let disk = std::fs::metadata(&self.path).ok().filter(|_| !self.read.is_snapshot);
        let disk = disk.map(|m| Bytes(m.len()));
        process.native = self.native.clone();
        process.contexts = crate::context::of_recording(&self.path);
        process.cost = Cost::of(&self.replay, disk);
        process
    }

    /// The recording read once more, for a page: what was held from step to step.
    ///
    /// # Errors
    /// It cannot be read again.
    pub(crate) fn page(&self) -> Result<html::Pass, Error> {
        let mut pass = html::Pass::new(&self.replay, self.findings());
        self.again()?.each(|item, names| pass.apply(item, names));
        Ok(pass)
    }

    /// Looks up the native frames that lead to what was found.
    pub(super) fn native(&self) -> BTreeMap<StackId, Native> {
        let mut symbols = Symbols::default();
        let found = self.findings().iter().flat_map(|f| &f.sites).filter_map(|s| s.site(&self.replay));
        let sites = self.replay.failed().map(|f| f.site).into_iter();
        let last = |d: &'_ Device| d.ooms.last().map(|o| o.site);
        let held =
            |d: &'_ Device| d.scene.iter().flat_map(|s| &s.holders).map(|h| h.site).collect::<Vec<_>>();
        let sites = sites.chain(self.replay.devices().flat_map(|d| last(d).into_iter().chain(held(d))));
        let stacks = found.map(|s| s.stack).chain(sites.filter_map(|s| self.replay.site(s)).map(|s| s.stack));
        let mut all = BTreeMap::new();
        for stack in stacks {
            let native = self.read.names.native(stack);
            if native.is_empty() || all.contains_key(&stack) {
                continue;
            }
            let known = symbolized(native, self.share.as_ref(), &mut symbols);
            all.insert(stack, known);
        }
        all
    }

    /// What was found.
    pub(crate) fn findings(&self) -> &[Finding] {
        self.detector.findings()
    }

    /// Unix time in nanoseconds at which its clock was 0.
    pub(crate) fn epoch_ns(&self) -> u64 {
        self.read.summary.unix_ns
    }

    /// Its process has not ended.
    pub(crate) fn is_running(&self) -> bool {
        self.ended == Ended::Running
    }

    /// Blocks were seen.
    pub(crate) fn has_blocks(&self) -> bool {
        self.replay.coverage() == Coverage::Blocks
    }

    /// After how many steps in all the job would fill a device of which it could have so many bytes, by what grows.
    pub(crate) fn full_after(&mut self, usable: u64) -> Option<u64> {
        self.replay.suppose_usable(Bytes(usable));
        self.detector.forecast_again(&self.replay);
        let (steps, microbatches) = (self.replay.steps(), self.replay.microbatches());
        let of = |f: &Finding| {
            let further = f.steps_to_oom.map(|n| n.mid).filter(|n| *n != u64::MAX)?;
            Some(match f.grain {
                GrainName::Microbatch => {
                    (further + u64::from(microbatches)) * u64::from(steps) / u64::from(microbatches.max(1))
                }
                _ => further + u64::from(steps),
            })
        };
        self.findings().iter().filter(|f| f.grows()).filter_map(of).min()
    }

    /// What findings call a block that they count.
    pub(super) fn class(&self, held: &Held, replay: &Replay) -> Option<Class> {
        let is_old = held.is_old(replay.steps())
            || replay.steps() == 0 && replay.microbatches().saturating_sub(held.microbatch) >= GRACE;
        let found = self.findings().iter().filter_map(|f| f.class(held, is_old));
        found.min().filter(|_| !held.pending)
    }

    /// Whether a finding that stands counts this block among those left behind.
    pub(crate) fn is_left_behind(&self, held: &Held, replay: &Replay) -> bool {
        self.class(held, replay) == Some(Class::LeftBehind)
    }

    /// Whether a finding that stands counts blocks such as this, however young it is. What a block that is made anew and larger would be without
    /// its growth is not known.
    pub(crate) fn is_counted(&self, held: &Held) -> bool {
        self.findings().iter().any(|f| f.is_active_leak() && !f.is_remade() && f.counts(held))
    }
}
