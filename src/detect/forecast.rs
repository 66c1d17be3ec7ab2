//! When a device will be full.

use super::rise::Rise;
use super::until_full::StepsToOom;
use crate::event::{DeviceId, StepRow, total};
use crate::replay::{Grain, Point, Replay};

/// How fast something grows, in bytes (and blocks) per mark.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) bytes: f64,
    pub(super) blocks: f64,
    /// Over the last marks.
    pub(super) current: f64,
    /// Highest of whole run and last marks.
    pub(super) highest: f64,
    /// Growth of the later half as a part of that of the earlier half.
    pub(super) ratio: f64,
    /// By how much it rises with each mark, where it has risen steadily.
    pub(super) gain: f64,
}

/// Marks over which a rate is called current, at least.
const CURRENT: u32 = 8;

impl Rate {
    /// The rate of floors that rose at `rises` (mark and value), as of `mark`.
    pub(super) fn of(rises: &[(u32, Point)], mark: u32, ratio: f64) -> Rate {
        let (first, last) = (rises[0], rises[rises.len() - 1]);
        if rises.len() < 2 {
            return Rate { ratio, ..Rate::default() };
        }
        let over = |a: (u32, Point), b: (u32, Point)| {
            let marks = f64::from((b.0 - a.0).max(1));
            (b.1.bytes - a.1.bytes) as f64 / marks
        };
        let (bytes, blocks) = slope(rises);
        let gap = (last.0 - first.0) / (rises.len() as u32 - 1);
        let back = CURRENT.max(4 * gap).max((last.0 - first.0) / 4);
        let recent = rises.iter().rev().find(|r| r.0 + back <= last.0).copied().unwrap_or(first);
        let mut current = over(recent, last);
        if mark > last.0 + 2 * gap.max(1) {
            // No rise where one was due: the present pace is at most this.
            current = (last.1.bytes - recent.1.bytes) as f64 / f64::from((mark - recent.0).max(1));
        }
        // It is the mean over some marks: of what becomes faster and faster, the rate in their middle.
        let gain = gain(rises);
        current += gain * f64::from(last.0 - recent.0) / 2.0;
        let highest = bytes.max(current);
        Rate { bytes, blocks, current, highest, ratio, gain }
    }

    /// The rate over marks of which each is so many times as long.
    pub(super) fn times(self, marks: f64) -> Rate {
        let (bytes, blocks) = (self.bytes * marks, self.blocks * marks);
        Rate {
            bytes,
            blocks,
            current: self.current * marks,
            highest: self.highest * marks,
            ratio: self.ratio,
            gain: self.gain * marks * marks,
        }
    }

    /// The rate where so many bytes more are used up in a mark.
    pub(super) fn plus(self, bytes: f64) -> Rate {
        let Rate { bytes: mean, current, highest, .. } = self;
        Rate { bytes: mean + bytes, current: current + bytes, highest: highest + bytes, ..self }
    }

    /// Sum of rates of several cohorts; `ratio` weighs by bytes.
    pub(super) fn sum(rates: impl IntoIterator<Item = Rate>) -> Rate {
        let mut all = Rate::default();
        let mut weight = 0.0;
        for r in rates {
            all.bytes += r.bytes;
            all.blocks += r.blocks;
            all.current += r.current;
            all.highest += r.highest;
            all.gain += r.gain;
            all.ratio += r.ratio * r.bytes;
            weight += r.bytes;
        }
        all.ratio = if weight > 0.0 { all.ratio / weight } else { 1.0 };
        all
    }
}

/// Parts of a growth whose rates must rise one after the other for it to become faster and faster; and rises in each of them.
const PARTS: u32 = 4;
const RISES: usize = 4;
/// By how much at least, as a part of the mean rate.
const FASTER: f64 = 0.08;

/// How much faster growth becomes with each mark: 0 unless the rates of its parts rise by about the same, each time.
fn gain(rises: &[(u32, Point)]) -> f64 {
    let (first, last) = (rises[0].0, rises[rises.len() - 1].0);
    let width = last.saturating_sub(first) / PARTS;
    let at = |mark: u32| rises.iter().rfind(|r| r.0 <= mark).map_or(0.0, |r| r.1.bytes as f64);
    if rises.len() < RISES * PARTS as usize || width == 0 {
        return 0.0;
    }
    let ends: Vec<f64> = (0..=PARTS).map(|part| at(last - (PARTS - part) * width)).collect();
    let rates: Vec<f64> = ends.windows(2).map(|w| (w[1] - w[0]) / f64::from(width)).collect();
    let mean = rates.iter().sum::<f64>() / f64::from(PARTS);
    let steps: Vec<f64> = rates.windows(2).map(|w| w[1] - w[0]).collect();
    let (least, most) =
        (steps.iter().copied().fold(f64::MAX, f64::min), steps.iter().copied().fold(0.0, f64::max));
    let is_steady = least > FASTER * mean && most <= 3.0 * least;
    if is_steady { (rates[rates.len() - 1] - rates[0]) / f64::from((PARTS - 1) * width) } else { 0.0 }
}

/// Bytes and blocks per mark of the straight line that fits best: where growth dies away, the first marks are not the
/// run.
fn slope(rises: &[(u32, Point)]) -> (f64, f64) {
    let n = rises.len() as f64;
    let mean = |of: &dyn Fn(&(u32, Point)) -> f64| rises.iter().map(of).sum::<f64>() / n;
    let (x, bytes, blocks) =
        (mean(&|r| f64::from(r.0)), mean(&|r| r.1.bytes as f64), mean(&|r| r.1.blocks as f64));
    let with =
        |of: &dyn Fn(&(u32, Point)) -> f64| rises.iter().map(|r| (f64::from(r.0) - x) * of(r)).sum::<f64>();
    let square = with(&|r| f64::from(r.0) - x).max(f64::MIN_POSITIVE);
    (with(&|r| r.1.bytes as f64 - bytes) / square, with(&|r| r.1.blocks as f64 - blocks) / square)
}

/// For how many of the `marks` that growth was seen for it had its present pace: where it has become faster, what has grown so
/// far would have taken less.
pub(super) fn seen(rate: &Rate, marks: u32) -> u64 {
    let share = if rate.current > rate.bytes { (rate.bytes / rate.current).max(0.0) } else { 1.0 };
    (f64::from(marks) * share) as u64
}

/// Steps whose clock tells how long one takes.
const LAST_STEPS: usize = 32;

/// Marks of a grain to a step.
pub(super) fn per_step(replay: &Replay, grain: Grain) -> f64 {
    match grain {
        Grain::Microbatch => (f64::from(replay.microbatches()) / f64::from(replay.steps().max(1))).max(1.0),
        Grain::Step => 1.0,
    }
}

/// Seconds that a step took lately, by the recording's clock. The last step of a job that has ended took until that end, whatever the job did
/// after it.
pub(super) fn pace(replay: &Replay) -> Option<f64> {
    let rows = replay.devices().map(|d| &d.rows).max_by_key(|rows| rows.len())?;
    let over = rows.len().saturating_sub(usize::from(replay.ended().is_some() && rows.len() > 2));
    let rows = rows.get(..over)?;
    let last = rows.last()?;
    let before = rows.get(rows.len().saturating_sub(LAST_STEPS + 1)).filter(|r| r.step < last.step);
    let (time, count) = match before {
        Some(r) => (last.time.0.saturating_sub(r.time.0), last.step - r.step),
        None => (last.time.0, last.step),
    };
    Some(time as f64 / 1e9 / f64::from(count.max(1))).filter(|pace| *pace > 0.0)
}

/// The largest device on the market, GiB: what a device of unknown size is taken for where only severity is
/// asked, so that not knowing never makes things look worse.
const LARGEST_GIB: u64 = 288;
/// Steps whose peaks above their ends are looked at; and those among which a higher one that came twice will come again, as that of an
/// evaluation does. The first ones build the job.
const LOOK_BACK: usize = 8;
const LOOK_FARTHER: usize = 128;
const FIRST_ROWS: usize = 3;

/// Bytes that may be left behind at the end of a step until an allocation fails: the device's size less what
/// others hold, or what torch is allowed where that is less, less the highest that a step needs at its peak. `known` is false where the device's size is a
/// guess.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headroom {
    pub(super) bytes: u64,
    /// The same for the least that a step needs at its peak.
    pub(super) most: u64,
    pub(super) known: bool,
    /// The part of it that lies in pieces which nothing fits into, where there is more and more of that, or torch cannot give it back.
    pub(super) pieces: Option<Pieces>,
    /// By how much more with each step a step needs at its peak than at its end.
    pub(super) needs: f64,
    /// Bytes that are left at the end of a step.
    pub(super) at_end: u64,
    /// What else may be no use at the end: what torch has reserved and does not use, a little at most.
    pub(super) slack: u64,
}

impl Headroom {
    /// The same with so many bytes less.
    pub(super) fn without(self, bytes: u64) -> Headroom {
        let less = |n: u64| n.saturating_sub(bytes);
        Headroom { bytes: less(self.bytes), most: less(self.most), ..self }
    }

    /// What is left at the end of a step where `bytes` more are in use for a moment, whatever else a step needs.
    pub(super) fn beside(self, bytes: u64) -> Headroom {
        let left = self.at_end.saturating_sub(bytes);
        Headroom { bytes: left, most: left, ..self }
    }
}

/// What torch has reserved beyond what a step needs at its peak, where it never uses it: bytes now, and how many more with each step (0: as
/// many).
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    pub(super) bytes: u64,
    pub(super) per_step: f64,
}

/// Windows whose floors must all rise for pieces to become more; rows that are looked at.
const WINDOWS: usize = 4;
const LAST_ROWS: usize = 256;
/// Bytes by which they rise at least.
const WORTH: u64 = 1 << 20;
/// The part of a device that pieces may take which do not become more: one in so many bytes.
const SLACK: u64 = 32;
/// What grows has used pieces that have become less by more than one in so many bytes of it; and that is known once it has grown by one in so
/// many bytes of the pieces.
const USED: u64 = 4;
/// Blocks that are looked at with every step.
const MOST_BLOCKS: usize = 1 << 13;
/// Marks after which a forecast is so narrow that this matters.
pub(super) const NARROW: u32 = 64;

/// How a figure of the last steps rises.
fn rise(rows: &[StepRow], value: impl Fn(&StepRow) -> u64) -> Option<Rise> {
    let rows = rows.get(rows.len().saturating_sub(LAST_ROWS)..)?;
    Rise::of(rows, WINDOWS, 1, value).filter(|r| r.total() >= WORTH)
}

/// What torch has reserved and did not use in a step.
fn unused(r: &StepRow) -> u64 {
    r.reserved.0.saturating_sub(r.peak.0).saturating_sub(r.pending.0)
}

/// What becomes more with every step of what torch has reserved and does not use at the peak.
fn pieces(rows: &[StepRow]) -> Option<Pieces> {
    let now = rows.iter().rev().take(LOOK_BACK).map(unused).min().unwrap_or(0);
    rise(rows, unused).map(|r| Pieces { bytes: r.floors[1].max(now), per_step: r.per_step() })
}

/// What of `idle` bytes lies in pieces that what grows cannot use and torch cannot give back, where that does not become more: what grows would
/// have used them, and torch gives back segments without a block alone.
fn lost(replay: &Replay, device: DeviceId, rows: &[StepRow], idle: u64, worth: u64) -> Option<Pieces> {
    let rows = rows.get(rows.len().saturating_sub(LAST_ROWS)..)?;
    let [first, .., last] = rows else { return None };
    let before = rows.iter().take(LOOK_BACK).map(unused).min()?;
    let grown = last.allocated.0.saturating_sub(first.allocated.0);
    let is_used = before.saturating_sub(idle).saturating_mul(USED) > grown;
    if rows.len() < 2 * LOOK_BACK || is_used || grown < idle / USED || idle < worth {
        return None;
    }
    let bytes = idle.saturating_sub(releasable(replay, device)?);
    (bytes >= worth).then_some(Pieces { bytes, per_step: 0.0 })
}

/// Bytes of segments that have no block, or whose free ranges torch can give back; `None` where there are too many blocks to look at them with
/// every step.
fn releasable(replay: &Replay, device: DeviceId) -> Option<u64> {
    let held: Vec<_> = replay.blocks(device).take(MOST_BLOCKS + 1).collect();
    if held.len() > MOST_BLOCKS {
        return None;
    }
    let segments: Vec<_> = replay.segments(device).collect();
    let mut free = vec![true; segments.len()];
    for h in held {
        let at = segments.partition_point(|s| s.addr <= h.block.addr);
        if let Some(is_free) = at.checked_sub(1).and_then(|at| free.get_mut(at)) {
            *is_free = false;
        }
    }
    let can = segments.iter().zip(free).filter(|(s, is_free)| *is_free || s.expandable);
    Some(total(can.map(|(s, _)| s.size.0)))
}

/// The headroom of a device. `since`: the step in which what grows began to, after which a rise of what torch does not use counts.
pub(super) fn headroom(replay: &Replay, device: DeviceId, since: u32) -> Headroom {
    let Some(d) = replay.device(device) else {
        return Headroom {
            bytes: u64::MAX,
            most: u64::MAX,
            known: false,
            pieces: None,
            needs: 0.0,
            at_end: u64::MAX,
            slack: 0,
        };
    };
    let (usable, known) = match replay.usable(device) {
        Some(bytes) => (bytes.0, true),
        None => (LARGEST_GIB << 30, false),
    };
    let last = d.rows.last().copied().unwrap_or_default();
    let above = |r: &StepRow| r.peak.0.saturating_sub(r.allocated.0);
    let recent = || d.rows.iter().rev().take(LOOK_BACK).map(above);
    let farther = d.rows.iter().skip(FIRST_ROWS).rev().take(LOOK_FARTHER).map(above);
    let [_, second] = farther.fold([0, 0], |[a, b], n| if n > a { [n, a] } else { [a, b.max(n)] });
    let (highest, lowest) = (recent().max().unwrap_or(0).max(second), recent().min().unwrap_or(0));
    let room = usable.saturating_sub(last.allocated.0.saturating_add(last.pending.0));
    let (bytes, most) = (room.saturating_sub(highest), room.saturating_sub(lowest));
    let needs = rise(&d.rows, above).map_or(0.0, |r| r.per_step());
    let idle = d.rows.iter().rev().take(LOOK_BACK).map(unused).min().unwrap_or(0);
    let after = d.rows.get(d.rows.partition_point(|r| r.step < since)..).unwrap_or_default();
    let pieces = pieces(after).or_else(|| lost(replay, device, after, idle, usable / SLACK));
    Headroom { bytes, most, known, pieces, needs, at_end: room, slack: idle.min(usable / SLACK) }
}

/// The later half of a growth as a part of the earlier one, below which its rate is called falling.
const FALLS: f64 = 0.9;
/// A falling rate tells no latest end beyond so many lengths of what was seen of it. (TRL's leak, drawn at step 15 over eight
/// times what was seen, was to end at step 190 at the latest; at step 116 it was 458.)
const FAR: u64 = 4;

/// Marks until `headroom` is used up.
pub(super) fn steps_to_oom(headroom: u64, rate: &Rate) -> StepsToOom {
    let room = headroom as f64;
    let marks = |n: f64| n.ceil().min(u64::MAX as f64) as u64;
    let at = |r: f64| if r > 0.0 { marks(room / r) } else { u64::MAX };
    // What becomes faster by the same each time goes on to.
    let faster = |r: f64| match rate.gain > 0.0 && r > 0.0 {
        true => marks(((r * r + 2.0 * rate.gain * room).sqrt() - r) / rate.gain),
        false => at(r),
    };
    let mid = faster(rate.current);
    let slowest = rate.current.min(rate.bytes);
    // Where growth dies away, it goes on to die away: each later stretch as long as the run so far grows by
    // `ratio` of the one before.
    let high = if rate.ratio < FALLS { at(slowest * rate.ratio.max(0.05)) } else { at(slowest) };
    StepsToOom { low: faster(rate.highest).min(mid), mid, high: high.max(mid) }
}

/// The same with the interval that nine of ten ends lie in. `seen`: marks that growth was watched for. What was seen briefly
/// is known badly: its rate to about one part in the root of its marks, and growth slows down more often than it speeds up;
/// what slows down over half of the marks seen does not do so within a few of them. And the step that fails is one that needs
/// much: where steps differ, those that need little fit for a while longer.
pub(super) fn interval(room: &Headroom, rate: &Rate, seen: u32) -> StepsToOom {
    let (f, most) = (steps_to_oom(room.bytes, rate), steps_to_oom(room.most, rate));
    if most.mid == u64::MAX {
        return f;
    }
    let doubt = 1.0 / f64::from(seen.max(1)).sqrt();
    let low = (f.mid as f64 / (1.0 + doubt)).round() as u64;
    let slowing = dying(room.most as f64, rate.current.min(rate.bytes), rate.ratio, f64::from(seen) / 2.0);
    let high = slowing.map_or(most.high, |n| most.high.min(n.ceil() as u64));
    let high = high.max((most.mid as f64 * (1.0 + 2.0 * doubt)).round() as u64);
    // What slows down and is drawn far beyond what was seen of it may as well level off: no end can be told.
    let far = rate.ratio < FALLS && f.mid > u64::from(seen).saturating_mul(FAR);
    let high = if far { u64::MAX } else { high };
    StepsToOom { low: f.low.min(low), mid: f.mid, high: high.max(1) }
}

/// Marks until `room` is full where each `half` of marks grows by `ratio` of the one before; `None` where it never is, or the
/// rate does not fall.
fn dying(room: f64, rate: f64, ratio: f64, half: f64) -> Option<f64> {
    if !(0.0..1.0).contains(&ratio) || rate <= 0.0 || half < 1.0 {
        return None;
    }
    let falls = -ratio.max(0.05).ln() / half;
    let left = 1.0 - room * falls / rate;
    (left > 0.0).then(|| -left.ln() / falls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Bytes;

    fn rises(marks: u32, total: impl Fn(u64) -> u64) -> Vec<(u32, Point)> {
        (1..=marks).map(|n| (n, Point { blocks: u64::from(n), bytes: total(u64::from(n)) })).collect()
    }

    #[test]
    fn what_becomes_faster_with_each_mark_goes_on_to() {
        for marks in [20, 60, 200] {
            let (now, full) = (u64::from(marks), 2 * u64::from(marks));
            let rate = Rate::of(&rises(marks, |n| (n * n) << 20), marks, 3.0);
            assert!((rate.gain / f64::from(2 << 20) - 1.0).abs() < 0.1, "{rate:?}");
            assert!((rate.current / ((2 * now) << 20) as f64 - 1.0).abs() < 0.1, "{rate:?}");
            let when = steps_to_oom((full * full - now * now) << 20, &rate);
            assert!((when.mid as f64 / f64::from(marks) - 1.0).abs() < 0.1, "{when:?} after {marks}");
        }
        // A straight line, one jump in the rate, and what slows down.
        let jump = |n: u64| if n < 40 { n } else { 40 + 5 * (n - 40) };
        for total in [|n| n << 20, |n| (n as f64).sqrt() as u64 * 1000, |n| 100 * n + 40 * (n % 9)] {
            assert_eq!(Rate::of(&rises(60, total), 60, 1.0).gain, 0.0);
        }
        assert_eq!(Rate::of(&rises(80, jump), 80, 1.0).gain, 0.0);
        assert_eq!(Rate::of(&rises(12, |n| n * n), 12, 1.0).gain, 0.0, "too few");
    }

    #[test]
    fn what_torch_reserves_and_never_uses_counts_where_it_becomes_more() {
        let rows = |unused: fn(u64) -> u64| -> Vec<StepRow> {
            let row = |n: u64| {
                let peak = (100 + 20 * n) << 20;
                let (peak, reserved) = (Bytes(peak), Bytes(peak + (unused(n) << 20)));
                StepRow { step: n as u32, peak, reserved, ..StepRow::default() }
            };
            (1..=60).map(row).collect()
        };
        let found = pieces(&rows(|n| 40 + 5 * n)).expect("it becomes more");
        assert!((found.per_step / f64::from(5 << 20) - 1.0).abs() < 0.01, "{found:?}");
        assert!(found.bytes > 250 << 20 && found.bytes <= 340 << 20, "{found:?}");
        for level in [|_| 40, |n: u64| 40 + 5 * (n % 7), |n: u64| 400 - 5 * n] {
            assert!(pieces(&rows(level)).is_none());
        }
        assert!(pieces(&rows(|n| 5 * n)[..8]).is_none(), "too few");
    }
}
