//! Asks a job's probe, while it runs, who holds what was found in it.

use crate::files;
use crate::holder::{HALF, about, answer, frames, held_by, is_outlived, is_same};
use crate::live::Live;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use strandline::detect::{Finding, GrainName, Severity};
use strandline::event::{Names, StackId};
use strandline::format::holders::{Ask, FINDINGS, Flagged};
use strandline::replay::{Held, Replay};
use strandline::report::{Facts, HeldBy, Holder};

/// Leaks of a job are found within a few steps of each other: what is found first waits so long for the others.
const GATHER: Duration = Duration::from_millis(100);
/// What is not established yet may be what a job does as it begins, and looking for its holder takes of the time that the job gives: so long
/// something surer is waited for.
const NO_HURRY: Duration = Duration::from_millis(700);
/// Between two questions to a job, which has a budget of its own.
const INTERVAL: Duration = Duration::from_secs(1);
/// A finding whose holder is not found, or may be another one by now, is asked about so many times.
const TIMES: u32 = 3;
/// So many old blocks are enough to ask about these alone.
const OLD: usize = 2;

/// Asks the jobs that are watched.
#[derive(Default)]
pub(super) struct Asker {
    jobs: HashMap<usize, Asked>,
}

/// What a job was asked.
#[derive(Default)]
struct Asked {
    last: Option<Instant>,
    /// Since when there is something to ask, and whether it is established.
    since: Option<(Instant, bool)>,
    number: u64,
    /// Findings, with how often.
    times: Vec<(Value, u32)>,
    place: Option<PathBuf>,
    /// The job has said that it ends, and was asked for the last time.
    ended: bool,
}

impl Asker {
    /// Asks about what was found in a process since it was last asked. `place`: where the question is to lie.
    pub(super) fn look(&mut self, live: &Live<'_>, place: Option<&Path>) {
        let Some((place, all)) = place.zip(Facts::of(live.replay).searches()) else { return };
        let asked = self.jobs.entry(live.id).or_default();
        let replay = live.replay;
        // It waits for a moment: what has not been asked is asked now, if that is anything.
        let last = !asked.ended && replay.meta().get("ending").is_some();
        if !last && asked.last.is_some_and(|t| t.elapsed() < INTERVAL) {
            return;
        }
        let (mut flagged, mut presses) = (Vec::new(), false);
        let holds = |f: &&Finding| {
            f.withdrawn_step.is_none()
                && f.kind.has_holder()
                && (all || is_worth_a_look(f) || last && f.is_active_leak())
        };
        // What is made anew may be gone before it is found, and is searched for in vain: what lives on comes first.
        let (anew, kept): (Vec<_>, Vec<_>) = live.findings.iter().filter(holds).partition(|f| f.is_remade());
        for finding in kept.into_iter().chain(anew) {
            if finding.is_remade() && !flagged.is_empty() {
                break;
            }
            let about = about(finding, &frames(finding, replay));
            let found =
                answer(replay, &about).filter(|(f, _)| f["status"] == "found" && !is_outlived(finding, f));
            let freed = if finding.is_remade() { 0.0 } else { freed(finding, replay) };
            // Who holds the rest of what was freed is not who held it all.
            let is_stale = freed <= HALF && found.is_some_and(|(f, _)| is_stale(finding, f, replay));
            let (blocks, weights): (Vec<u64>, Vec<u64>) = blocks(finding, replay).into_iter().unzip();
            if found.is_some() && !is_stale
                || blocks.is_empty()
                || flagged.len() == FINDINGS
                || !asked.may_ask(&about)
            {
                continue;
            }
            presses |= is_stale || is_sure(finding);
            let mut about = about;
            about["lines"] = lines(finding, replay, live.names).into();
            about["asked"] = asked_now(finding, &blocks, freed, replay);
            flagged.push(Flagged { about, blocks, weights });
        }
        if !last && (flagged.is_empty() || !asked.is_due(presses, Instant::now())) {
            return;
        }
        asked.since = None;
        asked.ended |= last;
        flagged.iter().for_each(|f: &Flagged| asked.count(&f.about));
        asked.number += 1;
        asked.last = Some(Instant::now());
        // Where it cannot be written nobody is asked: the report says so.
        let ask = Ask { number: asked.number, findings: flagged, last };
        let _ = files::write(place, ask.to_json().to_string().as_bytes());
        asked.place = Some(place.into());
    }

    /// A process has ended: a question that it has not read is taken away.
    pub(super) fn forget(&mut self, id: usize) {
        let asked = self.jobs.remove(&id);
        asked.and_then(|a| a.place).into_iter().for_each(|p| drop(std::fs::remove_file(p)));
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let ids: Vec<usize> = self.jobs.keys().copied().collect();
        ids.into_iter().for_each(|id| self.forget(id));
    }
}

impl Asked {
    /// Whether what is there to be asked, which is established or is not, has been waited for long enough.
    fn is_due(&mut self, presses: bool, now: Instant) -> bool {
        let (since, _) = self.since.filter(|(_, p)| *p == presses).unwrap_or((now, presses));
        self.since = Some((since, presses));
        now.duration_since(since) >= if presses { GATHER } else { NO_HURRY }
    }

    /// Whether this was not asked often enough yet.
    fn may_ask(&self, about: &Value) -> bool {
        self.times.iter().find(|(a, _)| is_same(a, about)).is_none_or(|(_, times)| *times < TIMES)
    }

    /// It is asked.
    fn count(&mut self, about: &Value) {
        match self.times.iter_mut().find(|(a, _)| is_same(a, about)) {
            Some((_, times)) => *times += 1,
            None => self.times.push((about.clone(), 1)),
        }
    }
}

/// Whether what a job gives for looking is spent on this now: a short job gives enough for a look or two, and what holds the blocks of a
/// guess may not have been put in its place yet. A job that ends soon is looked into while it can be. Where seconds are counted, what was seen
/// through some of them is old enough, and a dozen are longer than many a job of a server's tests.
fn is_worth_a_look(f: &Finding) -> bool {
    /// Steps until the card is full.
    const SOON: u64 = 50;
    f.established || f.grain == GrainName::Tick || f.steps_to_oom.is_some_and(|s| s.mid <= SOON)
}

/// Whether a finding stood a test, and is no mere guess.
fn is_sure(f: &Finding) -> bool {
    f.established || f.severity > Severity::Info
}

/// Lines of the user's own that the allocation of what a finding counts led through. The job hands them back: by the time of a report the
/// blocks may be gone, and a line that allocates may be reached by many ways that keep nothing.
fn lines(finding: &Finding, replay: &Replay, names: &Names) -> Vec<String> {
    const STACKS: usize = 256;
    let mut stacks: BTreeMap<u32, u64> = BTreeMap::new();
    for held in counted(finding, replay) {
        *stacks.entry(held.block.stack.0).or_default() += held.block.size.0;
    }
    let mut stacks: Vec<(u32, u64)> = stacks.into_iter().collect();
    stacks.sort_by_key(|s| Reverse(s.1));
    stacks.truncate(STACKS);
    let through = |(stack, bytes): (u32, u64)| {
        let own = names.frames(StackId(stack)).filter(|f| !replay.is_installed(&f.file));
        let lines: BTreeSet<String> = own.map(|f| format!("{}:{}", f.file, f.line)).collect();
        lines.into_iter().map(move |line| (line, bytes)).collect::<Vec<_>>()
    };
    telling(stacks.into_iter().flat_map(through))
}

/// Of lines with the bytes that were allocated through them, those that led to a part worth a word: a small tensor beside a large one does not
/// tell where the large one is kept.
fn telling(through: impl IntoIterator<Item = (String, u64)>) -> Vec<String> {
    const LINES: usize = 64;
    /// Of the most that one line led to.
    const PART: u64 = 100;
    let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
    for (line, size) in through {
        *bytes.entry(line).or_default() += size;
    }
    let most = bytes.values().copied().max().unwrap_or(0);
    let mut lines: Vec<(String, u64)> = bytes.into_iter().filter(|l| l.1 * PART >= most).collect();
    lines.sort_by_key(|l| Reverse(l.1));
    lines.truncate(LINES);
    let mut lines: Vec<String> = lines.into_iter().map(|l| l.0).collect();
    lines.sort_unstable();
    lines
}

/// When it is asked, and some of the blocks: whoever reads the recording sees whether these were there still when it was answered.
/// `freed`: the part of what was found that had been freed by then.
fn asked_now(finding: &Finding, blocks: &[u64], freed: f64, replay: &Replay) -> Value {
    const TOLD: usize = 32;
    let count = blocks.len().min(TOLD);
    let some: Vec<u64> = (0..count).filter_map(|i| blocks.get(i * blocks.len() / count)).copied().collect();
    json!({ "ns": replay.time().0, "mark": marks(finding, replay), "freed": freed, "blocks": some, "anew": finding.is_remade() })
}

/// The part of what a finding counted at its last mark that has been freed since, 0 to 1: as a job ends, a function's variables go.
fn freed(finding: &Finding, replay: &Replay) -> f64 {
    let left = replay.blocks(finding.device).filter(|h| finding.counts(h) && !h.pending).count();
    if finding.blocks_now == 0 { 0.0 } else { (1.0 - left as f64 / finding.blocks_now as f64).max(0.0) }
}

/// Marks of a finding's grain so far.
fn marks(finding: &Finding, replay: &Replay) -> u32 {
    match finding.grain {
        GrainName::Microbatch => replay.microbatches(),
        GrainName::Step | GrainName::Tick | GrainName::Iteration => replay.steps(),
    }
}

/// Whether an answer is to be asked for again: the finding has gone on for as long again, and what was said to hold it has as many entries as before.
fn is_stale(finding: &Finding, answer: &Value, replay: &Replay) -> bool {
    let span = |mark: u64| mark.saturating_sub(finding.first_step.into());
    let asked = answer["about"]["asked"]["mark"].as_u64();
    let is_long = asked.is_some_and(|asked| span(marks(finding, replay).into()) >= 2 * span(asked));
    let HeldBy::Found(all) = (if is_long { held_by(finding, replay) } else { HeldBy::NotRun }) else {
        return false;
    };
    all.iter().any(|h| h.stays) || all.first().is_some_and(may_be_ring)
}

/// Whether a holder may only ever have the newest of what was found: it has had as many entries for a while.
fn may_be_ring(h: &Holder) -> bool {
    const WHILE: u32 = 8;
    !h.graph && !h.rebound && h.part.is_none() && h.still() > WHILE
}

/// Addresses of what a finding counts, by lines: what has lived for half of its time, since what is newer may yet go; of many, some of every
/// age; of what is made anew the newest. Of these three in four are taken by their bytes, so that who holds most of the memory holds most of them, and the others by their number,
/// so that what is small is not missed. With the part of the memory that each of them stands for, in parts by bytes.
///
/// What a line allocated in its first mark is asked about only where that is all there is: a workspace of cuBLAS may be among it.
fn blocks(finding: &Finding, replay: &Replay) -> Vec<(u64, u64)> {
    let held = counted(finding, replay);
    let of = |h: &Held| (h.born, h.block.addr.0, mark(finding, h), h.block.size.0, h.site);
    let mut all: Vec<_> = held.map(of).collect();
    all.sort_unstable();
    if finding.is_remade() {
        return all.last().map(|(_, address, ..)| (*address, 1)).into_iter().collect();
    }
    let early = all.partition_point(|(_, _, mark, ..)| *mark <= finding.first_step);
    all.drain(..if all.len() - early >= OLD { early } else { 0 });
    let middle = finding.first_step + marks(finding, replay).saturating_sub(finding.first_step) / 2;
    let old = all.partition_point(|(_, _, mark, ..)| *mark <= middle);
    all.truncate(if old >= OLD { old } else { all.len() });
    // Each line has its part, whatever comes after what in a step.
    all.sort_by_key(|(.., site)| *site);
    let sizes: Vec<u64> = all.iter().map(|(_, _, _, bytes, _)| *bytes).collect();
    spread(&sizes).into_iter().filter_map(|(i, weight)| Some((all.get(i)?.1, weight))).collect()
}

/// Which of blocks of these bytes are asked about, in their order, each with how many of equal parts of all bytes it stands for.
fn spread(sizes: &[u64]) -> Vec<(usize, u64)> {
    /// As many as the job looks up of one finding, by their bytes and by their number.
    const BY_BYTES: u128 = 24;
    const BY_NUMBER: u128 = 8;
    // One of each of equal parts, each time at another place in it: of what comes again and again, such as three blocks of each step, not
    // always the same one must be met.
    let place = |k: u128, parts: u128, whole: u128| (k * 256 + somewhere(k as u64)) * whole / (parts * 256);
    let count = sizes.len() as u128;
    let parts = BY_NUMBER.min(count);
    let mut chosen: BTreeMap<usize, u64> = (0..parts).map(|k| (place(k, parts, count) as usize, 0)).collect();
    let total = sizes.iter().map(|bytes| u128::from(*bytes)).sum::<u128>();
    let (mut sum, mut next) = (0, 0);
    for (i, bytes) in sizes.iter().enumerate() {
        sum += u128::from(*bytes);
        while next < BY_BYTES && place(next, BY_BYTES, total) < sum {
            *chosen.entry(i).or_default() += 1;
            next += 1;
        }
    }
    chosen.into_iter().collect()
}

/// A number below 256 that has no pattern (the mixing of SplitMix64).
fn somewhere(k: u64) -> u128 {
    let mixed = (k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    u128::from(mixed >> 56)
}

/// The mark of a finding's grain in which a block was allocated.
fn mark(finding: &Finding, h: &Held) -> u32 {
    if finding.grain == GrainName::Microbatch { h.microbatch } else { h.step }
}

/// The blocks that a finding counts, without those of the last two marks, where it is not about the newest.
fn counted<'a>(finding: &'a Finding, replay: &'a Replay) -> impl Iterator<Item = &'a Held> + 'a {
    replay.blocks(finding.device).filter(|h| finding.counts(h) && !h.pending && !h.unverified).filter(|h| {
        match finding.grain {
            _ if finding.is_remade() => true,
            GrainName::Microbatch => h.microbatch + 2 <= replay.microbatches(),
            GrainName::Step => h.step + 2 <= replay.steps(),
            GrainName::Tick | GrainName::Iteration => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline::report::Count;

    #[test]
    fn lines_that_led_to_next_to_nothing_are_not_told() {
        let through = [("a.py:9", 1 << 20), ("a.py:3", 700_000), ("a.py:4", 512), ("a.py:9", 0)];
        let told = telling(through.map(|(line, bytes)| (line.to_owned(), bytes)));
        assert_eq!(told, ["a.py:3", "a.py:9"]);
        assert_eq!(telling([("b.py:1".to_owned(), 0)]), ["b.py:1"], "of blocks without a size");
        let many = telling((0..200).map(|i| (format!("c.py:{i}"), 100 + i)));
        assert!(many.len() == 64 && many.contains(&"c.py:199".to_owned()));
    }

    #[test]
    fn blocks_are_asked_about_by_their_bytes_and_some_by_their_number() {
        let half = spread(&[1, 1, 1 << 20, 1 << 20]);
        let weights: Vec<u64> = half.iter().map(|(_, weight)| *weight).collect();
        assert_eq!(weights, [0, 0, 12, 12], "parts of the memory");
        let spread = |sizes: &[u64]| -> Vec<usize> { spread(sizes).into_iter().map(|c| c.0).collect() };
        assert_eq!(spread(&[]), [0usize; 0]);
        assert_eq!(spread(&[512; 5]), [0, 1, 2, 3, 4]);
        let sizes: Vec<u64> = (0..400).map(|i| if i % 8 == 3 { 4 << 20 } else { 4096 }).collect();
        let all = spread(&sizes);
        let large = all.iter().filter(|i| **i % 8 == 3).count();
        assert!(large >= 23 && all.len() - large >= 4 && all.len() <= 32, "{all:?}");
        assert!(spread(&[1 << 30, 1, 1, 1]).contains(&0) && spread(&[1; 4000]).len() >= 24);
        assert_eq!(spread(&[0; 3]), [0, 1, 2], "of blocks without a size");
        for steps in 4..200 {
            let all = spread(&[2u64, 2, 1].repeat(steps));
            let of_each = [0, 1, 2].map(|n| all.iter().filter(|i| *i % 3 == n).count());
            assert!(of_each.iter().all(|n| *n >= 1), "{steps} steps: {of_each:?}");
        }
    }

    #[test]
    fn what_is_established_need_not_wait_for_what_a_job_does_as_it_begins() {
        let (mut asked, began) = (Asked::default(), Instant::now());
        let mut due = |presses, ms| asked.is_due(presses, began + Duration::from_millis(ms));
        assert!(!due(false, 0) && !due(false, 600), "a guess waits");
        assert!(!due(true, 650) && !due(true, 740), "what is established for its like");
        assert!(due(true, 750));
        assert!(!due(false, 800) && due(false, 1_500));
    }

    #[test]
    fn what_has_as_many_entries_as_before_is_asked_about_again() {
        let of = |entries: &[u64]| {
            let count =
                |(i, n): (usize, &u64)| Count { step: Some(8 * i as u32), entries: *n, taken: i as u64 };
            Holder { counts: entries.iter().enumerate().map(count).collect(), ..Holder::default() }
        };
        assert!(may_be_ring(&of(&[16, 24, 24, 24])));
        assert!(!may_be_ring(&of(&[16, 24, 24])), "for a while");
        assert!(!may_be_ring(&of(&[16, 24, 24, 25])));
        assert!(!may_be_ring(&Holder { graph: true, ..of(&[1, 1, 1, 1]) }), "a graph grows unseen");
    }

    #[test]
    fn what_is_not_found_is_asked_again_and_then_let_be() {
        let mut asked = Asked::default();
        let about = json!({ "kind": "step-growth", "device": 0, "sites": ["a:1"] });
        let may = [0; 4].map(|_| {
            let may = asked.may_ask(&about);
            asked.count(&about);
            may
        });
        assert_eq!(may, [true, true, true, false]);
    }
}
