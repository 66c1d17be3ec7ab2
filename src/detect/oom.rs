//! Why an allocation failed where no leak is to blame: told from the recording alone.

use super::after_steps::seconds_without;
use super::amounts::{plural, size, thousands};
use super::cause::Cause;
use super::growth::MIN_MARKS;
use super::loading::is_loading;
use super::outside::{Outsiders, main_library};
use crate::event::steps::StepSource;
use crate::event::{DeviceId, StepRow, total};
use crate::replay::{Device, OomEvent, PhaseKind, Replay, Scene};

/// What changed since the step before the one that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Allocated when the step that failed began.
    pub start: u64,
    /// Allocated when the one before began.
    pub start_before: u64,
    /// Highest that the one before had.
    pub peak_before: u64,
}

/// What the recording says of a failed allocation. Bytes; `None` where it is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostMortem {
    /// Why.
    pub cause: Cause,
    /// Why, in a few words.
    pub short: String,
    /// Why, as a clause with its numbers.
    pub explain: String,
    /// Allocated on top of what the step began with, what was asked for included: at least that is what it needs.
    pub need: u64,
    /// The same, at their peaks, of the median of the steps before.
    pub median_need: Option<u64>,
    /// Held on the device by whatever is not torch's allocator.
    pub outside: Option<u64>,
    /// The part of it that other processes hold.
    pub other_processes: Option<u64>,
    /// The library in this process that took nearly all of it, where one did and the driver does not tell processes apart.
    pub by_library: Option<String>,
    /// Since the step before.
    pub change: Option<Change>,
    /// Too few steps ended to say that nothing leaked, or it failed where there are none.
    pub may_leak: bool,
    /// What helps, in one sentence without a full stop.
    pub remedy: &'static str,
}

/// Steps that the median is taken of.
const LOOK_BACK: usize = 64;
/// Times the median that make a step a long one.
const LONG: f64 = 1.3;
/// Times the median step's whole need that make one request a thing of its own, where the rest of its step was no larger than others.
const ALONE: f64 = 16.0;
/// Times the median that no batch needs.
const INCREDIBLE: f64 = 64.0;
/// Why the last allocation that failed on a device did; `None` where none has.
pub fn post_mortem(replay: &Replay, device: DeviceId) -> Option<PostMortem> {
    let d = replay.device(device)?;
    let o = d.ooms.last()?;
    let rows: Vec<&StepRow> = d.rows.iter().filter(|r| r.step < o.step).collect();
    let base = rows.last().map_or(0, |r| r.allocated.0);
    let need = o.allocated.0.saturating_add(o.requested.0).saturating_sub(base);
    // Seconds are not alike as steps are.
    let ticks = replay.step_source() == StepSource::Time;
    let median_need = median(&rows).filter(|_| !ticks);
    let outside = d.capacity.and_then(|c| match o.free {
        Some(free) => Some(c.total.0.saturating_sub(free.0).saturating_sub(o.reserved.0)),
        None => (c.source != "properties").then_some(c.others.0),
    });
    let other_processes = d.driver.zip(outside).and_then(|(r, outside)| {
        let others = r.total.0.saturating_sub(r.free.0).saturating_sub(r.process?.0);
        Some(others.min(outside))
    });
    let change = match rows.as_slice() {
        [.., before, last] if !ticks => Some(Change {
            start: last.allocated.0,
            start_before: before.allocated.0,
            peak_before: last.peak.0,
        }),
        _ => None,
    };
    let mut m = PostMortem {
        cause: Cause::Full,
        short: String::new(),
        explain: String::new(),
        need,
        median_need,
        outside,
        other_processes,
        by_library: outside.filter(|_| other_processes.is_none()).and_then(|all| main_library(replay, all)),
        change,
        may_leak: false,
        remedy: "",
    };
    let idle = seconds_without(replay, o.time);
    let grown = grown(&rows).filter(|_| (rows.len() as u32) < MIN_MARKS).unwrap_or(0);
    m.cause = match cause(d, o, &m, grown) {
        Cause::Batch | Cause::Request | Cause::Full if idle.is_some() && !is_too_large(d, o) => {
            Cause::AfterSteps
        }
        Cause::Batch if is_rising(&rows, need) => Cause::Rising,
        Cause::Batch | Cause::Full if is_loading(replay, device, o) => Cause::Loading,
        other => other,
    };
    let is_short = m.cause == Cause::Full && (1..MIN_MARKS).contains(&(rows.len() as u32));
    m.may_leak = is_short || matches!(m.cause, Cause::AfterSteps | Cause::Loading);
    m.remedy = match m.cause {
        // No batch is so much larger than others.
        Cause::Batch if m.times() >= INCREDIBLE => Cause::Request.remedy(),
        Cause::Batch if m.is_one_request(o, 1.0) => OF_ONE_OR_BATCH,
        Cause::Full if grown > 0 => {
            "run longer on a larger card, or on a simulated one, to see whether the growth ends: strandline run --simulate 80GiB"
        }
        Cause::Outside => m.outsiders_of().remedy(),
        Cause::Full if o.call.is_some() => "allocate less at a time, or free memory that other lines hold",
        c => c.remedy(),
    };
    let again = repeated(replay, d, o).filter(|_| m.cause == Cause::Batch && !ticks);
    if again.is_some() {
        m.remedy = OF_REPEATED;
    }
    if m.cause == Cause::Outside {
        (m.short, m.explain) = m.outsiders_of().explain(replay, o);
    }
    m.say(d, o, rows.len() as u32, if ticks { "second" } else { "step" }, grown > 0);
    match m.cause {
        Cause::AfterSteps => m.say_after_steps(o, base, idle.unwrap_or(0)),
        Cause::Rising => m.say_rising(&rows, o.step),
        _ => {}
    }
    if let Some((blocks, usual)) = again {
        let before = match usual {
            0 => "none in earlier steps".to_owned(),
            n => format!("about {} in each earlier step", thousands(n)),
        };
        m.explain.push_str(&format!(
            "; one line allocated {} in this step, and {before}",
            plural(blocks, "block")
        ));
    }
    Some(m)
}

/// Times as many blocks of a line as a usual step allocates there, that show that the same was done again and again.
const AGAIN: u64 = 8;
/// What helps then.
const OF_REPEATED: &str = "if this is an evaluation, run it under torch.no_grad(), so that no autograd graph keeps its batches, and move its results to the CPU; otherwise process less data at once";
/// What helps where a single request is as much as other steps need, which a batch may do, or a tensor that has nothing to do with it.
const OF_ONE_OR_BATCH: &str = "check the size of the tensor at the line that requested it; if the batch is what makes it so large, limit its size (for text, limit tokens instead of rows)";

/// Blocks that the step which failed allocated at the line that has most of its memory, in a forward, and how many each step before
/// allocated there; `None` where marks came since, which count the two together.
fn repeated(replay: &Replay, d: &Device, o: &OomEvent) -> Option<(u64, u64)> {
    let most = scene(d, o)?.holders.iter().max_by_key(|h| h.of_this_step)?;
    let same = replay.cohorts().iter().filter(|c| c.key.device == d.id && c.key.site == most.site);
    let before = total(same.clone().map(|c| c.at_mark.0));
    let usual = before / u64::from(o.step.saturating_sub(1).max(1));
    let blocks = total(same.map(|c| c.allocs)).saturating_sub(before);
    let is_last = replay.steps() < o.step;
    (is_last && o.phase == PhaseKind::Forward && blocks / usual.max(1) >= AGAIN).then_some((blocks, usual))
}

/// What the last steps needed at their peaks beyond what they began with. The first one, which builds the model, is left out.
fn needs(rows: &[&StepRow]) -> Vec<u64> {
    let from = rows.len().saturating_sub(LOOK_BACK + 1);
    rows[from..].windows(2).map(|w| w[1].peak.0.saturating_sub(w[0].allocated.0)).collect()
}

/// What one of the last steps needed at its peak, and so many steps later another, where steps needed more and more.
pub(super) fn rising(d: &Device) -> Option<(u64, u64, usize)> {
    let from = d.rows.len().saturating_sub(LOOK_BACK + 1);
    let rows: Vec<&StepRow> = d.rows.iter().skip(from).collect();
    let all = needs(&rows);
    let (first, last) = (*all.first()?, *all.last()?);
    is_rising(&rows, last).then_some((first, last, all.len() - 1))
}

/// Whether steps needed more and more, up to the one that failed: three of four more than the one before, and none less than a tenth of what
/// they rose by in all.
fn is_rising(rows: &[&StepRow], need: u64) -> bool {
    let all = needs(rows);
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return false };
    let rise = last.saturating_sub(*first);
    let rises = all.windows(2).filter(|w| w[1] > w[0]).count();
    let falls = all.windows(2).any(|w| w[0].saturating_sub(w[1]) > rise / 10);
    all.len() >= MIN_MARKS as usize && need >= *last && rise > 0 && rises * 4 >= all.len() * 3 && !falls
}

/// What the device looked like, where that was copied.
fn scene<'a>(d: &'a Device, o: &OomEvent) -> Option<&'a Scene> {
    d.scene.as_ref().filter(|s| s.event == o.event)
}

/// One request is larger than the whole device.
fn is_too_large(d: &Device, o: &OomEvent) -> bool {
    d.capacity.is_some_and(|c| c.total.0 > 0 && o.requested.0 > c.total.0)
}

/// The median of what steps needed.
fn median(rows: &[&StepRow]) -> Option<u64> {
    let mut needs = needs(rows);
    needs.sort_unstable();
    (needs.len() >= 2).then(|| needs[needs.len() / 2])
}

/// Bytes by which steps began with more and more, each with more than the one before; `None` where one did not. The first one, which
/// builds the model, is left out.
fn grown(rows: &[&StepRow]) -> Option<u64> {
    let ends: Vec<u64> = rows.iter().map(|r| r.allocated.0).collect();
    (ends.len() >= 3 && ends.windows(2).all(|w| w[1] > w[0])).then(|| ends[ends.len() - 1] - ends[0])
}

/// Of all that would have been enough alone, had it not been in the way, the largest.
fn cause(d: &Device, o: &OomEvent, m: &PostMortem, grown: u64) -> Cause {
    let free = o.free.map_or(0, |f| f.0);
    if free > o.tried().0 {
        return Cause::Limit;
    }
    let total = d.capacity.map_or(0, |c| c.total.0);
    if is_too_large(d, o) {
        return Cause::Request;
    }
    let foreign = m.outsiders_of().blamed(total);
    let scene = scene(d, o);
    // A piece that is large enough, and was not taken, was not what was missing.
    let cached = match scene.is_some_and(|s| s.largest >= o.requested) {
        true => 0,
        false => o.reserved.0.saturating_sub(o.allocated.0).saturating_sub(o.pending.0),
    };
    let more = m.median_need.map(|n| m.need.saturating_sub(n));
    let is_long = m.median_need.is_some_and(|n| m.need as f64 >= LONG * n as f64);
    let long = more.filter(|_| is_long).unwrap_or(0);
    // An optimizer that has made more in this step than is free would not get the rest in one piece either; that is what the step needed more.
    let made = scene.map_or(0, |s| s.of_optimizer.0);
    let is_state =
        made > free.saturating_add(cached) && more.is_none_or(|more| made.saturating_mul(2) >= more);
    let all = [
        (Cause::Outside, foreign),
        (Cause::Fragmentation, if m.would_fit(o, free.saturating_add(cached), cached) { cached } else { 0 }),
        (Cause::Waiting, o.pending.0),
        (Cause::Batch, long),
        (Cause::Full, grown),
    ];
    let enough =
        all.into_iter().filter(|(_, bytes)| free.saturating_add(*bytes) >= o.requested.0 && *bytes > 0);
    let cause = enough.max_by_key(|(_, bytes)| *bytes).map_or(Cause::Full, |(c, _)| c);
    match (cause, o.phase) {
        (Cause::Batch | Cause::Full, PhaseKind::Evaluation) => Cause::Evaluation,
        (Cause::Batch, _) if m.is_one_request(o, ALONE) => Cause::Request,
        (Cause::Batch | Cause::Full, PhaseKind::Optimizer) if o.step <= 2 => Cause::Optimizer,
        (Cause::Fragmentation | Cause::Batch | Cause::Full, PhaseKind::Optimizer) if is_state => {
            Cause::Optimizer
        }
        (c, _) => c,
    }
}

/// One in so many bytes that PyTorch has reserved, in pieces, that are enough for blame where no step tells what a step needs.
const PIECES: u64 = 10;

impl PostMortem {
    /// Whether the step would have come to its end with `room` more in one piece, as other steps do; where no two steps ended, whether the
    /// pieces are more than any job has.
    fn would_fit(&self, o: &OomEvent, room: u64, pieces: u64) -> bool {
        let so_far = self.need.saturating_sub(o.requested.0);
        match self.median_need {
            Some(median) => room >= median.saturating_sub(so_far),
            None => pieces.saturating_mul(PIECES) >= o.reserved.0,
        }
    }

    /// What the step had needed until then is no more than others need; the request alone is so many times that.
    fn is_one_request(&self, o: &OomEvent, times: f64) -> bool {
        self.median_need.is_some_and(|n| {
            self.need.saturating_sub(o.requested.0) <= n && o.requested.0 as f64 >= times * n as f64
        })
    }

    fn say(&mut self, d: &Device, o: &OomEvent, steps: u32, grain: &str, grew: bool) {
        let (step, asked) = (thousands(o.step.into()), size(o.requested.0));
        let scene = scene(d, o);
        (self.short, self.explain) = match self.cause {
            // Told already.
            Cause::Outside => return,
            Cause::Limit => (
                "a limit on this process".into(),
                format!(
                    "the card had {} free when {asked} was requested, but a limit keeps {} from using it",
                    size(o.free.map_or(0, |f| f.0)),
                    match o.call {
                        None => format!("PyTorch (which had reserved {})", size(o.reserved.0)),
                        Some(_) => "the program".to_owned(),
                    }
                ),
            ),
            Cause::Fragmentation => ("fragmentation".into(), fragments(o, scene, &asked)),
            Cause::Waiting => (
                "freed memory that a stream may still use".into(),
                format!(
                    "{} was freed, but cannot be reused until a stream has finished using it",
                    size(o.pending.0)
                ),
            ),
            Cause::Request => self.request(d, o, &asked),
            Cause::Batch => {
                let median = self.median_need.unwrap_or(0);
                let times = self.times();
                let times =
                    if times >= INCREDIBLE { thousands(times.round() as u64) } else { format!("{times:.1}") };
                let short = format!("step {step} needed {times}× as much memory as a typical step");
                (
                    short,
                    format!(
                        "it needed at least {} more than it began with; a typical step before it needed {}",
                        size(self.need),
                        size(median)
                    ),
                )
            }
            Cause::Optimizer => (
                match o.step {
                    ..=2 => "the optimizer's first steps do not fit".into(),
                    _ => "the optimizer's new state does not fit".into(),
                },
                format!(
                    "in step {step}, the optimizer requested {asked} for its state or for temporary copies when {} was already allocated",
                    size(o.allocated.0)
                ),
            ),
            Cause::Evaluation => (
                "an evaluation needs more memory than training".into(),
                format!(
                    "the evaluation needed at least {} on top of the memory at the start of step {step}",
                    size(self.need)
                ),
            ),
            Cause::Loading => (
                "the model, or other data loaded before the first step, does not fit".into(),
                format!(
                    "{asked} was requested after {} had been allocated and almost nothing freed: this is typical while a model is loaded",
                    size(o.allocated.0)
                ),
            ),
            // What they say needs more than is at hand here.
            Cause::AfterSteps | Cause::Rising => (String::new(), String::new()),
            Cause::Full if grew => {
                ("each step began with more memory allocated".into(), self.full(o, steps, grain, grew))
            }
            Cause::Full => {
                ("the job needs more memory than the card has".into(), self.full(o, steps, grain, grew))
            }
        };
    }

    fn say_after_steps(&mut self, o: &OomEvent, base: u64, seconds: u64) {
        self.median_need = None;
        self.short = format!("{} after the last step", plural(seconds, "second"));
        self.explain = format!(
            "{} more was allocated than at the end of step {}, and {} was requested; this part of the job has no steps, so its growth cannot be judged",
            size(o.allocated.0.saturating_sub(base)),
            thousands(u64::from(o.step).saturating_sub(1)),
            size(o.requested.0)
        );
    }

    fn say_rising(&mut self, rows: &[&StepRow], failed: u32) {
        let all = needs(rows);
        let (first, last) = (all.first().copied().unwrap_or(0), all.last().copied().unwrap_or(0));
        let step = |at: usize| thousands(rows.get(at).map_or(0, |r| r.step.into()));
        self.short = "each step needed more memory than the one before".into();
        self.explain = format!(
            "memory rose by {} in step {}, by {} in step {}, and by at least {} in step {}, where memory ran out",
            size(first),
            step(rows.len().saturating_sub(all.len())),
            size(last),
            step(rows.len().saturating_sub(1)),
            size(self.need),
            thousands(failed.into())
        );
    }

    /// Times the median that this step needed.
    fn times(&self) -> f64 {
        self.need as f64 / (self.median_need.unwrap_or(0) as f64).max(1.0)
    }

    fn request(&self, d: &Device, o: &OomEvent, asked: &str) -> (String, String) {
        match d.capacity.map(|c| c.total.0).filter(|total| o.requested.0 > *total) {
            Some(total) => (
                format!("one request of {asked}, more than the card has"),
                format!("{asked} was requested at once, and the whole GPU has {}", size(total)),
            ),
            None => (
                format!("one request of {asked}"),
                format!(
                    "{asked} was requested at once; a typical step before needed only {} in total",
                    size(self.median_need.unwrap_or(0))
                ),
            ),
        }
    }

    /// Who has what is used outside of PyTorch.
    fn outsiders_of(&self) -> Outsiders {
        let processes = self.other_processes.or(self.by_library.is_some().then_some(0));
        Outsiders { all: self.outside.unwrap_or(0), processes }
    }

    /// Why it failed, with its numbers.
    pub fn in_words(&self) -> String {
        format!("{} ({})", self.short, self.explain)
    }

    /// The same in words.
    pub fn outsiders(&self) -> &'static str {
        self.outsiders_of().in_words()
    }

    fn full(&self, o: &OomEvent, steps: u32, grain: &str, grew: bool) -> String {
        let first = if steps == 0 && grain == "step" { "the first step does not fit: " } else { "" };
        let who = if o.call.is_none() { "PyTorch" } else { "the program" };
        let phase = match o.phase {
            PhaseKind::Unknown => String::new(),
            phase => format!(" in the {} phase", phase.name()),
        };
        let (had, asked) = (size(o.allocated.0), size(o.requested.0));
        let mut text = format!("{first}{who} had {had} allocated{phase} and requested {asked} more");
        if (1..MIN_MARKS).contains(&steps) {
            let each = if grew { ", each ending with more memory allocated" } else { "" };
            text.push_str(&format!(
                "; only {} had ended{each}, too few to rule out a leak",
                plural(steps.into(), grain)
            ));
        }
        text
    }
}

/// An out-of-memory that the job did not live on from. What CUDA refused is one only where it is known that the process ended of it.
/// A process that has ended by itself with 0 caught what failed, even where nothing was left to be done after it.
pub fn final_oom(replay: &Replay) -> Option<(DeviceId, &OomEvent)> {
    if replay.ended_well() {
        return None;
    }
    replay
        .devices()
        .filter_map(|d| Some((d.id, d.ooms.last()?)))
        .find(|(device, o)| o.call.is_some() || !replay.lived_on(*device, o))
}

/// The last allocation that failed in PyTorch and that the job went on after, its device, and how many failed there.
pub fn caught(replay: &Replay) -> Option<(DeviceId, &OomEvent, u64)> {
    if final_oom(replay).is_some() {
        return None;
    }
    let went_on =
        |id: DeviceId, o: &OomEvent| o.call.is_none() && (replay.ended_well() || replay.lived_on(id, o));
    let all = replay.devices().filter_map(|d| Some((d.id, d.ooms.last()?, d.ooms.len() as u64)));
    all.filter(|(id, o, _)| went_on(*id, o)).max_by_key(|(_, o, _)| o.time)
}

fn fragments(o: &OomEvent, scene: Option<&Scene>, asked: &str) -> String {
    match scene {
        Some(s) => format!(
            "{asked} was requested; PyTorch's cache had {} free, but only in {}, and the largest has {}",
            size(s.cached.0),
            plural(s.pieces, "piece"),
            size(s.largest.0)
        ),
        None => format!(
            "{asked} was requested; PyTorch's cache had {} free, but split into pieces",
            size(o.reserved.0.saturating_sub(o.allocated.0).saturating_sub(o.pending.0))
        ),
    }
}
