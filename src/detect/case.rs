//! One leak (or what may be one) from the mark at which it was first said to the end: which lines are part of it, and the
//! finding that tells of it.

use super::amounts::thousands;
use super::certainty::{Certainty, Evidence};
use super::check::Grown;
use super::finding::{BIRTHS, Finding, FindingSite, GrainName, LONGEST_LIFE, REMADE, StreamRef};
use super::forecast::{self, Headroom, Rate};
use super::growth::{Growth, MIN_MARKS, Member, Rule};
use super::kinds;
use super::origins::{Origins, Stacks, born, origins};
use super::outlook::Outlook;
use super::policy::Policy;
use super::severity::Severity;
use crate::event::{DeviceId, StreamId, total};
use crate::replay::{Cohort, CohortId, GRACE, Grain, Held, Replay};
use rustc_hash::FxHashMap;

/// Different marks whose blocks are kept, at a rate that neither rises nor falls, beyond which no buffer that fills explains it: replay buffers
/// have up to a million entries.
const LONG_GROWTH: u32 = 1_000_000;
/// Laplace's statistic of births at a constant rate.
const STEADY: f64 = 3.0;
/// Blocks no larger than this, and less of them a mark than that: numbers that are kept as tensors, such as losses. They are
/// told, and accuse nobody.
const NUMBERS: (f64, f64) = (1024.0, 4096.0);
/// Unless there are so many marks that they come to this much, and to this much a second since the recording began: that fills any device
/// within days.
const NO_NUMBERS: (f64, f64) = (16.0 * 1024.0 * 1024.0, 1024.0 * 1024.0);

/// Where a case is: its lines are of one device and stream, and judged by the same marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: DeviceId,
    pub(super) stream: StreamId,
    pub(super) private_pool: bool,
    pub(super) grain: Grain,
}

impl Place {
    pub(super) fn of(c: &Cohort, grain: Grain) -> Place {
        let key = c.key;
        Place { device: key.device, stream: key.stream, private_pool: key.private_pool, grain }
    }

    /// The last mark of its grain.
    pub(super) fn mark(&self, replay: &Replay) -> u32 {
        if self.grain == Grain::Step { replay.steps() } else { replay.microbatches() }
    }

    /// What growth that began in step `first` has left there.
    pub(super) fn headroom(&self, replay: &Replay, first: u32) -> Headroom {
        forecast::headroom(replay, self.device, if self.grain == Grain::Step { first } else { 0 })
    }
}

/// One leak's history.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) place: Place,
    /// What grows of it first, by falling rate.
    pub(super) members: Vec<Member>,
    pub(super) finding: Finding,
    /// What its forecast is made from.
    pub(super) outlook: Outlook,
    /// As it was before it was withdrawn.
    stood: Option<Finding>,
    /// The most bytes that it ever counted.
    pub(super) most: u64,
    /// From where its blocks came; and of how many members that is known.
    origins: Origins,
    looked_at: usize,
}

impl Case {
    /// A case that begins with `members`, as of the replay's last mark.
    pub(super) fn new(
        replay: &Replay,
        policy: &Policy,
        id: u32,
        place: Place,
        members: Vec<Member>,
    ) -> Option<Case> {
        let origins = origins_of(replay, place, &members);
        let (finding, outlook) = compose(replay, policy, place, &members, &origins, None)?;
        let (finding, most) = (Finding { id, ..finding }, finding.bytes_now);
        let looked_at = members.len();
        Some(Case { place, members, finding, outlook, stood: None, most, origins, looked_at })
    }

    pub(super) fn stands(&self) -> bool {
        self.finding.withdrawn_step.is_none()
    }

    pub(super) fn has(&self, id: CohortId) -> bool {
        self.members.iter().any(|m| m.id == id)
    }

    /// Whether growth at the same place is another part of this.
    pub(super) fn takes(&self, place: Place, growth: &Growth, mark: u32) -> bool {
        let lead = self.members.iter().map(|m| &m.growth).find(|g| !g.stalled);
        self.stands() && self.place == place && lead.is_some_and(|lead| growth.resembles(lead, mark))
    }

    /// Stands again after it was withdrawn, with what grows now.
    pub(super) fn begin_again(&mut self, place: Place, members: Vec<Member>, mark: u32) {
        (self.place, self.members, self.stood) = (place, members, None);
        self.finding.withdrawn_step = None;
        if self.finding.certainty == Certainty::InUse {
            self.finding.certainty = Certainty::Growing;
        }
        self.finding.detected_step = mark;
        self.finding.established = false;
    }

    /// What it says as of the last mark.
    pub(super) fn renew(&mut self, replay: &Replay, policy: &Policy) {
        self.members.sort_by_key(|m| {
            (m.growth.stalled, std::cmp::Reverse(m.growth.rate.bytes.max(0.0) as u64), m.id)
        });
        let marks = self.place.mark(replay).saturating_sub(self.finding.first_step);
        // What a job frees on its way out is counted as of its last step.
        let ended = replay.is_torn_down() || replay.ended().is_some();
        if (marks <= FIRST_MARKS || self.looked_at != self.members.len()) && !ended {
            self.origins = origins_of(replay, self.place, &self.members);
            self.looked_at = self.members.len();
        }
        // What grows now may have begun later, and is counted without what came before that.
        let first = onset(&self.members).map_or(0, first_of);
        let grain = self.place.grain;
        self.origins.once.retain(|o| {
            born(o, grain) >= first
                && (ended || replay.block(self.place.device, o.block.addr).is_some_and(|h| h.born == o.born))
        });
        let before = Some(&self.finding);
        let Some((new, outlook)) = compose(replay, policy, self.place, &self.members, &self.origins, before)
        else {
            return;
        };
        let detected_step =
            if new.grain == self.finding.grain { self.finding.detected_step } else { new.detected_step };
        // What began later than was thought was not seen before that.
        let detected_step = detected_step.max(new.first_step);
        self.finding = Finding { id: self.finding.id, detected_step, ..new };
        self.outlook = outlook;
        self.most = self.most.max(self.finding.bytes_now);
    }

    /// Nothing of it grows any more. `life`: all of it has ended, after so many marks at most.
    pub(super) fn withdraw(&mut self, replay: &Replay, life: Option<u32>) {
        self.stood = Some(self.finding.clone());
        let is_once =
            |h: &Held| self.origins.once.iter().any(|o| o.block.addr == h.block.addr && o.born == h.born);
        let is_left = |h: &&Held| h.is_old(replay.steps()) && self.has(h.cohort) && !is_once(h);
        let left = total(replay.blocks(self.place.device).filter(is_left).map(|h| h.block.rounded.0));
        self.finding.bytes_now = self.finding.bytes_now.min(left);
        if let Some(life) = life.filter(|_| self.finding.certainty > Certainty::Note) {
            self.finding.certainty = Certainty::InUse;
            self.finding.evidence = vec![Evidence::new(LONGEST_LIFE, life.into())];
        }
        self.finding.withdrawn_step = Some(self.place.mark(replay));
        self.finding.current_bytes_per_step = 0.0;
        (self.finding.steps_to_oom, self.finding.seconds_to_oom) = (None, None);
    }

    /// Stands as it did, where it was withdrawn only because the job freed what it held when it ended, from step `step` on.
    pub(super) fn stand_again(&mut self, step: u32, freed: &FxHashMap<CohortId, u64>) {
        let late = self.finding.withdrawn_step.is_some_and(|w| w >= step);
        let Some(stood) = self.stood.take_if(|_| late) else { return };
        let gone = total(self.members.iter().filter_map(|m| freed.get(&m.id)).copied());
        // Less than half: what a limit drops, and not all that one function had.
        if gone >= stood.bytes_now / 2 {
            let all = if gone >= stood.bytes_now / 10 * 9 { "all" } else { "most" };
            self.finding = stood;
            let noun = self.finding.grain.noun();
            let last = thousands(self.finding.last_step.into());
            let freed = ", the last one before the job freed ";
            // A job can free in two parts what it held.
            if !self.finding.explain.contains(freed) {
                self.finding.explain = format!(
                    "at the end of {noun} {last}{freed}{all} of this memory: {}",
                    self.finding.explain
                );
            }
        }
    }
}

/// What the members of a case come to. `before`: what was said of it at the mark before.
fn compose(
    replay: &Replay,
    policy: &Policy,
    place: Place,
    members: &[Member],
    origins: &Origins,
    before: Option<&Finding>,
) -> Option<(Finding, Outlook)> {
    let mark = place.mark(replay);
    let lead = replay.cohorts().get(members.first()?.id.0 as usize)?;
    let (kind, explain) = kinds::of_growth(replay, lead)?;
    let rate = Rate::sum(members.iter().map(|m| m.growth.rate));
    let onset = onset(members).unwrap_or(mark);
    let marks = mark.saturating_sub(onset) + 1;
    let first_step = first_of(onset);
    let (sites, bytes_now, blocks_now) = shares(replay, members, &origins.once, &origins.stacks);
    let grown = rate.bytes * f64::from(marks);
    let a_second = grown * 1e9 / (replay.last_step_time().0 as f64).max(1.0);
    let is_much = grown >= NO_NUMBERS.0 && a_second >= NO_NUMBERS.1;
    let (certainty, evidence, sparse) = certainty(members, origins, &rate, is_much, before);
    let established = marks >= MIN_MARKS || before.is_some_and(|b| b.established);
    // Of what is made anew again and again nothing waits for the collector.
    let is_anew = members.first().is_some_and(|m| m.growth.is_anew());
    let waits = !is_anew && is_uncollected(replay, place.grain, first_step);
    let per_step = forecast::per_step(replay, place.grain);
    let outlook = Outlook {
        rate,
        per_step,
        marks,
        room: place.headroom(replay, first_step),
        pace: forecast::pace(replay).map(|pace| pace / per_step),
        certainty,
        // Buffers fill as a job begins: for a dozen marks nobody is woken.
        hasty: !established && kind.may_be_buffer(),
        left: policy
            .planned_steps
            .map(|p| u64::from(p.saturating_sub(replay.steps())))
            .filter(|_| place.grain == Grain::Step),
        twice: (is_anew && lead.beside).then(|| 1.0 / (blocks_now as f64).max(1.0)),
        waits,
    };
    let mut finding = Finding {
        id: 0,
        kind,
        certainty,
        evidence,
        bound: None,
        severity: Severity::Info,
        urgency: Severity::Info,
        grain: GrainName::of(replay, place.grain),
        device: place.device,
        stream: StreamRef::of(replay, place.stream),
        first_step,
        detected_step: mark,
        withdrawn_step: None,
        suppressed_by: None,
        established,
        bytes_per_step: rate.bytes,
        blocks_per_step: rate.blocks,
        current_bytes_per_step: rate.current,
        bytes_now,
        blocks_now,
        not_counted: not_counted(members),
        sparse,
        steps_to_oom: None,
        seconds_to_oom: None,
        with_others: false,
        speeds_up: false,
        last_step: mark,
        explain: String::new(),
        sites,
        once: origins.once.iter().map(|h| h.block.addr).collect(),
    };
    finding.explain = explain(&Grown { replay, finding: &finding, members, mark });
    if waits && certainty >= Certainty::Growing {
        finding.explain.push_str(UNCOLLECTED);
    }
    outlook.tell(&mut finding, outlook.per_step());
    Some((finding, outlook))
}

/// How sure it is, and on what that rests; and whether it is [`Finding::sparse`]. What once was sure stays it.
fn certainty(
    members: &[Member],
    origins: &Origins,
    rate: &Rate,
    is_much: bool,
    before: Option<&Finding>,
) -> (Certainty, Vec<Evidence>, Option<f64>) {
    let (mut evidence, mut word) = (Vec::new(), Certainty::Growing);
    let Some(lead) = members.first() else { return (Certainty::Note, evidence, None) };
    let (blocks, bytes) = members
        .iter()
        .fold((0u64, 0u64), |s, m| (s.0 + m.growth.now.blocks, s.1.saturating_add(m.growth.now.bytes)));
    match lead.growth.rule {
        Rule::Kept { marks, life, trend, .. } => {
            let longest = members.iter().filter_map(|m| match m.growth.rule {
                Rule::Kept { marks, trend, .. } if trend.abs() < STEADY => Some(marks),
                _ => None,
            });
            if longest.max().is_some_and(|marks| marks >= LONG_GROWTH) {
                word = Certainty::Leak;
            }
            evidence.push(Evidence::new(
                "live blocks that are older than any freed block from the same line",
                blocks.saturating_sub(origins.once.len() as u64) as f64,
            ));
            evidence.push(Evidence::new(BIRTHS, marks.saturating_sub(origins.marks).into()));
            evidence.push(Evidence::new(LONGEST_LIFE, life.into()));
            let trend = (trend * 10.0).round() / 10.0;
            evidence.push(Evidence::new(
                "are these blocks allocated less and less often? Laplace trend statistic (below -2: yes)",
                trend,
            ));
        }
        Rule::Backlog { life } => {
            evidence.push(Evidence::new(
                "more live blocks than when the growth began, from a line whose blocks are also freed",
                blocks as f64,
            ));
            evidence.push(Evidence::new(LONGEST_LIFE, life.into()));
        }
        Rule::Remade { rises, trend } => {
            evidence.push(Evidence::new(REMADE, rises.into()));
            let trend = (trend * 10.0).round() / 10.0;
            evidence.push(Evidence::new(
                "does this happen less and less often? Laplace trend statistic (below -2: yes)",
                trend,
            ));
        }
    }
    // Of what comes, not of what a line allocated besides when the job began, such as a workspace of cuBLAS.
    let size =
        if rate.blocks > 0.0 { rate.bytes / rate.blocks } else { bytes as f64 / (blocks as f64).max(1.0) };
    let is_one = lead.growth.is_anew();
    let is_small = (size <= NUMBERS.0 || is_one) && rate.bytes < NUMBERS.1 && !is_much;
    let is_sparse = members.iter().all(|m| m.growth.is_sparse());
    if is_small || is_sparse {
        word = Certainty::Note;
    }
    let word = before.filter(|b| b.withdrawn_step.is_none()).map_or(word, |b| word.max(b.certainty));
    let sparse = is_sparse && !is_small && word == Certainty::Note;
    (word, evidence, sparse.then_some(lead.growth.gap))
}

/// See [`Finding::not_counted`]: of what no more comes of, all is counted.
fn not_counted(members: &[Member]) -> u32 {
    let age = |m: &Member| match m.growth.rule {
        Rule::Kept { age, .. } if !m.growth.stalled => age,
        _ => 0,
    };
    members.iter().map(age).max().unwrap_or(0)
}

/// What the sentence of a finding ends with whose blocks may still be freed by Python's collector.
pub const UNCOLLECTED: &str = "; Python has not run a full garbage collection since the oldest of these blocks was allocated, so they may be in reference cycles, which gc.collect() frees";

/// Whether Python's collector is known not to have made a full collection since what was allocated in step (or microbatch)
/// `first`: what reference cycles keep looks like a leak until then.
fn is_uncollected(replay: &Replay, grain: Grain, first: u32) -> bool {
    replay.last_full_collection().is_some_and(|(step, microbatch)| match grain {
        Grain::Step => step <= first,
        Grain::Microbatch => microbatch <= first,
    })
}

/// The mark at which growth began to show.
fn onset(members: &[Member]) -> Option<u32> {
    members.iter().map(|m| m.growth.onset).min()
}

/// The mark whose blocks showed then.
fn first_of(onset: u32) -> u32 {
    onset.saturating_sub(GRACE).max(1)
}

/// For so many marks it is looked for what was allocated once.
const FIRST_MARKS: u32 = 24;

/// Where the blocks of these members came from.
fn origins_of(replay: &Replay, place: Place, members: &[Member]) -> Origins {
    let Some(first) = onset(members).map(first_of) else { return Origins::default() };
    let all: Vec<&Held> = replay
        .blocks(place.device)
        .filter(|h| !h.pending && !h.unverified && born(h, place.grain) >= first)
        .filter(|h| members.iter().any(|m| m.id == h.cohort))
        .collect();
    origins(&all, first, place.grain, members)
}

/// Sites by falling share, and the sums, without what was allocated `once`.
fn shares(
    replay: &Replay,
    members: &[Member],
    once: &[Held],
    stacks: &Stacks,
) -> (Vec<FindingSite>, u64, u64) {
    let mut by_site: FxHashMap<u32, FindingSite> = FxHashMap::default();
    let (mut bytes, mut blocks) = (0, 0);
    for m in members {
        let Some(key) = replay.cohorts().get(m.id.0 as usize).map(|c| c.key) else { continue };
        let (site, of_optimizer) = (key.site, Some(key.optimizer));
        let stack = stacks.get(&site).copied().unwrap_or_default();
        let new = FindingSite { site, stack, share: 0.0, blocks_now: 0, bytes_now: 0, of_optimizer };
        let s = by_site.entry(site.0).or_insert(new);
        s.of_optimizer = s.of_optimizer.filter(|o| *o == key.optimizer);
        // What is counted from a base on is without it already.
        let is_kept = matches!(m.growth.rule, Rule::Kept { .. });
        let mine = || once.iter().filter(|h| is_kept && h.cohort == m.id);
        let apart = total(mine().map(|h| h.block.rounded.0));
        let now_bytes = m.growth.now.bytes.saturating_sub(apart);
        let now_blocks = m.growth.now.blocks.saturating_sub(mine().count() as u64);
        s.bytes_now = s.bytes_now.saturating_add(now_bytes);
        s.blocks_now += now_blocks;
        bytes = u64::saturating_add(bytes, now_bytes);
        blocks += now_blocks;
    }
    let mut sites: Vec<FindingSite> = by_site.into_values().collect();
    for s in &mut sites {
        s.share = s.bytes_now as f64 / (bytes as f64).max(1.0);
    }
    // The state of an optimizer comes with the weights that it is of, and goes with them: they are the cause, though they are smaller.
    let follows = |s: &FindingSite| s.of_optimizer == Some(true);
    sites.sort_by_key(|s| (follows(s), std::cmp::Reverse(s.bytes_now), s.site));
    (sites, bytes, blocks)
}
