//! When a device will be full.

use super::finding::StepsToOom;
use crate::event::DeviceId;
use crate::replay::{Point, Replay};

/// How fast something grows, in bytes (and blocks) per mark.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) bytes: f64,
    pub(super) blocks: f64,
    /// Over the last marks.
    pub(super) current: f64,
    /// Highest of whole run, first half and last marks.
    pub(super) highest: f64,
    /// Growth of the later half as a part of that of the earlier half.
    pub(super) ratio: f64,
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
        // Up to the last rise, and half a gap beyond it where rises are rare, so that neither end is counted
        // twice.
        let over = |a: (u32, Point), b: (u32, Point)| {
            let marks = f64::from((b.0 - a.0).max(1));
            ((b.1.bytes - a.1.bytes) as f64 / marks, (b.1.blocks.saturating_sub(a.1.blocks)) as f64 / marks)
        };
        let (bytes, blocks) = over(first, last);
        let gap = (last.0 - first.0) / (rises.len() as u32 - 1);
        let back = CURRENT.max(4 * gap).max((last.0 - first.0) / 4);
        let recent = rises.iter().rev().find(|r| r.0 + back <= last.0).copied().unwrap_or(first);
        let mut current = over(recent, last).0;
        if mark > last.0 + 2 * gap.max(1) {
            // No rise where one was due: the present pace is at most this.
            current = (last.1.bytes - recent.1.bytes) as f64 / f64::from((mark - recent.0).max(1));
        }
        let highest = bytes.max(current);
        Rate { bytes, blocks, current, highest, ratio }
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
            all.ratio += r.ratio * r.bytes;
            weight += r.bytes;
        }
        all.ratio = if weight > 0.0 { all.ratio / weight } else { 1.0 };
        all
    }
}

/// The largest device on the market, GiB: what a device of unknown size is taken for where only severity is
/// asked, so that not knowing never makes things look worse.
const LARGEST_GIB: u64 = 288;
/// Steps whose peaks above their ends are looked at.
const LOOK_BACK: usize = 8;

/// Bytes that may be left behind at the end of a step until an allocation fails: the device's size less what
/// others hold, less the highest that a step needs at its peak. `known` is false where the device's size is a
/// guess.
pub(super) struct Headroom {
    pub(super) bytes: u64,
    pub(super) known: bool,
}

pub(super) fn headroom(replay: &Replay, device: DeviceId) -> Headroom {
    let Some(d) = replay.device(device) else { return Headroom { bytes: u64::MAX, known: false } };
    let (total, others, known) = match d.capacity {
        Some(c) => (c.total.0, c.others.0, true),
        None => (LARGEST_GIB << 30, 0, false),
    };
    let last = d.rows.last().copied().unwrap_or_default();
    let recent = d.rows.iter().rev().take(LOOK_BACK);
    let above = recent.map(|r| r.peak.0.saturating_sub(r.allocated.0)).max().unwrap_or(0);
    let used = others.saturating_add(last.allocated.0).saturating_add(last.pending.0).saturating_add(above);
    Headroom { bytes: total.saturating_sub(used), known }
}

/// Marks until `headroom` is used up.
pub(super) fn steps_to_oom(headroom: u64, rate: &Rate) -> StepsToOom {
    let at =
        |r: f64| if r > 0.0 { (headroom as f64 / r).ceil().min(u64::MAX as f64) as u64 } else { u64::MAX };
    let mid = at(rate.current);
    let slowest = rate.current.min(rate.bytes);
    // Where growth dies away, it goes on to die away: each later stretch as long as the run so far grows by
    // `ratio` of the one before.
    let high = if rate.ratio < 0.9 { at(slowest * rate.ratio.max(0.05)) } else { at(slowest) };
    StepsToOom { low: at(rate.highest).min(mid), mid, high: high.max(mid) }
}
