//! What notes share: small findings that explain, and accuse nobody.

use super::certainty::Certainty;
use super::finding::{Finding, FindingSite, GrainName, StreamRef};
use super::kind::Kind;
use super::origins::{Stacks, stacks};
use super::severity::Severity;
use crate::event::{SiteId, StreamId, total};
use crate::replay::{Cohort, Device, Grain, Held, Replay};
use rustc_hash::FxHashMap;

/// A note that a judgement makes.
pub(super) struct Note<'a> {
    pub(super) kind: Kind,
    pub(super) device: &'a Device,
    /// Where one stream is meant.
    pub(super) stream: Option<StreamId>,
    pub(super) first_step: u32,
    /// Bytes and blocks by line.
    pub(super) sites: Sites,
    /// Bytes per step; 0 where nothing grows.
    pub(super) rate: f64,
    pub(super) explain: String,
}

/// Bytes and blocks by line.
#[derive(Default)]
pub(super) struct Sites(FxHashMap<u32, (u64, u64)>, Stacks);

impl Sites {
    pub(super) fn add(&mut self, site: SiteId, bytes: u64, blocks: u64) {
        let s = self.0.entry(site.0).or_default();
        *s = (s.0.saturating_add(bytes), s.1.saturating_add(blocks));
    }
    /// From which stack most of the blocks came that `is_it` counts, by line: a line may allocate other things as well.
    pub(super) fn find_stacks(&mut self, replay: &Replay, d: &Device, is_it: impl Fn(&Held) -> bool) {
        let all: Vec<&Held> =
            replay.blocks(d.id).filter(|h| self.0.contains_key(&h.site.0) && is_it(h)).collect();
        self.1 = stacks(&all);
    }
    /// How many lines.
    pub(super) fn lines(&self) -> u64 {
        self.0.len() as u64
    }
    pub(super) fn bytes(&self) -> u64 {
        total(self.0.values().map(|s| s.0))
    }
    pub(super) fn blocks(&self) -> u64 {
        self.0.values().map(|s| s.1).sum()
    }
    /// By falling bytes.
    fn list(&self) -> Vec<FindingSite> {
        let all = (self.bytes() as f64).max(1.0);
        let site = |(id, (bytes, blocks)): (&u32, &(u64, u64))| FindingSite {
            site: SiteId(*id),
            stack: self.1.get(&SiteId(*id)).copied().unwrap_or_default(),
            share: *bytes as f64 / all,
            blocks_now: *blocks,
            bytes_now: *bytes,
            of_optimizer: None,
        };
        let mut list: Vec<FindingSite> = self.0.iter().map(site).collect();
        list.sort_by_key(|s| (std::cmp::Reverse(s.bytes_now), s.site));
        list
    }
}

/// Less than this is never worth a note.
pub(super) const LEAST: u64 = 64 << 20;

/// Less than this is not worth a note: a hundredth of the most that torch had reserved, and at least [`LEAST`]. The size of the
/// device has no part in it: the same job gets the same notes on every card.
pub(super) fn worth(d: &Device) -> u64 {
    (d.peak_reserved.bytes.0.max(d.peak_allocated.bytes.0) / 100).max(LEAST)
}

impl<'a> Note<'a> {
    /// One about a device that says nothing yet: of no stream, from the first step on, and nothing grows.
    pub(super) fn new(kind: Kind, device: &'a Device) -> Note<'a> {
        let (sites, explain) = (Sites::default(), String::new());
        Note { kind, device, stream: None, first_step: 1, sites, rate: 0.0, explain }
    }

    /// As a finding; one that was there before keeps the step at which it was said first.
    pub(super) fn finding(self, replay: &Replay, before: &[Finding]) -> Finding {
        let stream = self.stream.and_then(|s| StreamRef::of(replay, s));
        let sites = self.sites.list();
        let same = |f: &&Finding| {
            let lead = |s: &[FindingSite]| s.first().map(|s| s.site);
            (f.kind, f.device, f.stream, lead(&f.sites)) == (self.kind, self.device.id, stream, lead(&sites))
        };
        let (bytes, blocks) = (self.sites.bytes(), self.sites.blocks());
        let per_block = bytes as f64 / (blocks as f64).max(1.0);
        Finding {
            id: 0,
            kind: self.kind,
            certainty: Certainty::Note,
            evidence: Vec::new(),
            bound: None,
            severity: Severity::Info,
            urgency: Severity::Info,
            grain: GrainName::of(replay, Grain::Step),
            device: self.device.id,
            stream,
            first_step: self.first_step.max(1),
            detected_step: before.iter().find(same).map_or(replay.steps(), |f| f.detected_step),
            withdrawn_step: None,
            suppressed_by: None,
            established: true,
            bytes_per_step: self.rate,
            blocks_per_step: self.rate / per_block.max(1.0),
            current_bytes_per_step: self.rate,
            bytes_now: bytes,
            blocks_now: blocks,
            not_counted: 0,
            sparse: None,
            steps_to_oom: None,
            seconds_to_oom: None,
            with_others: false,
            speeds_up: false,
            last_step: replay.steps(),
            explain: self.explain,
            sites,
            once: Vec::new(),
        }
    }
}

/// Marks at which nothing may have changed.
pub(super) const FLAT: u32 = 8;

/// The old blocks of a cohort have not changed for some marks.
pub(super) fn stays(c: &Cohort) -> bool {
    let s = &c.steps.series;
    let now = c.steps.at_mark;
    now.blocks > 0 && s.last() == now && (1..FLAT).all(|n| s.back(n) == now)
}
