//! The detectors together: asked at every mark, they remember what they said.

use super::finding::{Finding, FindingSite, GrainName, Kind, StreamRef};
use super::forecast::{self, Rate};
use super::growth::{self, Growth, Scratch, Strength};
use super::severity::{SURE, Severity, WARNING_STEPS};
use super::{deferred_free, live_after_stream_exit, note, step_growth};
use crate::event::steps::StepSource;
use crate::event::{DeviceId, StreamId};
use crate::replay::{Cohort, CohortId, Grain, Held, Progress, Replay};
use rustc_hash::FxHashMap;

/// What the user set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The step after which the job will end by itself, where known: a leak that fills the device later is no
    /// alert.
    pub planned_steps: Option<u32>,
}

/// What a finding is about. There is at most one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Subject {
    pub(super) kind: Kind,
    pub(super) device: DeviceId,
    pub(super) stream: StreamId,
}

/// A member of a finding: a cohort that grows, or grew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) id: CohortId,
    pub(super) growth: Growth,
    /// It does not grow any more, but what it left is still there.
    pub(super) stalled: bool,
}

/// One subject's history.
#[derive(Clone, Debug)]
struct Case {
    finding: Finding,
    members: FxHashMap<CohortId, Growth>,
    /// The worst that it ever was.
    worst: Severity,
    /// As it was before it was withdrawn.
    stood: Option<Finding>,
}

impl Case {
    /// Stands as it did, where it was withdrawn only because the job freed what it held when it ended, from step `step` on.
    fn stand_again(&mut self, step: u32, freed: &FxHashMap<CohortId, u64>) {
        let late = self.finding.withdrawn_step.is_some_and(|w| w >= step);
        let Some(stood) = self.stood.take_if(|_| late) else { return };
        let gone: u64 = self.members.keys().filter_map(|id| freed.get(id)).sum();
        if gone >= stood.bytes_now / 10 * 9 {
            self.finding = stood;
        }
    }
}

/// All judgements over one replay.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    policy: Policy,
    cases: FxHashMap<Subject, Case>,
    /// What is no leak, as of the last look.
    notes: Vec<Finding>,
    findings: Vec<Finding>,
    scratch: Scratch,
    /// Blocks that were held when the first step ended, but for the optimizer's.
    weights: FxHashMap<DeviceId, u64>,
    generation: u32,
    /// Steps and microbatches at the last look, whether the recording had ended, and whether it was a whole look.
    judged: Option<((u32, u32, bool), bool)>,
}

/// Steps until full within which the fast path may raise an alert by itself.
const FAST_ALERT_STEPS: u64 = 50;
/// Steps until full within which growth too brief to be judged is worth a word: half as many again as a warning's, since
/// a rate seen for a dozen steps is known no better.
const WORD_STEPS: u64 = WARNING_STEPS / 2 * 3;
/// Cohorts, fastest first, that are tried as the one a group is about.
const LEADS: usize = 64;
/// Marks at which every cohort is looked at; later, at one in each 64th of the run, and between only at
/// cohorts that changed lately.
const EVERY: u32 = 128;

impl Detector {
    /// A detector that has seen nothing.
    pub fn new(policy: Policy) -> Detector {
        Detector { policy, ..Detector::default() }
    }

    /// Judges anew where `progress` says that a mark has passed. Call it after every [`Replay::apply`];
    /// without a mark it costs nothing. Call [`Detector::at_step`] before reading findings at the end: in
    /// long runs a growth that has stopped is withdrawn a little later than it could be.
    #[inline]
    pub fn after(&mut self, progress: Progress, replay: &Replay) {
        if progress != Progress::default() {
            self.mark(progress, replay);
        }
    }

    fn mark(&mut self, progress: Progress, replay: &Replay) {
        if progress.folded {
            self.cases.clear();
            self.notes.clear();
            self.judged = None;
        }
        let due = |n: Option<u32>| n.is_some_and(|n| n <= EVERY || n.is_multiple_of(n / (EVERY / 2)));
        self.judge(replay, due(progress.step) || due(progress.microbatch) || progress.folded);
    }

    /// Judges as of the replay's last marks.
    pub fn at_step(&mut self, replay: &Replay) {
        self.judge(replay, true);
    }

    fn judge(&mut self, replay: &Replay, whole: bool) {
        if self.generation != replay.generation() {
            self.generation = replay.generation();
            self.cases.clear();
            self.notes.clear();
            self.weights.clear();
            self.scratch.forget();
            self.judged = None;
        }
        if replay.steps() == 1 {
            self.weights = weights(replay);
        }
        let now = (replay.steps(), replay.microbatches(), replay.ended().is_some());
        if self.judged == Some((now, true)) {
            return;
        }
        self.judged = Some((now, whole));
        let mut standing: FxHashMap<Subject, (Grain, Vec<Member>)> = FxHashMap::default();
        // Steps are told apart from microbatches only where there are several to a step.
        if now.1 >= now.0.saturating_mul(2) {
            self.grown(replay, Grain::Microbatch, now.1, whole, &mut standing);
        }
        self.grown(replay, Grain::Step, now.0, whole, &mut standing);
        let news = whole || !standing.is_empty();
        for (subject, (grain, members)) in standing {
            self.say(replay, subject, grain, members);
        }
        if news {
            self.collect(replay, whole);
        }
    }

    /// Everything that was ever said, also what was withdrawn: what stands first, the worst first.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether a block is among those that a leak finding which stands (at any severity) counts.
    pub fn left_behind(&self, block: &Held) -> bool {
        self.findings.iter().any(|f| f.is_active_leak() && f.counts(block))
    }

    /// Groups the cohorts that grow by subject. What the coarser grain says replaces what the finer one said.
    fn grown(
        &mut self,
        replay: &Replay,
        grain: Grain,
        mark: u32,
        whole: bool,
        out: &mut FxHashMap<Subject, (Grain, Vec<Member>)>,
    ) {
        let mut found: FxHashMap<Subject, Vec<Member>> = FxHashMap::default();
        for (i, c) in replay.cohorts().iter().enumerate() {
            let id = CohortId(i as u32);
            let t = growth::track(c, grain);
            if t.at_mark.blocks == 0 {
                continue;
            }
            let weights = |c: &Cohort| self.weights.get(&c.key.device).copied().unwrap_or(0);
            let subject = || Subject { kind: kind_of(replay, c), device: c.key.device, stream: c.key.stream };
            // Between whole looks, what is known goes on as it was, and only what changes is looked at for news.
            let known = || self.cases.get(&subject())?.members.get(&id).filter(|g| !g.has_stalled(mark));
            let growth = match whole {
                true => growth::of(replay, id, grain, mark, weights(c), &mut self.scratch),
                false => match known() {
                    Some(g) => Some(Growth { now: t.at_mark, ..*g }),
                    None if growth::is_flat(t) => None,
                    None => growth::of(replay, id, grain, mark, weights(c), &mut self.scratch),
                },
            };
            let Some(growth) = growth else { continue };
            found.entry(subject()).or_default().push(Member { id, growth, stalled: false });
        }
        for (subject, mut members) in found {
            let best = members.iter().map(|m| m.growth.strength).max().unwrap_or(Strength::Weak);
            let known = self.cases.get(&subject).is_some_and(|c| {
                c.finding.withdrawn_step.is_none()
                    && c.finding.grain == name(replay, grain)
                    && members.iter().any(|m| c.members.contains_key(&m.id))
            });
            let fast = best == Strength::Fast && subject.kind == Kind::LiveAfterStreamExit;
            if !known && best != Strength::Established && !fast {
                if grain != Grain::Step || !self.is_worth_a_word(replay, subject, &members) {
                    continue;
                }
                members.retain(|m| m.growth.brief);
            }
            // What is in use is no part of a leak, but where it was found to be one.
            let case = self.cases.get(&subject).filter(|c| c.finding.withdrawn_step.is_none());
            if best >= Strength::Fast || case.is_some_and(|c| c.finding.established) {
                let was = |m: &Member| case.and_then(|c| c.members.get(&m.id)).is_some_and(|g| !g.in_use);
                members.retain(|m| !m.growth.in_use || was(m));
            }
            if members.is_empty() {
                continue;
            }
            if fast && !known {
                members.retain(|m| m.growth.strength == Strength::Fast);
            }
            self.one_cause(replay, subject, mark, &mut members);
            if grain == Grain::Step || !out.contains_key(&subject) {
                out.insert(subject, (grain, members));
            }
        }
    }

    /// Growth too brief to be judged that would fill the device in a run of ordinary length.
    fn is_worth_a_word(&self, replay: &Replay, subject: Subject, members: &[Member]) -> bool {
        let brief = || members.iter().filter(|m| m.growth.brief);
        let rate = Rate::sum(brief().map(|m| m.growth.rate));
        let room = forecast::headroom(replay, subject.device);
        brief().next().is_some() && forecast::steps_to_oom(room.bytes, &rate).mid <= WORD_STEPS
    }

    /// Keeps the group of cohorts that grows fastest, and those groups that would be worth a warning alone: a
    /// cache that happens to fill beside a leak is no part of it. Cohorts are a group where they began
    /// together and rise alike.
    fn one_cause(&self, replay: &Replay, subject: Subject, mark: u32, members: &mut Vec<Member>) {
        members.sort_by_key(|m| (std::cmp::Reverse(m.growth.rate.bytes as u64), m.id));
        let judged = members.iter().any(|m| m.growth.strength >= Strength::Fast);
        let brief = members.iter().any(|m| m.growth.brief);
        // Where nothing is sure any more, what was found goes on; what began just now is no part of it.
        let known = |m: &Member| self.cases.get(&subject).is_some_and(|c| c.members.contains_key(&m.id));
        let sure = |m: &&Member| match (judged, brief) {
            (true, _) => m.growth.strength >= Strength::Fast,
            (_, true) => m.growth.brief,
            _ => known(m),
        };
        // A group by the member that it is about: what resembles it, and how fast that grows together.
        let group = |lead: &Growth| Rate::sum(alike(members, lead, mark).map(|m| m.growth.rate));
        let leads: Vec<(Growth, Rate)> =
            members.iter().filter(sure).take(LEADS).map(|m| (m.growth, group(&m.growth))).collect();
        let Some(first) = leads.iter().max_by(|a, b| a.1.bytes.total_cmp(&b.1.bytes)) else { return };
        let room = forecast::headroom(replay, subject.device);
        let worth = |(g, rate): &(Growth, Rate)| {
            let seen = mark - g.onset + 1;
            let severity = Severity::judged(&room, rate, (seen, seen.into()), None, None);
            g.strength == Strength::Established && severity > Severity::Info
        };
        let told: Vec<Growth> = leads.iter().filter(|l| l.0 == first.0 || worth(l)).map(|l| l.0).collect();
        members.retain(|m| told.iter().any(|lead| m.growth.resembles(lead, mark)));
    }

    /// What a cohort is a sign of can change: a stream that trained at first trains no more, or one that was busy is not. What was
    /// found goes on under its new kind, and is not found twice.
    fn go_on(&mut self, replay: &Replay, subject: Subject, members: &[Member]) {
        let stands = |c: &Case| c.finding.withdrawn_step.is_none();
        let kind = match subject.kind {
            Kind::StepGrowth => Kind::LiveAfterStreamExit,
            _ => Kind::StepGrowth,
        };
        let before = Subject { kind, ..subject };
        let goes = |c: &Case| {
            let of = |id: &CohortId| kind_of(replay, &replay.cohorts()[id.0 as usize]);
            stands(c)
                && members.iter().any(|m| c.members.contains_key(&m.id))
                && c.members.keys().all(|id| of(id) == subject.kind)
        };
        if !self.cases.get(&before).is_some_and(goes) {
            return;
        }
        let Some(mut case) = self.cases.remove(&before) else { return };
        case.finding.kind = subject.kind;
        if !self.cases.get(&subject).is_some_and(stands) {
            self.cases.insert(subject, case);
        }
    }

    /// Makes or renews the finding of a subject.
    fn say(&mut self, replay: &Replay, subject: Subject, grain: Grain, mut members: Vec<Member>) {
        let mark = if grain == Grain::Step { replay.steps() } else { replay.microbatches() };
        self.go_on(replay, subject, &members);
        let old = self.cases.get(&subject);
        // A member that stopped growing still holds what it left behind; of what was withdrawn nothing was.
        if let Some(case) = old.filter(|c| c.finding.withdrawn_step.is_none()) {
            for (id, g) in &case.members {
                let grows = members.iter().any(|m| m.id == *id);
                let cohort = &replay.cohorts()[id.0 as usize];
                let t = growth::track(cohort, grain);
                let is_its = kind_of(replay, cohort) == subject.kind;
                if !grows && is_its && g.is_left(t) && case.finding.grain == name(replay, grain) {
                    let growth = Growth { now: t.at_mark, rate: Rate { current: 0.0, ..g.rate }, ..*g };
                    members.push(Member { id: *id, growth, stalled: true });
                }
            }
        }
        let active = || members.iter().filter(|m| !m.stalled);
        let established = active().any(|m| m.growth.strength == Strength::Established)
            || old.is_some_and(|c| c.finding.established && c.finding.withdrawn_step.is_none());
        let stands = old.filter(|c| c.finding.withdrawn_step.is_none());
        let loud = subject.kind == Kind::LiveAfterStreamExit
            && (active().any(|m| m.growth.strength == Strength::Fast)
                || stands.is_some_and(|c| c.finding.severity > Severity::Info));
        let mut finding = self.compose(replay, subject, grain, mark, &members, established);
        if !established && !loud {
            finding.severity = Severity::Info;
        }
        let finding = match old {
            Some(c) if c.finding.withdrawn_step.is_none() && c.finding.grain == finding.grain => {
                Finding { detected_step: c.finding.detected_step, ..finding }
            }
            _ => finding,
        };
        let members = members.into_iter().map(|m| (m.id, m.growth)).collect();
        let worst = old.map_or(Severity::Info, |c| c.worst).max(finding.severity);
        self.cases.insert(subject, Case { finding, members, worst, stood: None });
    }

    fn compose(
        &self,
        replay: &Replay,
        subject: Subject,
        grain: Grain,
        mark: u32,
        members: &[Member],
        established: bool,
    ) -> Finding {
        let rate = Rate::sum(members.iter().map(|m| m.growth.rate));
        let room = forecast::headroom(replay, subject.device);
        let left = self.policy.planned_steps.map(|p| u64::from(p.saturating_sub(replay.steps())));
        let nanos = (mark > 0).then(|| replay.last_step_time().0 as f64 / f64::from(mark));
        let onset = members.iter().map(|m| m.growth.onset).min().unwrap_or(mark);
        let marks = mark.saturating_sub(onset) + 1;
        let guess = forecast::interval(&room, &rate, marks);
        let sure = established && subject.kind == Kind::LiveAfterStreamExit;
        let rises = members.iter().map(|m| u64::from(m.growth.rises)).max().unwrap_or(0);
        let seen = u64::from(marks).max(if sure { rises * SURE } else { 0 });
        let left = left.filter(|_| grain == Grain::Step);
        let mut severity = Severity::judged(&room, &rate, (marks, seen), nanos, left);
        let near = room.known && guess.mid <= FAST_ALERT_STEPS;
        let first_step = onset.saturating_sub(crate::replay::GRACE).max(1);
        let uncollected = is_uncollected(replay, grain, first_step);
        if (!established || uncollected) && !near {
            severity = severity.min(Severity::Warning);
        }
        let (sites, bytes_now, blocks_now) = shares(replay, members);
        let mut finding = Finding {
            kind: subject.kind,
            severity,
            grain: name(replay, grain),
            device: subject.device,
            stream: stream_ref(replay, subject.stream),
            first_step,
            detected_step: mark,
            withdrawn_step: None,
            established,
            bytes_per_step: rate.bytes,
            blocks_per_step: rate.blocks,
            current_bytes_per_step: rate.current,
            bytes_now,
            blocks_now,
            steps_to_oom: room.known.then_some(guess),
            explain: String::new(),
            sites,
        };
        finding.explain = match subject.kind {
            Kind::LiveAfterStreamExit => live_after_stream_exit::explain(replay, &finding, members, mark),
            _ => step_growth::explain(replay, &finding, members, mark),
        };
        if uncollected && severity > Severity::Info {
            finding.explain.push_str(UNCOLLECTED);
        }
        finding
    }

    /// Withdraws what does not stand any more (after a whole look), and puts findings in order.
    fn collect(&mut self, replay: &Replay, whole: bool) {
        for case in self.cases.values_mut().filter(|c| whole && c.finding.withdrawn_step.is_none()) {
            let grain =
                if case.finding.grain == GrainName::Microbatch { Grain::Microbatch } else { Grain::Step };
            let mark = if grain == Grain::Step { replay.steps() } else { replay.microbatches() };
            let grows = case.members.keys().any(|id| {
                let c = &replay.cohorts()[id.0 as usize];
                let weights = self.weights.get(&c.key.device).copied().unwrap_or(0);
                growth::of(replay, *id, grain, mark, weights, &mut self.scratch).is_some()
            });
            if !grows {
                case.stood = Some(case.finding.clone());
                case.finding.withdrawn_step = Some(mark);
                case.finding.current_bytes_per_step = 0.0;
                case.finding.steps_to_oom = None;
            }
        }
        if let Some((step, freed)) = replay.left_in() {
            self.cases.values_mut().for_each(|c| c.stand_again(step, &freed));
        }
        // What was never more than a word on something that filled is not worth a second one.
        self.cases.retain(|_, c| c.finding.withdrawn_step.is_none() || c.worst > Severity::Info);
        // Of a job that has freed what it held no block tells what lay where at its last step's end.
        let torn_down = replay.is_torn_down();
        if !torn_down {
            deferred_free::check(replay, &mut self.notes);
        } else if whole {
            self.notes.extend(note::of_the_end(replay));
        }
        if whole && !torn_down {
            let accused: Vec<&Finding> =
                self.cases.values().map(|c| &c.finding).filter(|f| f.is_active_leak()).collect();
            let news = note::all(replay, &accused, &self.notes);
            self.notes.retain(|f| f.kind == Kind::DeferredFree);
            self.notes.extend(news);
        }
        self.findings = self.cases.values().map(|c| &c.finding).chain(&self.notes).cloned().collect();
        self.findings.sort_by(|a, b| {
            let rank =
                |f: &Finding| (f.withdrawn_step.is_some(), !f.kind.is_leak(), std::cmp::Reverse(f.severity));
            rank(a).cmp(&rank(b)).then(b.bytes_now.cmp(&a.bytes_now)).then(
                (a.kind, a.device, a.stream.map(|s| s.id)).cmp(&(b.kind, b.device, b.stream.map(|s| s.id))),
            )
        });
    }
}

/// What the sentence of a finding ends with whose blocks may still be freed by Python's collector.
pub const UNCOLLECTED: &str = "; Python's collector has not gone over all objects since the oldest of them, so that reference cycles may be what keeps them";

/// Whether Python's collector is known not to have made a full collection since what was allocated in step (or microbatch)
/// `first`: what reference cycles keep looks like a leak until then.
fn is_uncollected(replay: &Replay, grain: Grain, first: u32) -> bool {
    replay.last_full_collection().is_some_and(|(step, microbatch)| match grain {
        Grain::Step => step <= first,
        Grain::Microbatch => microbatch <= first,
    })
}

/// Blocks that are held now, but for those of lines where an optimizer allocates, by device.
fn weights(replay: &Replay) -> FxHashMap<DeviceId, u64> {
    let mut all = FxHashMap::default();
    for c in replay.cohorts().iter().filter(|c| c.in_optimizer == 0) {
        *all.entry(c.key.device).or_default() += c.live.blocks;
    }
    all
}

fn alike<'a>(members: &'a [Member], lead: &'a Growth, mark: u32) -> impl Iterator<Item = &'a Member> {
    members.iter().filter(move |m| m.growth.resembles(lead, mark))
}

fn kind_of(replay: &Replay, c: &Cohort) -> Kind {
    if live_after_stream_exit::applies(replay, c) { Kind::LiveAfterStreamExit } else { Kind::StepGrowth }
}

pub(super) fn name(replay: &Replay, grain: Grain) -> GrainName {
    match (grain, replay.step_source()) {
        (Grain::Microbatch, _) => GrainName::Microbatch,
        (Grain::Step, StepSource::Time) => GrainName::Tick,
        (Grain::Step, _) => GrainName::Step,
    }
}

pub(super) fn stream_ref(replay: &Replay, id: StreamId) -> Option<StreamRef> {
    let s = replay.stream(id)?;
    Some(StreamRef { id, handle: s.handle, side: replay.is_side(id), epoch: s.epoch })
}

/// Sites by falling share, and the sums.
fn shares(replay: &Replay, members: &[Member]) -> (Vec<FindingSite>, u64, u64) {
    let mut by_site: FxHashMap<u32, FindingSite> = FxHashMap::default();
    let (mut bytes, mut blocks) = (0, 0);
    for m in members {
        let site = replay.cohorts()[m.id.0 as usize].key.site;
        let s =
            by_site.entry(site.0).or_insert(FindingSite { site, share: 0.0, blocks_now: 0, bytes_now: 0 });
        s.bytes_now = s.bytes_now.saturating_add(m.growth.now.bytes);
        s.blocks_now += m.growth.now.blocks;
        bytes = u64::saturating_add(bytes, m.growth.now.bytes);
        blocks += m.growth.now.blocks;
    }
    let mut sites: Vec<FindingSite> = by_site.into_values().collect();
    for s in &mut sites {
        s.share = s.bytes_now as f64 / (bytes as f64).max(1.0);
    }
    sites.sort_by_key(|s| (std::cmp::Reverse(s.bytes_now), s.site));
    (sites, bytes, blocks)
}
