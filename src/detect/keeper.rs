//! What the holder of a finding's blocks says about it: where a container ends, whether it shrinks, who owns it. No
//! series can tell a buffer that fills at a constant rate from a leak; its keeper can.

use super::births::BIRTHS;
use super::certainty::{Bound, Certainty, Evidence};
use super::finding::{Finding, GrainName};

use crate::replay::GRACE;

/// Steps for which a container must have had as many entries until its own bound says nothing of what is in them.
const STILL: u32 = 8;
/// The same for steps that left blocks, to an entry.
const PER_ENTRY: f64 = 4.0;

/// Whether a keeper of so many blocks may speak for a finding, of which the largest keeper holds `most`: one in twelve of that, and more than one.
pub fn holds_enough(blocks: u64, most: u64) -> bool {
    const PART: u64 = 12;
    const BLOCKS: u64 = 2;
    blocks >= most.div_ceil(PART).max(BLOCKS.min(most))
}

/// Whom a keeper belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// Nobody whose part in training is known.
    #[default]
    Other,
    /// The state of an optimizer (`optimizer.state`).
    Optimizer,
    /// Parameters or buffers of a module (`_parameters`, `_buffers`).
    Module,
}

/// A container (or another object) that keeps blocks of a finding, as the holder probe saw it in the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keeper {
    /// Where it is reached from, as reports print it: `OffloadActivations.bwd_tensor_stash`.
    pub path: String,
    /// Its type: `list`, `dict`, `deque`.
    pub kind: String,
    /// It is a name that is given another object again and again, whose autograd graph still reaches the blocks of long ago: `total +=
    /// loss`.
    pub deepens: bool,
    /// An optimizer did not step while others did: its backward may need that graph.
    pub awaited: bool,
    /// Entries that it takes at most, where it says so: `deque.maxlen`, `lru_cache`'s maxsize, `Queue.maxsize`.
    pub bound: Option<u64>,
    /// Entries at the first look.
    pub length_then: Option<u64>,
    /// Entries at the last look.
    pub length_now: Option<u64>,
    /// Entries at the look that was nearest to the step which is reported, and the step that was under way then: [`u32::MAX`] where it is only
    /// known that it came later.
    pub looked: Option<(u64, u32)>,
    /// Steps for which it has had as many entries as at the last look; 0 where it was looked at once.
    pub still: u32,
    /// It was seen with fewer entries than before, so that something empties it.
    pub shrank: bool,
    /// Whose it is.
    pub owner: Owner,
    /// Blocks of the finding that were asked about and are reached from it; 0 where that was not counted.
    pub blocks: u64,
}

impl Keeper {
    /// It had more entries at the last look than at the first.
    fn grew(&self) -> bool {
        self.length_then.zip(self.length_now).is_some_and(|(then, now)| now > then)
    }

    /// A bound that is true of it: a container of deques that end has none where more of these come.
    fn ends_at(&self, most: u64) -> bool {
        !self.shrank && self.length_now.is_none_or(|now| now <= most)
    }

    /// What is in its entries grows, not their number: its own bound says nothing of that.
    fn holds_what_grows(&self, f: &Finding) -> bool {
        let Some(now) = self.length_now else { return false };
        let is_full = self.bound.is_some_and(|most| now >= most);
        let span = f.last_step.saturating_sub(f.first_step);
        // Where it is full, what it has is replaced from then on: that takes a while to be seen.
        let least = if is_full { span / 2 } else { 0 };
        let came = f64::from(self.still) * f.blocks_per_step;
        let seen = self.still > least.max(STILL) && came >= f64::from(BIRTHS);
        // About as many steps left something.
        let steps = f64::from(span) * f.blocks_per_step.min(1.0);
        (is_full || self.length_then == self.length_now) && (seen || steps > PER_ENTRY * now as f64)
    }

    /// A container of the program's own that has no bound and was not seen to be emptied.
    fn is_open(&self) -> bool {
        self.owner == Owner::Other && self.bound.is_none() && !self.shrank && self.length_now.is_some()
    }

    /// `deque(maxlen=500)`.
    fn limit(&self) -> Option<String> {
        let bound = self.bound?;
        let word = if self.kind == "deque" { "maxlen" } else { "maxsize" };
        Some(format!("{}({word}={bound})", self.kind))
    }
}

/// Bytes that no GPU has: a container that holds more when it is full does not end there.
const LARGEST: u64 = 512 << 30;

/// What is known of a finding beyond the events of its recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Testimony {
    /// Who keeps its blocks.
    pub keepers: Vec<Keeper>,
    /// Where it is known as a leak, of the version that is installed: `huggingface/trl#5700`.
    pub known: Option<String>,
}

/// What is `told` of a finding changes its certainty, with the evidence. Pure; told twice the same it says the same. Where
/// nothing is told nothing changes.
pub fn refine(finding: &mut Finding, told: &Testimony) {
    if finding.may_be_sparse_leak() && speaker(&told.keepers).is_some_and(Keeper::is_open) {
        finding.certainty = Certainty::Growing;
    }
    if !finding.is_active_leak() {
        return;
    }
    if !told.keepers.is_empty() {
        // What a root reaches is no cycle garbage: nothing has to wait for the collector.
        finding.severity = finding.urgency;
    }
    if let Some(known) = &told.known {
        tell(finding, Evidence::new(format!("known as {known}"), 1.0));
        finding.certainty = Certainty::Leak;
        return;
    }
    // Who has the newest of what is made anew, and larger, says nothing of how large it gets.
    let keepers = if finding.is_remade() { &[][..] } else { told.keepers.as_slice() };
    let Some(k) = speaker(keepers) else { return };
    match k.owner {
        Owner::Optimizer => {
            tell(finding, Evidence::new("owned by the state of an optimizer", 1.0));
            finding.certainty = finding.certainty.min(Certainty::Growing);
            return;
        }
        Owner::Module => {
            tell(finding, Evidence::new("owned by the parameters of a module", 1.0));
            finding.certainty = finding.certainty.min(Certainty::Growing);
            return;
        }
        Owner::Other => {}
    }
    if k.bound.is_some() && k.holds_what_grows(finding) {
        let what =
            format!("entries of {}: their number stays the same, but the memory in them grows", k.path);
        tell(finding, Evidence::new(what, k.length_now.unwrap_or(0) as f64));
    } else if let (Some(limit), Some(entries)) = (k.limit(), k.bound.filter(|most| k.ends_at(*most))) {
        tell(finding, Evidence::new(format!("maximum number of entries, set by {limit}"), entries as f64));
        let bound = bound(finding, k, entries, limit);
        if bound.bytes.is_none_or(|all| all <= LARGEST) {
            finding.certainty = Certainty::Bounded;
            finding.bound = Some(bound);
            return;
        }
        tell(
            finding,
            Evidence::new(
                "bytes that it would hold when it is full, which is more than any GPU has",
                bound.bytes.unwrap_or(0) as f64,
            ),
        );
    }
    if k.shrank {
        tell(finding, Evidence::new("times that the holder had fewer entries than at an earlier check", 1.0));
        finding.certainty = finding.certainty.min(Certainty::Growing);
        return;
    }
    let grew = k.length_then.zip(k.length_now).filter(|_| k.grew());
    if let Some((then, now)) = grew {
        let what = format!("entries added to {} since the first check", k.path);
        tell(finding, Evidence::new(what, (now - then) as f64));
    }
    if k.deepens {
        let what = format!("number of earlier steps that the autograd graph of {} includes", k.path);
        let steps = finding.last_step.saturating_sub(finding.first_step);
        tell(finding, Evidence::new(what, f64::from(steps)));
    }
    if k.deepens && k.awaited {
        tell(
            finding,
            Evidence::new(
                "autograd graph that a later backward() may still use, because no tensor that it saved was changed in place as far as is known",
                1.0,
            ),
        );
    }
    // A list that grows may be a buffer that something empties when it is full, at the end of an epoch, say, or a set of data that is fetched on
    // a stream of its own: that alone is no leak. A graph that deepens with every step is no buffer's.
    if k.deepens && !k.awaited && finding.established {
        finding.certainty = Certainty::Leak;
    }
}

/// Who speaks for a finding: what holds most of it, and where nothing was counted, the first one found. A container without a bound that was
/// seen to grow comes before it where it holds a good part: what else the line allocates may end.
fn speaker(keepers: &[Keeper]) -> Option<&Keeper> {
    let most = keepers.iter().map(|k| k.blocks).max()?;
    let grows = |k: &&Keeper| k.is_open() && k.grew() && holds_enough(k.blocks, most);
    let open = keepers.iter().rev().filter(grows).max_by_key(|k| k.blocks);
    open.or_else(|| keepers.iter().rev().max_by_key(|k| k.blocks))
}

/// A fact, where it was not told before.
fn tell(f: &mut Finding, e: Evidence) {
    f.evidence.retain(|told| told.what != e.what);
    f.evidence.push(e);
}

/// Where the keeper is full: as large as each of its entries is now, at the pace at which it grows now. What a finding counts is without
/// the newest marks; what the keeper counts is not.
fn bound(f: &Finding, k: &Keeper, entries: u64, source: String) -> Bound {
    let newest = f64::from(GRACE);
    let pace = f.current_bytes_per_step.max(f.bytes_per_step);
    // What was there as it was looked at, which may have been a while before or after; since when it was full is not known.
    let looked = k.looked.filter(|_| f.grain == GrainName::Step);
    let (now, since) = looked.map_or((k.length_now.or(k.length_then), 0.0), |(n, step)| {
        let is_late = step > f.last_step && (n >= entries || step == u32::MAX);
        (Some(n).filter(|_| !is_late), f64::from(f.last_step) - f64::from(step))
    });
    let then = f.blocks_now as f64 + (newest - since) * f.blocks_per_step;
    let bytes = now.filter(|n| *n > 0 && f.blocks_now > 0).map(|n| {
        let per_entry = then.max(1.0) / n as f64;
        // An entry has a whole number of blocks, unless entries differ.
        let whole = per_entry.round();
        let per_entry =
            if whole >= 1.0 && (per_entry - whole).abs() < 0.1 * whole { whole } else { per_entry };
        (f.bytes_now as f64 / f.blocks_now as f64 * per_entry * entries as f64) as u64
    });
    let at_step = bytes.filter(|_| pace > 0.0 && f.grain != GrainName::Tick).map(|all| {
        let left = (all as f64 - f.bytes_now as f64 - newest * pace).max(0.0) / pace;
        f.last_step.saturating_add(left.round().min(f64::from(u32::MAX)) as u32)
    });
    Bound { bytes, at_step, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_grows_speaks_before_a_deque_that_ends() {
        let deque = Keeper { path: "deque".into(), bound: Some(24), blocks: 60, ..Keeper::default() };
        let list = |now, blocks| Keeper {
            path: "list".into(),
            length_then: Some(10),
            length_now: Some(now),
            blocks,
            ..Keeper::default()
        };
        let said = |list: Keeper| speaker(&[deque.clone(), list]).map(|k| k.path.clone()).unwrap_or_default();
        assert_eq!(said(list(40, 40)), "list");
        // It was not seen to grow, or holds next to nothing.
        assert_eq!((said(list(10, 40)), said(list(40, 4))), ("deque".into(), "deque".into()));
        assert_eq!(speaker(&[]), None);
    }

    #[test]
    fn what_has_more_entries_than_its_bound_has_no_bound() {
        let of = |now, shrank| Keeper { bound: Some(24), length_now: now, shrank, ..Keeper::default() };
        assert!(of(Some(24), false).ends_at(24) && of(None, false).ends_at(24));
        // Deques that end, of which there are ever more.
        assert!(!of(Some(25), false).ends_at(24) && !of(Some(12), true).ends_at(24));
    }
}
