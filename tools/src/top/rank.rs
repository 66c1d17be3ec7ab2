//! A row of `strandline top`: one device of one process as of a moment, with all that its detail shows; plain data.

use crate::live::Followed;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use strandline::detect::{Finding, GrainName, Outcome, StepsToOom};
use strandline::event::{DeviceId, Frame, SiteId, StackId, StepRow, StreamId, total};
use strandline::replay::{Device, Replay, Site};
use strandline::report::metrics::{last_folders, place};
use strandline::report::text::stream;
use strandline::report::{Facts, IDLE, Process, plural, used};

/// Lines that allocate, of which each row has the largest.
const SITES: usize = 8;
/// Streams of which each row has the largest.
const STREAMS: usize = 4;
/// Frames of a stack.
const FRAMES: usize = 48;
/// What the curve shows: so many nanoseconds, at so many moments.
const RECENT: u64 = 600 * 1_000_000_000;
const MOMENTS: u64 = 60;

/// What tells rows apart.
pub(super) type Key = (PathBuf, Option<u8>);

/// A row. Sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rank {
    pub(super) key: Key,
    /// As the launcher said.
    pub(super) rank: Option<u64>,
    pub(super) pid: u32,
    /// Number of the process, host, device and command, as far as known.
    pub(super) title: String,
    pub(super) steps: u32,
    pub(super) allocated: u64,
    pub(super) reserved: u64,
    /// The highest `allocated`.
    pub(super) peak: u64,
    /// `allocated` at the end of the step before, at moments equally far apart, until now; none before the third step.
    pub(super) recent: Vec<u64>,
    /// Nanoseconds from the first of these to the last.
    pub(super) recent_span: u64,
    pub(super) growth: Option<Growth>,
    /// When the last event was, in nanoseconds of the Unix epoch.
    pub(super) last_event: u64,
    pub(super) ended: bool,
    /// The word on the process, and why.
    pub(super) verdict: String,
    pub(super) bar: Bar,
    pub(super) streams: Vec<Stream>,
    pub(super) sites: Vec<Line>,
}

/// A leak that stands: of several the one that fills the device first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Growth {
    /// Lately, per mark.
    pub(super) bytes: f64,
    /// What a mark is: `step`, `mb` (microbatch) or `tick`.
    pub(super) per: &'static str,
    /// `None`: the size of the device is not known.
    pub(super) full: Option<StepsToOom>,
    /// The same in seconds.
    pub(super) seconds: Option<u64>,
    /// The statement that keeps it, where that is known: `` `hist.append(loss)` at leak.py:11 ``.
    pub(super) kept: Option<String>,
    /// The line that allocates it.
    pub(super) place: String,
}

/// What the device is filled with; the parts sum to `total`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bar {
    /// Live blocks but those left behind.
    pub(super) job: u64,
    /// What standing leaks count.
    pub(super) left_behind: u64,
    pub(super) waiting: u64,
    /// Reserved, neither live nor waiting.
    pub(super) cached: u64,
    /// Not torch's: context, libraries, other processes.
    pub(super) others: u64,
    pub(super) free: u64,
    /// The device's size; where that is not known, what torch has reserved.
    pub(super) total: u64,
    /// `total` is the device's size.
    pub(super) whole: bool,
    /// Somebody told what others hold; else they are counted as free.
    pub(super) told: bool,
}

/// A stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stream {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    /// Freed blocks that wait for it.
    pub(super) waiting: u64,
}

/// A line that allocates.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Line {
    pub(super) place: String,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    /// A leak that stands counts its blocks.
    pub(super) leaks: bool,
    /// One stack that leads there, innermost first.
    pub(super) stack: Vec<String>,
    /// Stacks that its live blocks have.
    pub(super) stacks: usize,
}

/// The rows of a process: one for each device that it uses, or one without.
pub(super) fn rows_of(followed: &Followed) -> Vec<Rank> {
    let live = followed.live();
    let replay = live.replay;
    let mut rows = live.process(|p| {
        let whole = Rank { verdict: verdict(p, followed.is_damaged()), ..Rank::default() };
        let rows: Vec<Rank> = used(p).map(|d| of_device(p, d, whole.clone())).collect();
        if rows.is_empty() { vec![whole] } else { rows }
    });
    let facts = Facts::of(replay);
    for row in &mut rows {
        let device = row.key.1.map(DeviceId);
        row.rank = facts.rank();
        row.pid = live.target.pid;
        let words = [
            row.rank.map(|n| format!("rank {n}")),
            Some(format!("pid {}", row.pid)),
            facts.text("host").map(str::to_string),
            device.and_then(|d| facts.device_name(d)).map(str::to_string),
            Some(command(facts)).filter(|c| !c.is_empty()),
        ];
        row.title = words.into_iter().flatten().collect::<Vec<_>>().join(" · ");
        row.key.0 = live.path.into();
        row.steps = replay.steps();
        row.last_event = followed.last_event();
        row.ended = followed.is_over();
    }
    rows
}

/// The command without folders: a line has no room for where its Python lies.
fn command(facts: Facts<'_>) -> String {
    let words = facts.command().into_iter().map(|word| word.rsplit('/').next().unwrap_or(word));
    words.collect::<Vec<_>>().join(" ")
}

fn mid(finding: &Finding) -> u64 {
    finding.steps_to_oom.map_or(u64::MAX, |s| s.mid)
}

/// While a job runs nothing is clean, only so far; and what is missing may be what leaks.
pub(super) fn verdict(p: &Process<'_>, damaged: bool) -> String {
    let word = match p.verdict.outcome {
        Outcome::Clean if damaged => return "not judged: part of the recording is missing".into(),
        Outcome::Clean => return "no leak so far".into(),
        // As the report says it: there is nothing to be judged.
        Outcome::Unknown if p.is_idle() && !damaged => return format!("{IDLE} so far"),
        Outcome::Unknown => "not judged yet",
        Outcome::Leak => "LEAK",
        Outcome::Growing => "GROWING",
        Outcome::Oom => "OUT OF MEMORY",
    };
    let reason = p.reason();
    if reason.is_empty() { word.into() } else { format!("{word}: {reason}") }
}

/// Of what grows on a device what fills it first.
fn growth(p: &Process<'_>, device: DeviceId) -> Option<Growth> {
    let all = p.findings.iter().enumerate().filter(|(_, f)| f.is_active_leak() && f.device == device);
    let (i, f) = all.min_by_key(|(_, f)| (mid(f), -f.current_bytes_per_step as i64))?;
    let kept = p.known.get(i).and_then(|k| k.kept_at.as_ref());
    Some(Growth {
        bytes: f.current_bytes_per_step,
        per: match f.grain {
            GrainName::Step => "step",
            GrainName::Microbatch => "mb",
            GrainName::Tick => "s",
            GrainName::Iteration => "iteration",
        },
        full: f.steps_to_oom,
        seconds: f.seconds_to_oom.map(|s| s.mid).filter(|s| *s != u64::MAX),
        kept: kept.map(|k| format!("`{}` at {}:{}", k.source, last_folders(&k.file), k.line)),
        place: f.sites.first().and_then(|s| p.replay.site(s.site)).map(place).unwrap_or_default(),
    })
}

fn of_device(p: &Process<'_>, d: &Device, whole: Rank) -> Rank {
    let leaks = p.findings.iter().filter(|f| f.is_active_leak() && f.device == d.id);
    let left_behind = total(leaks.map(|f| f.bytes_now));
    let (recent, recent_span) = recent(&d.rows, p.replay.time().0);
    Rank {
        key: (PathBuf::new(), Some(d.id.0)),
        allocated: d.allocated.0,
        reserved: d.reserved.0,
        peak: d.peak_allocated.bytes.0,
        recent,
        recent_span,
        growth: growth(p, d.id),
        bar: bar(d, left_behind),
        streams: streams(p.replay, d.id),
        sites: sites(p, d.id),
        ..whole
    }
}

/// What was allocated in the last minutes, and how long they were.
fn recent(rows: &[StepRow], now: u64) -> (Vec<u64>, u64) {
    let Some(first) = rows.first().filter(|_| rows.len() > 2) else { return (Vec::new(), 0) };
    let from = first.time.0.max(now.saturating_sub(RECENT));
    let span = now.saturating_sub(from);
    let at = |i: u64| {
        let moment = from + (u128::from(span) * u128::from(i) / u128::from(MOMENTS - 1)) as u64;
        let row = rows.partition_point(|r| r.time.0 <= moment).saturating_sub(1);
        rows[row].allocated.0
    };
    ((0..MOMENTS).map(at).collect(), span)
}

fn bar(d: &Device, left_behind: u64) -> Bar {
    let left_behind = left_behind.min(d.allocated.0);
    let torchs = d.reserved.0.max(d.allocated.0.saturating_add(d.pending.0));
    let known = d.capacity.map(|c| c.total.0.max(torchs));
    let total = known.unwrap_or(torchs);
    let others = d.capacity.map_or(0, |c| c.others.0.min(total - torchs));
    Bar {
        job: d.allocated.0 - left_behind,
        left_behind,
        waiting: d.pending.0,
        cached: torchs - d.allocated.0 - d.pending.0,
        others,
        free: total - torchs - others,
        total,
        whole: known.is_some(),
        told: d.capacity.is_some_and(|c| c.source != "properties"),
    }
}

fn streams(r: &Replay, device: DeviceId) -> Vec<Stream> {
    let mut all: BTreeMap<StreamId, Stream> = BTreeMap::new();
    for (id, live) in r.live_of_streams(device) {
        let s = all.entry(id).or_default();
        (s.bytes, s.blocks) = (live.bytes, live.blocks);
    }
    for w in r.pending(device) {
        if let Some(id) = w.stream {
            all.entry(id).or_default().waiting += w.bytes.0;
        }
    }
    let named = all.into_iter().map(|(id, s)| Stream { name: stream(r, id), ..s });
    let mut named: Vec<Stream> = named.collect();
    named.sort_by_key(|s| std::cmp::Reverse(s.bytes + s.waiting));
    named.truncate(STREAMS);
    named
}

fn sites(p: &Process<'_>, device: DeviceId) -> Vec<Line> {
    let r = p.replay;
    let mut all: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for c in r.cohorts().iter().filter(|c| c.key.device == device && c.live.bytes > 0) {
        let s = all.entry(c.key.site.0).or_default();
        *s = (s.0 + c.live.bytes, s.1 + c.live.blocks);
    }
    let mut largest: Vec<(u32, (u64, u64))> = all.into_iter().collect();
    largest.sort_by_key(|(_, s)| std::cmp::Reverse(*s));
    largest.truncate(SITES);
    let leaks: Vec<&Finding> =
        p.findings.iter().filter(|f| f.is_active_leak() && f.device == device).collect();
    let mut stacks: BTreeMap<SiteId, BTreeSet<StackId>> = BTreeMap::new();
    for h in r.blocks(device).filter(|h| largest.iter().any(|(id, _)| *id == h.site.0)) {
        stacks.entry(h.site).or_default().insert(h.block.stack);
    }
    let line = |(id, (bytes, blocks)): (u32, (u64, u64))| {
        let site = r.sites().get(id as usize)?;
        let stacks = stacks.get(&site.id).map_or(0, BTreeSet::len);
        let leaks = leaks.iter().any(|f| f.sites.iter().any(|s| s.site == site.id));
        Some(Line { place: place(site), bytes, blocks, leaks, stack: stack(p, site), stacks })
    };
    largest.into_iter().filter_map(line).collect()
}

/// The frames that lead to a site, and those that called the backward which it runs in.
fn stack(p: &Process<'_>, site: &Site) -> Vec<String> {
    let text = |f: &Frame| format!("{}:{} {}", f.file, f.line, f.function);
    let mut lines: Vec<String> = p.names.frames(site.stack).take(FRAMES).map(text).collect();
    if site.backward_stack.0 != 0 && site.backward_stack != site.stack {
        lines.push("in the backward pass that was started at".into());
        lines.extend(p.names.frames(site.backward_stack).take(FRAMES).map(text));
    }
    if lines.is_empty() {
        let native = p.names.native(site.stack).len() as u64;
        lines.push(match native {
            0 => "no frame of this stack was recorded".into(),
            n => format!("no Python frame, only {}; strandline report shows them", plural(n, "native frame")),
        });
    }
    lines
}
