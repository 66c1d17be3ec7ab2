//! The detectors together: asked at every mark, they remember what they said.

use super::births::{BIRTHS, TICKS};
use super::case::{Case, Place};
use super::certainty::{Bound, Certainty};
use super::check::{Check, Context};
use super::finding::Finding;
use super::forecast::Rate;
use super::growth::{self, Line, Member, Rule};
use super::keeper::{Testimony, refine};
use super::loading::has_only_filled;
use super::oom::final_oom;
use super::policy::Policy;
use super::replaced::takes_places;
use super::survivors::Fell;
use super::{kinds, note};
use crate::event::DeviceId;
use crate::replay::{Cohort, CohortId, GRACE, Grain, Point, Progress, Replay};
use rustc_hash::{FxHashMap, FxHashSet};

/// All judgements over one replay.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    policy: Policy,
    cases: Vec<Case>,
    /// Cases there were, for their numbers.
    numbered: u32,
    /// What is known of each cohort that is worth it, by step and by microbatch.
    lines: Vec<Option<Box<[Line; 2]>>>,
    /// What is no leak, as of the last look.
    notes: Vec<Finding>,
    /// Lines whose blocks took the place of others' as of the last whole look.
    replaced: FxHashSet<CohortId>,
    findings: Vec<Finding>,
    rises: Vec<(u32, Point)>,
    /// What is held but for the optimizer's: blocks when the first step ended, and the most bytes then or of old blocks since.
    weights: FxHashMap<DeviceId, Point>,
    generation: u32,
    /// Steps and microbatches at the last look, whether the recording had ended, and whether it was a whole look.
    judged: Option<((u32, u32, bool), bool)>,
}

/// Marks at which notes are made, too; later, at one in each 64th of the run.
const EVERY: u32 = 128;
/// So many marks are all judged; later, one in each 4,096th of the run, so that a long one is not judged ever more often.
const ALL: u32 = 1 << 12;

impl Detector {
    /// A detector that has seen nothing.
    pub fn new(policy: Policy) -> Detector {
        Detector { policy, ..Detector::default() }
    }

    /// Judges anew where `progress` says that a mark has passed. Call it after every [`Replay::apply`];
    /// without a mark it costs nothing. Call [`Detector::at_step`] before reading findings at the end: in
    /// long runs not every mark is judged, and notes are renewed only now and then.
    #[inline]
    pub fn after(&mut self, progress: Progress, replay: &Replay) {
        if progress != Progress::default() {
            self.mark(progress, replay);
        }
    }

    fn mark(&mut self, progress: Progress, replay: &Replay) {
        if progress.folded {
            self.forget();
        }
        let one_in = |part: u32| move |n: u32| n.is_multiple_of((n / part).max(1));
        let any =
            |is: &dyn Fn(u32) -> bool| progress.step.is_some_and(is) || progress.microbatch.is_some_and(is);
        let whole = progress.folded || any(&|n| n <= EVERY || one_in(EVERY / 2)(n));
        if whole || any(&one_in(ALL)) {
            self.judge(replay, whole);
        }
    }

    /// Judges as of the replay's last marks.
    pub fn at_step(&mut self, replay: &Replay) {
        self.judge(replay, true);
    }

    /// Steps or cohorts are others now.
    fn forget(&mut self) {
        self.cases.clear();
        self.lines.clear();
        self.notes.clear();
        self.replaced.clear();
        self.judged = None;
    }

    fn judge(&mut self, replay: &Replay, whole: bool) {
        if self.generation != replay.generation() {
            self.generation = replay.generation();
            self.forget();
            self.weights.clear();
        }
        if replay.steps() == 1 {
            self.weights = outside_optimizers(replay, |c| c.live);
        } else if whole {
            for (device, now) in outside_optimizers(replay, |c| c.steps.at_mark) {
                let known = self.weights.entry(device).or_default();
                known.bytes = known.bytes.max(now.bytes);
            }
        }
        let now = (replay.steps(), replay.microbatches(), replay.ended().is_some());
        if self.judged == Some((now, true)) {
            return;
        }
        self.judged = Some((now, whole));
        let grown = self.grown(replay, whole);
        let news = whole || !grown.is_empty() || self.cases.iter().any(Case::stands);
        self.go_on(replay, &grown);
        self.begin(replay, &grown);
        if news {
            self.collect(replay, whole);
        }
    }

    /// Everything that was ever said, also what was withdrawn: what stands first, the surest first.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Of an earlier step: takes over how large what is bounded will be, where only the findings on the whole recording tell.
    pub fn take_bounds(&mut self, whole: &[Finding]) {
        for f in &mut self.findings {
            let same = whole.iter().find(|g| (g.id, g.kind) == (f.id, f.kind)).and_then(|g| g.bound.clone());
            let lacks = |b: &Bound| b.bytes.is_none() && same.as_ref().is_some_and(|s| s.source == b.source);
            if f.bound.as_ref().is_some_and(lacks) {
                f.bound = same;
            }
        }
    }

    /// Takes in what is known of each finding beyond the events (see [`refine`]), until the next mark is judged. Call it
    /// before [`Detector::findings`] are read.
    pub fn hear(&mut self, of: impl Fn(&Finding) -> Testimony) {
        let mut held = Vec::new();
        for f in &mut self.findings {
            let told = of(f);
            refine(f, &told);
            held.push(!told.keepers.is_empty());
        }
        self.draw();
        // What a root reaches is no cycle garbage: nothing has to wait for the collector.
        let all = self.findings.iter_mut().zip(held).filter(|(f, held)| *held && f.is_active_leak());
        all.for_each(|(f, _)| f.severity = f.urgency);
        sort(&mut self.findings);
    }

    /// Takes in what suppresses each finding (see [`Finding::suppressed_by`]), until the next mark is judged. Call it after
    /// [`Detector::hear`]: what a keeper says may make another certainty of it.
    pub fn suppress(&mut self, mut by: impl FnMut(&Finding) -> Option<String>) {
        for f in &mut self.findings {
            f.suppressed_by = None;
            f.suppressed_by = by(f);
        }
        sort(&mut self.findings);
    }

    /// Growth of more than so many bytes a step over the whole run would have been found, as of the last mark; `None` before
    /// anything could be. What is less may hide among blocks that are not old enough, for what ends at their lines, to be
    /// told from it; but for what is told already, as bounded or as suppressed.
    pub fn detectable(&self, replay: &Replay) -> Option<f64> {
        let (steps, micro) = (replay.steps(), replay.microbatches());
        if steps.max(micro) < growth::MIN_MARKS {
            return None;
        }
        let told: FxHashSet<CohortId> =
            self.cases.iter().filter(|c| c.stands()).flat_map(|c| c.members.iter().map(|m| m.id)).collect();
        let untold = (0..).map(CohortId).zip(replay.cohorts()).filter(|(id, _)| !told.contains(id));
        // Lines that left blocks in a few marks are nothing by themselves; but each cell of a notebook, say, is a line of its own.
        let (mut many, mut few, mut when) = (0u64, 0u64, FxHashSet::default());
        for (_, c) in untold {
            let births = c.steps.births.list();
            let is_many = births.iter().map(|b| b.marks).sum::<u32>() >= BIRTHS;
            for b in births.iter().filter(|b| is_many || b.first > growth::BEGINNING) {
                let sum = if is_many { &mut many } else { &mut few };
                *sum = sum.saturating_add(b.total.bytes);
                when.extend((!is_many).then_some(b.first));
            }
        }
        let all = many.saturating_add(if when.len() >= BIRTHS as usize { few } else { 0 });
        Some((all as f64 / f64::from(steps.max(1))).max(growth::LEAST_RATE))
    }

    /// Cohorts that grow as of the last marks. By step where it is seen by step, else by microbatch.
    fn grown(&mut self, replay: &Replay, whole: bool) -> Vec<(Place, Member)> {
        let (mut all, steps, micro) = (Vec::new(), replay.steps(), replay.microbatches());
        // Steps are told apart from microbatches only where there are several to a step.
        let fine = micro >= steps.saturating_mul(2);
        self.lines.resize_with(replay.cohorts().len(), || None);
        for (i, (c, lines)) in replay.cohorts().iter().zip(&mut self.lines).enumerate() {
            if lines.is_none() {
                if !is_worth_watching(c, fine) {
                    continue;
                }
                *lines = Some(Box::default());
            }
            let Some(lines) = lines.as_deref_mut() else { continue };
            let weights = self.weights.get(&c.key.device).copied().unwrap_or_default();
            for (line, (grain, mark)) in
                lines.iter_mut().zip([(Grain::Step, steps), (Grain::Microbatch, micro)])
            {
                if grain == Grain::Microbatch && !fine {
                    break;
                }
                line.look(c, grain, mark, weights);
                if let Some(growth) = line.growth(growth::track(c, grain), mark, &mut self.rises) {
                    all.push((Place::of(c, grain), Member { id: CohortId(i as u32), growth }));
                    break;
                }
            }
        }
        all.retain(|(place, m)| !self.has_stopped(replay, *place, m));
        let replaced: FxHashSet<CohortId> = all
            .iter()
            .filter(|(_, m)| !self.cases.iter().any(|c| c.stands() && c.has(m.id)))
            .filter(|(place, m)| !whole && self.replaced.contains(&m.id) || takes_places(replay, *place, m))
            .map(|(_, m)| m.id)
            .collect();
        all.retain(|(_, m)| !replaced.contains(&m.id));
        self.replaced = replaced;
        all
    }

    /// Whether what it keeps came only together with what another line of its place keeps, which is known to grow no more: of a few
    /// blocks that alone cannot be told.
    fn has_stopped(&self, replay: &Replay, place: Place, m: &Member) -> bool {
        let Rule::Kept { .. } = m.growth.rule else { return false };
        let Some(mine) = replay.cohorts().get(m.id.0 as usize) else { return false };
        let mine = &growth::track(mine, place.grain).births;
        let from = m.growth.onset.saturating_sub(GRACE);
        replay.cohorts().iter().zip(&self.lines).any(|(c, lines)| {
            let line = lines.as_deref().map(|[by_step, by_microbatch]| match place.grain {
                Grain::Step => by_step,
                Grain::Microbatch => by_microbatch,
            });
            let others = growth::track(c, place.grain);
            // Where some have died, others take their place, and it is in use.
            line.is_some_and(|l| l.kept.fell == Some(Fell::Stopped))
                && others.died_old.blocks == 0
                && Place::of(c, place.grain) == place
                && mine.come_with(&others.births, from)
        })
    }

    /// Each case that stands takes up what its lines do now; it is withdrawn where none of them grows.
    fn go_on(&mut self, replay: &Replay, grown: &[(Place, Member)]) {
        for case in self.cases.iter_mut().filter(|c| c.stands()) {
            let now = |id: CohortId, grain: Grain| {
                grown.iter().find(|(p, m)| m.id == id && p.grain == grain).map(|(_, m)| *m)
            };
            let coarser = case.members.iter().any(|m| now(m.id, Grain::Step).is_some());
            if coarser {
                case.place.grain = Grain::Step;
            }
            let (grain, lines) = (case.place.grain, &self.lines);
            let known = |m: &Member| {
                let t = growth::track(replay.cohorts().get(m.id.0 as usize)?, grain);
                let [by_step, by_microbatch] = lines.get(m.id.0 as usize)?.as_deref()?;
                Some((t, if grain == Grain::Step { by_step } else { by_microbatch }))
            };
            let stays = |m: &Member| {
                let (t, line) = known(m)?;
                let stopped = m.growth.stalled || line.kept.fell == Some(Fell::Stopped);
                let growth = m.growth.left(t).filter(|_| stopped)?;
                Some(Member { growth, ..*m })
            };
            let new: Vec<Member> =
                case.members.iter().filter_map(|m| now(m.id, grain).or_else(|| stays(m))).collect();
            if new.iter().any(|m| !m.growth.stalled) {
                case.members = new;
            } else {
                // The longest life of a line whose blocks have all ended: those of a queue do, sooner or later.
                let ended = |m: &Member| {
                    let (t, line) = known(m)?;
                    let is_queue = matches!(m.growth.rule, Rule::Backlog { .. });
                    (is_queue || line.kept.fell == Some(Fell::Ended)).then_some(t.longest_life)
                };
                let lives: Option<Vec<u32>> = case.members.iter().map(ended).collect();
                let life = lives.and_then(|all| all.into_iter().max());
                case.withdraw(replay, life);
            }
        }
    }

    /// What grows and is part of no case becomes part of one that it resembles, or begins one.
    fn begin(&mut self, replay: &Replay, grown: &[(Place, Member)]) {
        let is_new = |(place, m): &&(Place, Member)| {
            !self.cases.iter().any(|c| c.stands() && c.place.grain == place.grain && c.has(m.id))
        };
        let mut new: Vec<(Place, Member)> = grown.iter().filter(is_new).copied().collect();
        new.sort_by_key(|(_, m)| (std::cmp::Reverse(m.growth.rate.bytes.max(0.0) as u64), m.id));
        for (place, m) in new {
            let mark = place.mark(replay);
            if let Some(case) = self.cases.iter_mut().find(|c| c.takes(place, &m.growth, mark)) {
                case.members.push(m);
            } else if let Some(case) = self.cases.iter_mut().find(|c| !c.stands() && c.has(m.id)) {
                case.begin_again(place, vec![m], mark);
            } else {
                self.numbered += 1;
                self.cases.extend(Case::new(replay, &self.policy, self.numbered, place, vec![m]));
            }
            // One leak, one finding: what was told of the line before is part of this now.
            self.cases
                .iter_mut()
                .filter(|c| !c.stands())
                .for_each(|c| c.members.retain(|old| old.id != m.id));
        }
        self.cases.retain(|c| c.stands() || !c.members.is_empty());
        for case in self.cases.iter_mut().filter(|c| c.stands()) {
            case.renew(replay, &self.policy);
        }
    }

    /// Puts findings in order, with the notes where they are due.
    fn collect(&mut self, replay: &Replay, whole: bool) {
        if let Some((step, freed)) = replay.left_in() {
            self.cases.iter_mut().for_each(|c| c.stand_again(step, &freed));
        }
        self.look(replay, whole);
        // What was never more than a word on something that filled is not worth a second one, on whatever card.
        let was_much = |c: &Case| {
            let worth = replay.device(c.finding.device).map(note::worth);
            c.finding.established && worth.is_some_and(|worth| c.most >= worth)
        };
        // What a job had loaded when it died before its first step is no growth of steps.
        let filled =
            final_oom(replay).filter(|(device, o)| has_only_filled(replay, *device, o)).map(|(d, _)| d);
        let is_load = |f: &Finding| f.certainty == Certainty::Growing && Some(f.device) == filled;
        let is_worth_it = |c: &&Case| (c.stands() || was_much(c)) && !is_load(&c.finding);
        let told = self.cases.iter().filter(is_worth_it).map(|c| &c.finding);
        self.findings = told.chain(&self.notes).cloned().collect();
        self.draw();
        sort(&mut self.findings);
    }

    /// Forecasts anew, after [`Replay::suppose_usable`].
    pub fn forecast_again(&mut self, replay: &Replay) {
        self.cases.iter_mut().for_each(|c| c.outlook.room = c.place.headroom(replay, c.finding.first_step));
        self.draw();
    }

    /// Forecasts by all that grows on a device: it is full once.
    fn draw(&mut self) {
        let grows = |f: &Finding| f.withdrawn_step.is_none() && f.certainty >= Certainty::Growing;
        let of_case = |f: &Finding| self.cases.iter().find(|c| c.finding.id == f.id).map(|c| c.outlook);
        let rates: Vec<(DeviceId, Rate)> = self
            .findings
            .iter()
            .filter(|f| grows(f))
            .filter_map(|f| Some((f.device, of_case(f)?.per_step())))
            .collect();
        for f in self.findings.iter_mut().filter(|f| grows(f)) {
            let Some(outlook) = of_case(f) else { continue };
            let all =
                Rate::sum(rates.iter().filter(|(device, _)| *device == f.device).map(|(_, rate)| *rate));
            outlook.tell(f, all);
        }
    }

    /// Asks the detectors whose time it is. What they found before is replaced.
    fn look(&mut self, replay: &Replay, whole: bool) {
        let torn_down = replay.is_torn_down();
        let accused: Vec<&Finding> =
            self.cases.iter().map(|c| &c.finding).filter(|f| f.is_active_leak()).collect();
        let cx = Context { replay, accused: &accused, before: &self.notes };
        let (mut asked, mut news) = (Vec::new(), Vec::new());
        for entry in kinds::ALL {
            let Check::Look { when, all } = entry.check else { continue };
            if when.is_now(whole, torn_down) {
                asked.push(entry.kind);
                news.extend(all(&cx));
            }
        }
        self.notes.retain(|f| !asked.contains(&f.kind));
        self.notes.extend(news);
    }
}

/// Blocks of it grew old in several marks, or die of old age, or are made anew larger and larger.
fn is_worth_watching(c: &Cohort, fine: bool) -> bool {
    let of = |t: &crate::replay::Track| {
        t.remade.rises >= growth::LARGER
            || t.births.list().len() >= TICKS as usize
            || t.died_old.blocks > 0 && t.at_mark.blocks >= 4
    };
    of(&c.steps) || fine && of(&c.microbatches)
}

/// What stands first, of that what is surest, then what is worst.
fn sort(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        let rank = |f: &Finding| {
            (
                f.withdrawn_step.is_some(),
                f.suppressed_by.is_some(),
                std::cmp::Reverse(f.certainty),
                !f.kind.is_leak(),
                std::cmp::Reverse(f.severity),
            )
        };
        rank(a).cmp(&rank(b)).then(b.bytes_now.cmp(&a.bytes_now)).then(
            (kinds::place(a.kind), a.device, a.stream.map(|s| s.id), a.id).cmp(&(
                kinds::place(b.kind),
                b.device,
                b.stream.map(|s| s.id),
                b.id,
            )),
        )
    });
}

/// What lines hold, but for those where an optimizer allocates, by device.
fn outside_optimizers(replay: &Replay, of: impl Fn(&Cohort) -> Point) -> FxHashMap<DeviceId, Point> {
    let mut all: FxHashMap<DeviceId, Point> = FxHashMap::default();
    for c in replay.cohorts().iter().filter(|c| c.in_optimizer == 0) {
        all.entry(c.key.device).or_default().add(of(c));
    }
    all
}
