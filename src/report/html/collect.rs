//! The second pass over a recording: how what was held went on from step to step, by stream, line and phase, in bounded
//! size. The first pass is known: how many steps there are, where the peaks lie, what leaks.

use super::classes::Classes;
use super::flame;
use super::lane::{Block, Closeup, Lane, PHASES, Point};
use crate::detect::Finding;
use crate::event::{Body, DeviceId, Event, Item, Names, SiteId, add, total};
use crate::replay::anatomy::Class;
use crate::replay::{Held, PhaseKind, Progress, Replay};
use rustc_hash::FxHashMap;

/// Most points along the steps, and within the step of the peak.
const POINTS: u32 = 1000;
/// Sites that a point remembers.
const SITES: usize = 64;
/// Blocks that are listed of a moment, and names that the job set.
const LISTED: usize = 200;
/// The pass.
#[derive(Debug)]
pub struct Pass {
    replay: Replay,
    stride: u32,
    last: u32,
    findings: Vec<Finding>,
    classes: Classes,
    pub(super) lanes: Vec<Lane>,
    /// What was held before the first free after the last step's optimizer: where nothing is allocated any more, the job ends,
    /// and that was the step's end. By lane.
    before: Vec<(Point, Closeup)>,
    /// When that was, in nanoseconds.
    before_at: u64,
    /// Events before the process freed what it held on its way out.
    torn_from: u64,
}

impl Pass {
    /// A pass over the recording that `first` has replayed and `findings` were found in.
    pub fn new(first: &Replay, findings: &[Finding]) -> Pass {
        let lane = |d: &crate::replay::Device| Lane {
            device: d.id,
            peak_event: d.peak_allocated.event,
            peak_step: span(d, d.peak_allocated.step),
            ..Lane::default()
        };
        Pass {
            replay: Replay::new(),
            stride: first.steps().div_ceil(POINTS).max(1),
            last: first.steps(),
            findings: findings.iter().filter(|f| f.is_active_leak() || f.is_suppressed()).cloned().collect(),
            classes: Classes::new(first.steps()),
            lanes: first.devices().take(8).map(lane).collect(),
            before: Vec::new(),
            before_at: 0,
            torn_from: first.torn_down_from().unwrap_or(u64::MAX),
        }
    }

    /// Takes the next item.
    pub fn apply(&mut self, item: &Item, names: &Names) {
        if let Item::Event(event) = item {
            return self.event(event, names);
        }
        self.classes.item(item, names);
        let progress = self.replay.apply(item, names);
        self.after(progress, names);
    }

    fn event(&mut self, event: &Event, names: &Names) {
        if let Body::Mark { name, .. } = event.body
            && let Some(text) = names.text(name)
        {
            let step = self.replay.steps() + 1;
            for lane in self.lanes.iter_mut().filter(|l| l.marks.len() < LISTED) {
                lane.marks.push((step, text.to_owned()));
            }
        }
        let ending = self.classes.ending(event, &self.replay);
        // More than the last step are those that will turn out to be one.
        let may_be_over = self.replay.is_trailing() && self.replay.steps() + 1 >= self.last;
        if may_be_over && ending.is_some() && self.before.is_empty() {
            let (r, step) = (&self.replay, self.last);
            let look = |l: &Lane| {
                let closeup = Closeup { step, ..closeup(r, l.device, u32::MAX, names) };
                (point(r, l.device, step, &self.findings), closeup)
            };
            self.before = self.lanes.iter().map(look).collect();
            self.before_at = event.time.0;
        }
        let progress = self.replay.apply_event(event);
        if let Body::Oom { device, .. } = event.body
            && let Some(lane) = self.lanes.iter_mut().find(|l| l.device == device)
        {
            let step = self.replay.steps() + 1;
            lane.failed = (step > self.last).then(|| point(&self.replay, device, step, &self.findings));
        }
        // What another thread allocates ends no step, and yet what was freed before it was freed within one.
        let anew = matches!(event.body, Body::OptimizerEnd(_) | Body::BackwardEnd { .. } | Body::Alloc(_));
        if progress.step.is_none() && (anew || !self.replay.is_trailing()) {
            self.go_on();
        }
        self.after(progress, names);
        if let Some(ending) = ending {
            self.classes.ended(ending, &self.replay, &self.findings, &mut self.lanes);
        }
        let (events, time) = (self.replay.events(), event.time.0);
        for lane in &mut self.lanes {
            let in_step = lane.peak_step.0 <= time && time <= lane.peak_step.1;
            if !in_step && events != lane.peak_event + 1 {
                continue;
            }
            let Some(d) = self.replay.device(lane.device) else { continue };
            // Behind a failure the stack is unwound, and frees.
            let is_over = events > self.torn_from.max(lane.peak_event + 1);
            let is_within = in_step && !is_over && lane.failed.is_none();
            if is_within && lane.within.last().is_none_or(|(_, b)| *b != d.allocated.0) {
                lane.within.push((time, d.allocated.0));
                thin(&mut lane.within);
            }
            if events == lane.peak_event + 1 {
                lane.peak = Some(closeup(&self.replay, lane.device, u32::MAX, names));
            }
        }
    }

    /// What was freed was freed within a step.
    fn go_on(&mut self) {
        if !self.before.is_empty() {
            self.before.clear();
            self.classes.allocates_again(&self.replay, &self.findings, &mut self.lanes);
        }
    }

    fn after(&mut self, progress: Progress, names: &Names) {
        let Some(step) = progress.step else { return };
        if step == self.last && self.replay.is_torn_down() && self.before.len() == self.lanes.len() {
            for (lane, (mut point, closeup)) in self.lanes.iter_mut().zip(self.before.drain(..)) {
                let row = self.replay.device(lane.device).and_then(|d| d.rows.last());
                point.peak = row.map_or(0, |r| r.peak.0).max(point.allocated);
                lane.points.retain(|p| p.step < step);
                lane.points.push(point);
                lane.within.retain(|(time, _)| *time <= self.before_at);
                lane.end = Some(closeup);
            }
            return self.classes.job_ended();
        }
        self.go_on();
        for lane in &mut self.lanes {
            // Steps that turned out to be one: what was noted of them is noted anew.
            lane.points.retain(|p| p.step < step);
            if step.is_multiple_of(self.stride) || step == self.last || step == 1 {
                lane.points.push(point(&self.replay, lane.device, step, &self.findings));
            }
            if step == self.last {
                lane.end = Some(closeup(&self.replay, lane.device, step, names));
            }
        }
    }

    /// Nothing more comes. A job without steps is looked at as it is now.
    pub(super) fn end(&mut self, names: &Names) {
        if self.replay.steps() < self.last {
            // A killed process says no end.
            let progress = self.replay.finish();
            self.after(progress, names);
        }
        for lane in self.lanes.iter_mut().filter(|l| l.end.is_none()) {
            if lane.points.is_empty() {
                lane.points.push(point(&self.replay, lane.device, self.replay.steps(), &self.findings));
            }
            lane.end = Some(closeup(&self.replay, lane.device, u32::MAX, names));
        }
        for lane in &mut self.lanes {
            lane.points.extend(lane.failed.take());
        }
        self.classes.end(&self.replay, &self.findings, &mut self.lanes);
    }
}

/// When a step began and ended, as far as rows of steps tell; of what came after the last step, that step's beginning.
fn span(d: &crate::replay::Device, step: u32) -> (u64, u64) {
    let ended = d.rows.iter().find(|r| r.step >= step).map(|r| r.time.0);
    let is_after = ended.is_none() && d.ooms.is_empty();
    let before = d.rows.iter().rev().filter(|r| r.step < step).nth(usize::from(is_after));
    (before.map_or(0, |r| r.time.0), ended.unwrap_or(u64::MAX))
}

/// Halves the points when there are too many; of two the higher one stays.
fn thin(points: &mut Vec<(u64, u64)>) {
    if points.len() > 2 * POINTS as usize {
        let highest = |pair: &[(u64, u64)]| pair.iter().copied().max_by_key(|(_, b)| *b).unwrap_or_default();
        *points = points.chunks(2).map(highest).collect();
    }
}

fn point(replay: &Replay, device: DeviceId, step: u32, findings: &[Finding]) -> Point {
    let mut point = Point { step, ..Point::default() };
    let Some(d) = replay.device(device) else { return point };
    point.pending = d.pending.0;
    // A step ends with the first allocation of the next one, which is there already.
    let row = d.rows.last().filter(|r| r.step == step);
    point.allocated = row.map_or(d.allocated.0, |r| r.allocated.0);
    point.reserved = row.map_or(d.reserved.0, |r| r.reserved.0);
    point.peak = row.map_or(0, |r| r.peak.0).max(point.allocated);
    let mut sites: FxHashMap<SiteId, u64> = FxHashMap::default();
    for h in live(replay, device).filter(|h| h.step <= step) {
        let bytes = h.block.rounded.0;
        add(point.streams.entry(h.stream).or_default(), bytes);
        add(sites.entry(h.site).or_default(), bytes);
        let phase = PhaseKind::of(h.block.phase, replay.trained());
        if let Some(at) = PHASES.iter().position(|p| *p == phase) {
            add(&mut point.phases[at], bytes);
        }
        if findings.iter().any(|f| f.class(h, h.is_old(step)) == Some(Class::LeftBehind)) {
            add(&mut point.left, bytes);
        }
    }
    point.sites = sites.into_iter().collect();
    point.sites.sort_unstable_by_key(|(site, bytes)| (std::cmp::Reverse(*bytes), *site));
    point.sites.truncate(SITES);
    point
}

fn live(replay: &Replay, device: DeviceId) -> impl Iterator<Item = &Held> {
    replay.blocks(device).filter(|h| !h.pending && !h.unverified)
}

/// What is held of blocks up to a step: a step ends with the first allocation of the next one, which is there already.
fn closeup(replay: &Replay, device: DeviceId, last: u32, names: &Names) -> Closeup {
    let mut allocated = replay.device(device).map_or(0, |d| d.allocated.0);
    let mut ages: std::collections::BTreeMap<u32, (u64, u64)> = std::collections::BTreeMap::new();
    let mut stacks: FxHashMap<_, u64> = FxHashMap::default();
    let mut lines: FxHashMap<_, (u64, u64)> = FxHashMap::default();
    let mut blocks = Vec::new();
    for h in live(replay, device) {
        if h.step > last {
            allocated = allocated.saturating_sub(h.block.rounded.0);
            continue;
        }
        let phase = PhaseKind::of(h.block.phase, replay.trained());
        blocks.push(Block { bytes: h.block.rounded.0, site: h.site, stream: h.stream, step: h.step, phase });
        let line = lines.entry((h.site, h.stream)).or_default();
        add(&mut line.0, h.block.rounded.0);
        line.1 += 1;
        let age = ages.entry(h.step).or_default();
        add(&mut age.0, h.block.rounded.0);
        age.1 += 1;
        add(stacks.entry((h.site, h.block.stack)).or_default(), h.block.rounded.0);
    }
    let mut ages: Vec<(u32, u64, u64)> = ages.into_iter().map(|(s, (b, n))| (s, b, n)).collect();
    let group = ages.len().div_ceil(POINTS as usize / 2).max(1);
    ages = ages
        .chunks(group)
        .filter_map(|c| Some((c.first()?.0, total(c.iter().map(|a| a.1)), total(c.iter().map(|a| a.2)))))
        .collect();
    let (count, tree) = (blocks.len(), flame::tree(replay, names, stacks));
    blocks.sort_by_key(|b| (std::cmp::Reverse(b.bytes), b.step));
    blocks.truncate(LISTED);
    Closeup { allocated, step: replay.steps(), tree, ages, lines, blocks, count }
}
