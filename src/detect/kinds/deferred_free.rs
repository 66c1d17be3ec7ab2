//! Freed blocks that pile up because they wait for a stream, which is named. A note, and a warning where they fill the
//! device soon.

use crate::detect::certainty::Certainty;
use crate::detect::check::{Check, Context, Entry, When};
use crate::detect::explain::{plural, size};
use crate::detect::finding::{Finding, FindingSite, GrainName, StreamRef};
use crate::detect::forecast::{Rate, headroom, steps_to_oom};
use crate::detect::growth::MIN_MARKS;
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::severity::{ALERT_STEPS, Severity};
use crate::event::StepRow;
use crate::replay::{Device, Grain, PendingWait, Replay};
use rustc_hash::FxHashMap;

pub(super) const DETECTOR: Entry = Entry { kind: KIND, check: Check::Look { when: When::EveryMark, all } };

const KIND: Kind = Kind::new(&KindInfo {
    remedy: Some(
        "every few steps call synchronize() on the stream that they wait for, or use wait_stream() instead of record_stream()",
    ),
    ..KindInfo::named("deferred-free", "freed, but waiting for a stream")
});

/// A note of each device where pending bytes have four rising floors.
fn all(cx: &Context<'_>) -> Vec<Finding> {
    let of = |d: &Device| {
        let (first, rate) = rising(&d.rows)?;
        let same = |f: &&Finding| f.kind == KIND && f.device == d.id;
        let detected = cx.before.iter().find(same).map_or(cx.replay.steps(), |f| f.detected_step);
        Some(compose(cx.replay, d, first, rate, detected))
    };
    cx.replay.devices().filter_map(of).collect()
}

/// First step of the rise and bytes per step, where the floors of four windows after a warm-up rise.
fn rising(rows: &[StepRow]) -> Option<(u32, f64)> {
    let n = rows.len();
    let last = rows.last().filter(|r| r.pending.0 > 0)?;
    let windows = n.saturating_sub((n / 5).max(3)) / 4;
    if windows < MIN_MARKS as usize / 4 {
        return None;
    }
    let tail = &rows[n - 4 * windows..];
    let floor = |w: &[StepRow]| w.iter().map(|r| r.pending.0).min().unwrap_or(0);
    let floors: Vec<u64> = tail.chunks(windows).map(floor).collect();
    let rises = floors.windows(2).all(|w| w[1] >= w[0].saturating_add(512));
    let first = rows.iter().find(|r| r.pending.0 > 0)?;
    let marks = f64::from(last.step.saturating_sub(first.step).max(1));
    rises.then(|| (first.step, (last.pending.0 - first.pending.0.min(last.pending.0)) as f64 / marks))
}

fn compose(replay: &Replay, d: &Device, first: u32, rate: f64, detected: u32) -> Finding {
    let mut by_site: FxHashMap<u32, FindingSite> = FxHashMap::default();
    let (mut bytes, mut blocks) = (0u64, 0u64);
    for h in replay.blocks(d.id).filter(|h| h.pending) {
        let s = by_site.entry(h.site.0).or_insert(FindingSite {
            site: h.site,
            share: 0.0,
            blocks_now: 0,
            bytes_now: 0,
        });
        s.blocks_now += 1;
        s.bytes_now = s.bytes_now.saturating_add(h.block.rounded.0);
        (bytes, blocks) = (bytes.saturating_add(h.block.rounded.0), blocks + 1);
    }
    let mut sites: Vec<FindingSite> = by_site.into_values().collect();
    sites.iter_mut().for_each(|s| s.share = s.bytes_now as f64 / (bytes as f64).max(1.0));
    sites.sort_by_key(|s| (std::cmp::Reverse(s.bytes_now), s.site));
    let waits = replay.pending(d.id);
    let stream = waits.first().and_then(|w| w.stream).and_then(|s| StreamRef::of(replay, s));
    let per_block = if blocks > 0 { bytes as f64 / blocks as f64 } else { 1.0 };
    let room = headroom(replay, d.id);
    let full = steps_to_oom(
        room.bytes,
        &Rate { bytes: rate, current: rate, highest: rate, ratio: 1.0, ..Rate::default() },
    );
    let soon = room.known && full.mid <= ALERT_STEPS;
    let severity = if soon { Severity::Warning } else { Severity::Info };
    Finding {
        id: 0,
        kind: KIND,
        certainty: Certainty::Growing,
        evidence: Vec::new(),
        bound: None,
        severity,
        urgency: severity,
        grain: GrainName::of(replay, Grain::Step),
        device: d.id,
        stream,
        first_step: first,
        detected_step: detected,
        withdrawn_step: None,
        suppressed_by: None,
        established: true,
        bytes_per_step: rate,
        blocks_per_step: rate / per_block.max(1.0),
        current_bytes_per_step: rate,
        bytes_now: bytes,
        blocks_now: blocks,
        steps_to_oom: room.known.then_some(full),
        seconds_to_oom: None,
        last_step: replay.steps(),
        explain: format!(
            "{} ({}) were freed but cannot be reused before {} done with them (record_stream), and more wait with every step",
            plural(blocks, "block"),
            size(bytes),
            whom(&waits)
        ),
        sites,
    }
}

/// The streams that are waited for, by what waits, with the verb.
fn whom(waits: &[PendingWait]) -> String {
    let known: Vec<&PendingWait> = waits.iter().filter(|w| w.stream.is_some()).collect();
    let one = |w: &&PendingWait| {
        w.stream.map_or(String::new(), |s| format!("stream {} ({})", s.0, size(w.bytes.0)))
    };
    match known.as_slice() {
        [] => "a stream that was not seen is".to_string(),
        [w] => format!("stream {} is", w.stream.map_or(0, |s| s.0)),
        [some @ .., last] => {
            format!("{} and {} are", some.iter().map(one).collect::<Vec<_>>().join(", "), one(last))
        }
    }
}
