//! What a region of a job left behind: blocks that were allocated between two of its marks and are still in use at the second one, by line.
//!
//! A region NAME is made of marks: `NAME begin`, `NAME end`, and between them `NAME skip` and `NAME count` around what is not its own. The
//! last region of a name counts. Blocks that wait for a stream after they were freed are not left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::{Align, Table, plural, size};
use crate::event::{
    Addr, Block, Body, Bytes, DeviceId, Event, Frame, Names, SiteId, StackId, printable, total,
};
use crate::replay::{Held, Point, Replay};

/// Lines of the text; JSON has all.
const ROWS: usize = 20;
/// Blocks of a line that are listed by address, the last ones.
const ADDRESSES: usize = 64;
/// Frames of a stack that are listed.
const FRAMES: usize = 16;
/// Lines that held the most at the peak.
const PEAK_ROWS: usize = 5;

/// Most memory in use within the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionPeak {
    /// Allocated bytes then.
    pub bytes: Bytes,
    /// So many events of the recording are up to it.
    pub events: u64,
}

/// What events mean to the region now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Counting,
    Skipping,
    Over,
}

/// Follows a replay: [`Left::before`] each event, [`Left::after`] it.
#[derive(Clone, Debug, Default)]
pub struct LeftBehind {
    region: String,
    state: State,
    /// One of its marks is in the recording.
    pub marked: bool,
    /// Its `begin` is.
    begun: bool,
    /// Names of some regions that are.
    pub regions: BTreeSet<String>,
    /// Events within it are missing.
    incomplete: bool,
    generation: u32,
    /// Blocks of the region that are in use.
    born: FxHashMap<(DeviceId, Addr), Born>,
    /// What the region freed of blocks that are not its own.
    gone: BTreeMap<SiteId, Point>,
    /// Most memory in use within it, by device.
    pub peaks: BTreeMap<DeviceId, RegionPeak>,
}

impl LeftBehind {
    /// The region of these marks, from the beginning of a recording on: where the job began to be recorded within it, there is no first mark.
    pub fn new(region: &str) -> LeftBehind {
        LeftBehind { region: region.to_string(), ..LeftBehind::default() }
    }

    /// An event is about to be applied: what it frees is still known.
    pub fn before(&mut self, e: &Event, replay: &Replay) {
        if self.state == State::Over {
            return;
        }
        let (Body::FreeRequested(b) | Body::FreeCompleted(b)) = &e.body else { return };
        let Some((device, held)) = held(replay, b) else { return };
        if self.born.remove(&(device, b.addr)).is_none() && self.state == State::Counting && !held.pending {
            self.gone.entry(held.site).or_default().add(Point::block(held.block.rounded.0));
        }
    }

    /// An event was applied.
    pub fn after(&mut self, e: &Event, replay: &Replay, names: &Names) {
        match &e.body {
            Body::Mark { name, phase: false } => {
                let Some(text) = names.text(*name) else { return };
                if let Some(region) = text.strip_suffix(" begin").filter(|_| self.regions.len() < ROWS) {
                    self.regions.insert(region.to_owned());
                }
                if let Some(what) = text.strip_prefix(&*self.region) {
                    self.mark(what, replay);
                }
            }
            Body::Gap { .. } if self.state != State::Over => self.incomplete = true,
            Body::Alloc(b) if self.state != State::Over => {
                self.missing(replay);
                if let Some(h) = replay.block(b.device, b.addr).filter(|_| self.state == State::Counting) {
                    let born = Born { site: h.site, bytes: h.block.rounded.0, stack: b.stack };
                    self.born.insert((b.device, b.addr), born);
                }
                self.look(b.device, replay);
            }
            _ => {}
        }
    }

    /// The replay was begun anew from a checkpoint, behind events that are not kept.
    fn missing(&mut self, replay: &Replay) {
        if replay.generation() != self.generation {
            self.generation = replay.generation();
            self.incomplete = true;
            self.born.clear();
            self.gone.clear();
        }
    }

    fn mark(&mut self, what: &str, replay: &Replay) {
        match what {
            " begin" => {
                self.restart();
                (self.begun, self.incomplete, self.generation) = (true, false, replay.generation());
                replay.devices().for_each(|d| {
                    self.peaks.insert(d.id, RegionPeak { bytes: d.allocated, events: replay.events() });
                });
            }
            " skip" => self.state = State::Skipping,
            // Recording began while the region was skipped.
            " count" if self.state == State::Counting && !self.begun => self.restart(),
            " count" => self.state = State::Counting,
            " end" => {
                self.missing(replay);
                self.state = State::Over;
            }
            _ => return,
        }
        self.marked = true;
    }

    fn restart(&mut self) {
        self.state = State::Counting;
        self.born.clear();
        self.gone.clear();
        self.peaks.clear();
    }

    fn look(&mut self, device: DeviceId, replay: &Replay) {
        let Some(d) = replay.device(device) else { return };
        let peak = self.peaks.entry(device).or_default();
        if d.allocated > peak.bytes {
            *peak = RegionPeak { bytes: d.allocated, events: replay.events() };
        }
    }

    /// What is left, by the site that allocated it: what is more than the region freed of the same site's first.
    fn rows(&self) -> Vec<Row> {
        let mut rows: BTreeMap<SiteId, Row> = BTreeMap::new();
        for (&(device, addr), &Born { site, bytes, stack }) in &self.born {
            let row = rows.entry(site).or_insert_with(|| Row {
                site,
                left: Point::default(),
                freed: self.gone.get(&site).copied().unwrap_or_default(),
                blocks: Vec::new(),
                stacks: BTreeSet::new(),
            });
            row.stacks.insert(stack);
            row.left.add(Point::block(bytes));
            row.blocks.push((device, addr, bytes));
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse((row.more(), row.left.bytes)), row.site));
        rows
    }

    /// Frames of all stacks that allocated what a line has left; `line`: its place in [`LeftBehind::json`].
    pub fn frames<'n>(&self, line: usize, names: &'n Names) -> Vec<&'n Frame> {
        let rows = self.rows();
        rows.get(line).map_or_else(Vec::new, |row| row.stacks.iter().flat_map(|s| names.frames(*s)).collect())
    }

    /// Bytes that are left, less what the region freed of memory from before it: what is replaced is not left behind.
    pub fn bytes(&self) -> u64 {
        let born = total(self.born.values().map(|b| b.bytes));
        let gone = total(self.gone.values().map(|a| a.bytes));
        born.saturating_sub(gone)
    }

    /// For people.
    ///
    /// # Errors
    /// What the sink says.
    pub fn text(&self, out: &mut impl Write, replay: &Replay) -> io::Result<()> {
        let (rows, name) = (self.rows(), printable(&self.region));
        match self.bytes() {
            0 => writeln!(out, "strandline: nothing is left behind by \"{name}\"")?,
            bytes => writeln!(out, "strandline: {} left behind by \"{name}\"", size(bytes))?,
        }
        if self.incomplete {
            writeln!(out, "  events are missing: these figures may be too high or too low")?;
        }
        let mut table = Table::new([Align::Right, Align::Right, Align::Left]);
        for row in rows.iter().filter(|r| r.more() > 0).take(ROWS) {
            let frame = replay.site(row.site).map(|s| s.frame.clone()).unwrap_or_default();
            let blocks = plural(row.left.blocks, "block");
            table.row([size(row.more()), blocks, place(&frame)]);
        }
        table.lines(2).iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    /// For programs. `at_peak` has the replay as it stood at a device's peak, where that was asked for.
    pub fn json(&self, replay: &Replay, names: &Names, at_peak: &[(DeviceId, Replay)]) -> Value {
        let line = |row: &Row| {
            let mut value = site(replay, names, row.site, row.stacks.first().copied());
            let listed = row.blocks.iter().rev().take(ADDRESSES);
            value["bytes"] = json!(row.left.bytes);
            value["blocks"] = json!(row.left.blocks);
            value["freed_bytes"] = json!(row.freed.bytes);
            value["addresses"] = listed.map(|(d, a, b)| json!([d.0, a.0, b])).collect();
            value
        };
        let peak = |(id, peak): (&DeviceId, &RegionPeak)| {
            let then = at_peak.iter().find(|(device, _)| device == id);
            let lines = then.map(|(_, r)| {
                held_lines(r, *id)
                    .iter()
                    .map(|l| {
                        let mut value = site(r, names, l.0, None);
                        value["bytes"] = json!(l.1.bytes);
                        value["blocks"] = json!(l.1.blocks);
                        value
                    })
                    .collect::<Vec<_>>()
            });
            json!({ "index": id.0, "peak_allocated_bytes": peak.bytes.0, "peak_lines": lines })
        };
        let freed = total(self.gone.values().map(|a| a.bytes));
        json!({
            "schema": 1,
            "tool": format!("strandline {}", crate::VERSION),
            "region": self.region,
            "begin_seen": self.begun,
            "end_seen": self.state == State::Over,
            "complete": !self.incomplete,
            "left_bytes": self.bytes(),
            "left_blocks": self.born.len(),
            "freed_bytes": freed,
            "devices": self.peaks.iter().map(peak).collect::<Vec<_>>(),
            "lines": self.rows().iter().map(line).collect::<Vec<_>>(),
        })
    }
}

/// A block of the region.
#[derive(Clone, Copy, Debug)]
struct Born {
    site: SiteId,
    bytes: u64,
    stack: StackId,
}

/// What a site has left.
#[derive(Clone, Debug)]
struct Row {
    site: SiteId,
    left: Point,
    freed: Point,
    blocks: Vec<(DeviceId, Addr, u64)>,
    /// Those that the blocks were allocated with: the site's own is that of its first block, which may be long gone.
    stacks: BTreeSet<StackId>,
}

impl Row {
    fn more(&self) -> u64 {
        self.left.bytes.saturating_sub(self.freed.bytes)
    }
}

/// The block that is freed. Of one that CUDA itself handed out, the thread that frees it may be on another device.
fn held<'a>(replay: &'a Replay, b: &Block) -> Option<(DeviceId, &'a Held)> {
    let devices =
        std::iter::once(b.device).chain(replay.devices().map(|d| d.id).filter(|_| b.pool.is_direct()));
    devices.into_iter().find_map(|d| Some((d, replay.block(d, b.addr)?)))
}

/// The lines that hold the most of a device.
fn held_lines(replay: &Replay, device: DeviceId) -> Vec<(SiteId, Point)> {
    let mut lines: BTreeMap<SiteId, Point> = BTreeMap::new();
    for h in replay.blocks(device).filter(|h| !h.pending) {
        lines.entry(h.site).or_default().add(Point::block(h.block.rounded.0));
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by_key(|(site, amount)| (std::cmp::Reverse(amount.bytes), *site));
    lines.truncate(PEAK_ROWS);
    lines
}

/// Who allocated: null where no frame was seen. With the frames of a stack; `None`: that of the site's first block.
fn site(replay: &Replay, names: &Names, id: SiteId, stack: Option<StackId>) -> Value {
    let Some(site) = replay.site(id) else { return json!({}) };
    let frame = |f: &Frame| json!({ "file": f.file, "line": f.line, "function": f.function });
    let known = Some(&site.frame).filter(|f| !f.file.is_empty());
    let frames: Vec<Value> = names.frames(stack.unwrap_or(site.stack)).take(FRAMES).map(frame).collect();
    json!({
        "file": known.map(|f| &f.file), "line": known.map(|f| f.line), "function": known.map(|f| &f.function),
        "node": site.node, "your_line": site.your_line.as_ref().map(frame), "frames": frames,
    })
}

fn place(frame: &Frame) -> String {
    match frame.file.is_empty() {
        true => "an unknown line".into(),
        false => format!("{}:{} {}", printable(&frame.file), frame.line, printable(&frame.function)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Nanos, ThreadId};

    /// A job that is made up, event by event, and the region that follows it.
    struct Job {
        left: LeftBehind,
        replay: Replay,
        names: Names,
        marks: Vec<String>,
        now: u64,
    }

    impl Job {
        fn new() -> Job {
            let mut names = Names::default();
            for line in 1..=9 {
                let frame = Frame { file: "/job/train.py".into(), line, function: "f".into() };
                names.add_stack(StackId(line), [frame]);
            }
            let mut replay = Replay::new();
            (1..=9).for_each(|line| replay.learn_stack(StackId(line), &names));
            Job { left: LeftBehind::new("r"), replay, names, marks: Vec::new(), now: 0 }
        }

        fn event(&mut self, body: Body) {
            self.now += 1;
            let e = Event { time: Nanos(self.now), thread: ThreadId(1), body };
            self.left.before(&e, &self.replay);
            self.replay.apply_event(&e);
            self.left.after(&e, &self.replay, &self.names);
        }

        fn mark(&mut self, name: &str) -> &mut Job {
            self.marks.push(name.to_string());
            let number = self.marks.len() as u32;
            self.names.add_text(number, name.to_string());
            self.event(Body::Mark { name: number, phase: false });
            self
        }

        fn block(addr: u64, line: u32) -> Block {
            let (size, stack) = (Bytes(1024), StackId(line));
            Block { addr: Addr(addr), size, rounded: size, stack, ..Block::default() }
        }

        fn alloc(&mut self, addr: u64, line: u32) -> &mut Job {
            self.event(Body::Alloc(Job::block(addr, line)));
            self
        }

        fn free(&mut self, addr: u64) -> &mut Job {
            self.event(Body::FreeRequested(Job::block(addr, 0)));
            self.event(Body::FreeCompleted(Job::block(addr, 0)));
            self
        }

        /// Lines and what each has left, in KiB, and what is left in all.
        fn told(&self) -> (Vec<(u64, u64)>, u64) {
            let v = self.left.json(&self.replay, &self.names, &[]);
            let lines = v["lines"].as_array().unwrap().iter();
            let more =
                |l: &Value| l["bytes"].as_u64().unwrap() - l["freed_bytes"].as_u64().unwrap().min(1024);
            let lines = lines.map(|l| (l["line"].as_u64().unwrap(), more(l) / 1024)).collect();
            (lines, v["left_bytes"].as_u64().unwrap() / 1024)
        }
    }

    #[test]
    fn what_is_allocated_and_kept_between_the_marks_is_left() {
        let mut job = Job::new();
        job.alloc(1, 1).mark("r begin").alloc(2, 2).alloc(3, 2).alloc(4, 3).free(3);
        job.event(Body::FreeRequested(Job::block(4, 3)));
        job.mark("r end").alloc(5, 5).free(2);
        assert_eq!(
            job.told(),
            (vec![(2, 1)], 1),
            "what only waits for a stream is free, what comes later is not the region's"
        );
    }

    #[test]
    fn what_is_skipped_is_not_the_regions() {
        let mut job = Job::new();
        job.mark("r begin")
            .alloc(1, 1)
            .mark("r skip")
            .alloc(2, 2)
            .free(1)
            .mark("r count")
            .alloc(3, 3)
            .mark("r end");
        assert_eq!(job.told(), (vec![(3, 1)], 1));
    }

    #[test]
    fn what_is_replaced_is_not_left_and_what_is_freed_while_skipped_is_no_replacement() {
        let mut job = Job::new();
        job.alloc(1, 1).alloc(2, 2).mark("r begin").alloc(3, 1).free(1).mark("r end");
        assert_eq!(job.told(), (vec![(1, 0)], 0));
        let mut job = Job::new();
        job.alloc(1, 1).mark("r begin").alloc(3, 1).mark("r skip").free(1).mark("r end");
        assert_eq!(job.told(), (vec![(1, 1)], 1));
    }

    #[test]
    fn the_last_region_of_a_name_counts_and_others_are_not_heard() {
        let mut job = Job::new();
        job.mark("r begin")
            .alloc(1, 1)
            .mark("r end")
            .mark("r begin")
            .alloc(2, 2)
            .mark("other end")
            .mark("rr end");
        job.alloc(3, 3).mark("r end");
        assert_eq!(job.told(), (vec![(2, 1), (3, 1)], 2));
    }

    #[test]
    fn a_recording_may_begin_within_a_region() {
        let mut job = Job::new();
        assert!(!job.left.marked);
        job.alloc(1, 1).mark("r end");
        assert_eq!(job.told(), (vec![(1, 1)], 1));
        // It began while something was skipped.
        let mut job = Job::new();
        job.alloc(1, 1).mark("r count").alloc(2, 2).mark("r skip").mark("r count").mark("r end");
        assert_eq!(job.told(), (vec![(2, 1)], 1));
    }

    #[test]
    fn a_gap_makes_it_incomplete_only_within() {
        let mut job = Job::new();
        job.event(Body::Gap { lost: 1 });
        job.mark("r begin").mark("r end");
        job.event(Body::Gap { lost: 1 });
        assert_eq!(job.left.json(&job.replay, &job.names, &[])["complete"], true);
        let mut job = Job::new();
        job.mark("r begin");
        job.event(Body::Gap { lost: 1 });
        job.mark("r end");
        assert_eq!(job.left.json(&job.replay, &job.names, &[])["complete"], false);
    }

    #[test]
    fn the_peak_is_the_regions_own() {
        let mut job = Job::new();
        job.alloc(1, 1)
            .alloc(2, 1)
            .alloc(3, 1)
            .free(1)
            .free(2)
            .mark("r begin")
            .alloc(4, 2)
            .free(4)
            .mark("r end");
        job.alloc(5, 1).alloc(6, 1).alloc(7, 1);
        let peak = job.left.peaks[&DeviceId(0)];
        assert_eq!(peak.bytes, Bytes(2048));
    }
}
