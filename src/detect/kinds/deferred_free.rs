//! Freed blocks that pile up because they wait for a stream, which is named. A note, and a warning where they fill the
//! device soon.

use crate::detect::amounts::{plural, size};
use crate::detect::certainty::Certainty;
use crate::detect::check::{Check, Context, Entry, When};
use crate::detect::finding::Finding;
use crate::detect::forecast::{Rate, headroom, steps_to_oom};
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::note::{Note, Sites};
use crate::detect::rise::Rise;
use crate::detect::severity::{ALERT_STEPS, Severity};
use crate::event::StepRow;
use crate::replay::{Device, PendingWait, Replay};

pub(super) const DETECTOR: Entry = Entry { kind: KIND, check: Check::Look { when: When::EveryMark, all } };

const KIND: Kind = Kind::new(&KindInfo {
    remedy: Some(
        "call synchronize() every few steps on the stream that the freed blocks wait for, or use wait_stream() instead of record_stream()",
    ),
    ..KindInfo::named("deferred-free", "freed memory that waits for a stream")
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

/// First step of the rise and bytes per step, where the floors of four windows rise.
fn rising(rows: &[StepRow]) -> Option<(u32, f64)> {
    let last = rows.last().filter(|r| r.pending.0 > 0)?;
    Rise::of(rows, 4, 512, |r| r.pending.0)?;
    let first = rows.iter().find(|r| r.pending.0 > 0)?;
    let marks = f64::from(last.step.saturating_sub(first.step).max(1));
    Some((first.step, (last.pending.0 - first.pending.0.min(last.pending.0)) as f64 / marks))
}

fn compose(replay: &Replay, d: &Device, first_step: u32, rate: f64, detected_step: u32) -> Finding {
    let mut sites = Sites::default();
    for h in replay.blocks(d.id).filter(|h| h.pending) {
        sites.add(h.site, h.block.rounded.0, 1);
    }
    let waits = replay.pending(d.id);
    let explain = format!(
        "{} ({}) were freed but cannot be reused until {} finished using them (record_stream), and this memory grows",
        plural(sites.blocks(), "block"),
        size(sites.bytes()),
        whom(&waits)
    );
    let stream = waits.first().and_then(|w| w.stream);
    let note = Note { kind: KIND, device: d, stream, first_step, sites, rate, explain };
    let room = headroom(replay, d.id, 0);
    let steady = Rate { bytes: rate, current: rate, highest: rate, ratio: 1.0, ..Rate::default() };
    let full = steps_to_oom(room.bytes, &steady);
    let soon = room.known && full.mid <= ALERT_STEPS;
    let severity = if soon { Severity::Warning } else { Severity::Info };
    Finding {
        certainty: Certainty::Growing,
        severity,
        urgency: severity,
        detected_step,
        steps_to_oom: room.known.then_some(full),
        ..note.finding(replay, &[])
    }
}

/// The streams that are waited for, by what waits, with the verb.
fn whom(waits: &[PendingWait]) -> String {
    let known: Vec<&PendingWait> = waits.iter().filter(|w| w.stream.is_some()).collect();
    let one = |w: &&PendingWait| {
        w.stream.map_or(String::new(), |s| format!("stream {} ({})", s.0, size(w.bytes.0)))
    };
    match known.as_slice() {
        [] => "a stream that was not recorded has".to_string(),
        [w] => format!("stream {} has", w.stream.map_or(0, |s| s.0)),
        [some @ .., last] => {
            format!("{} and {} have", some.iter().map(one).collect::<Vec<_>>().join(", "), one(last))
        }
    }
}
