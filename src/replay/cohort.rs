//! Cohorts: blocks of one device, stream and call site, and how many of them grow old.

use super::births::Births;
use super::remade::Remade;
use super::series::{Point, Series};
use super::workers::Workers;
use crate::event::{DeviceId, SiteId, StreamId, ThreadId};
use rustc_hash::FxHashMap;

/// Index of a cohort in [`super::Replay::cohorts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CohortId(pub u32);

/// What blocks of a cohort have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct CohortKey {
    /// Device.
    pub device: DeviceId,
    /// The stream they were allocated on.
    pub stream: StreamId,
    /// The line that allocated them.
    pub site: SiteId,
    /// They lie in the pool of a graph capture or of a `MemPool`.
    pub private_pool: bool,
    /// An optimizer allocated them: a line that calls `step()` in PyTorch's own files is that of the batch, too.
    pub optimizer: bool,
}

/// Stands in a [`CohortKey`] for all side streams of a line that makes a new one again and again: PyTorch hands out 32 in turn, and what such
/// a line leaves behind would be a little on each.
pub const SEVERAL: StreamId = StreamId(u32::MAX);
/// Side streams of a line that are told apart. Where it comes to more they are one.
const STREAMS: usize = 4;

/// A cohort.
#[derive(Clone, Debug, Default)]
pub struct Cohort {
    /// What its blocks have in common.
    pub key: CohortKey,
    /// Allocations so far.
    pub allocs: u64,
    /// Frees so far.
    pub frees: u64,
    /// Allocations that an optimizer made: state that appears when a parameter is first stepped, and stays.
    pub in_optimizer: u64,
    /// Allocations and frees up to the last mark of either grain.
    pub at_mark: (u64, u64),
    /// The first allocation since the last mark of either grain came before any was freed, while others lived.
    pub beside: bool,
    /// Live now (not freed, not unverified).
    pub live: Point,
    /// Bytes that were requested of what is live.
    requested: u64,
    /// The threads that allocate them.
    pub workers: Workers,
    /// Old blocks by step.
    pub steps: Track,
    /// Old blocks by microbatch.
    pub microbatches: Track,
    active: bool,
    /// Birth steps of the blocks that a checkpoint had.
    births: Vec<(u32, u64)>,
}

/// Marks before a checkpoint that are told from its blocks.
const REMEMBERED: u32 = 4096;

/// Marks a block must live through after the one that ends its own step, before it counts as old.
pub const GRACE: u32 = 2;

/// Fewer blocks by more than one in so many are another number; of so many blocks or more, one fewer is not.
const SETTLED: u64 = 16;
const SEVERAL_BLOCKS: u64 = 4;

/// How many fewer blocks than so many are the same number.
pub fn settles(most: u64) -> u64 {
    (most / SETTLED).max(u64::from(most >= SEVERAL_BLOCKS))
}

/// Old blocks that the collector must have freed before they are called its own.
const CYCLES: u64 = 4;
/// And how often: what is freed once may be a job's end.
const COLLECTIONS: u32 = 2;

/// Old blocks of a cohort at the marks of one grain. A block is old at a mark once [`GRACE`] further marks
/// have passed since the end of the step (or microbatch) it was born in.
#[derive(Clone, Debug, Default)]
pub struct Track {
    /// Old blocks at each mark.
    pub series: Series,
    /// Old blocks now (as of the last mark, less what was freed since).
    pub old: Point,
    /// Old blocks exactly at the last mark.
    pub at_mark: Point,
    /// Old blocks that were freed up to the last mark: what is kept for ever does not die of age, what waits in a
    /// queue does.
    pub died_old: Point,
    /// Those of them that Python's collector freed ([`crate::event::Phase::collector`]).
    pub collected_old: Point,
    /// The most that it freed of them between two marks.
    pub collected_at_once: Point,
    /// Between how many marks and their next ones it freed any.
    pub collections: u32,
    /// Points up to this mark were told from the births of blocks that a checkpoint had, so they are floors;
    /// 0: none were.
    pub remembered: u32,
    /// The mark before the step (or microbatch) in which an old block was freed last, as of the last mark.
    pub last_death: u32,
    /// The age of the oldest block that was freed up to the last mark, in marks.
    pub longest_life: u32,
    /// When the old blocks that live were born, and those that will be old at the next mark, as of the last mark.
    pub births: Births,
    /// Blocks of whatever age that are made anew, and larger or more of them each time, as of the last mark.
    pub remade: Remade,
    /// Between how many marks and their next ones old blocks were freed.
    pub ends: u32,
    /// The mark since which there were no more blocks of whatever age than then, nor fewer but for a sixteenth (or one, of four blocks or
    /// more: a variable may still hold the newest): what comes takes the place of what goes. And how many those were.
    pub settled: (u32, u64),
    /// Births of old blocks that were freed since.
    gone: Vec<(u32, Point)>,
    /// As of now: what died of old age, how much of it in the collector, when, and how old.
    deaths: (Point, Point, u32, u32),
    /// Live blocks that are too young, by birth: in the step that runs, in the one before.
    young: [Point; GRACE as usize],
}

impl Track {
    #[inline]
    fn bucket(&mut self, age: u32) -> &mut Point {
        self.young.get_mut(age as usize).unwrap_or(&mut self.old)
    }

    #[inline]
    fn gone(&mut self, p: Point, born: u32, now: u32, freed: Option<bool>) {
        let age = now.saturating_sub(born);
        self.bucket(age).sub(p);
        if age >= GRACE {
            self.gone.push((born, p));
        }
        let (true, Some(collected)) = (age >= GRACE, freed) else { return };
        self.deaths.0.add(p);
        self.deaths.2 = now.saturating_sub(1);
        self.deaths.3 = self.deaths.3.max(age);
        if collected {
            self.deaths.1.add(p);
        }
    }

    /// Whether most of what died old was freed by Python's collector: reference cycles kept it.
    pub fn is_cycle_garbage(&self) -> bool {
        self.collections >= COLLECTIONS
            && self.collected_old.blocks >= CYCLES
            && self.collected_old.blocks * 2 > self.died_old.blocks
    }

    /// `requested`: bytes of all live blocks of the cohort.
    fn mark(&mut self, mark: u32, requested: u64) {
        self.at_mark = self.old;
        let mut at_once = self.deaths.1;
        at_once.sub(self.collected_old);
        self.collections += u32::from(at_once.blocks > 0);
        if at_once.bytes > self.collected_at_once.bytes {
            self.collected_at_once = at_once;
        }
        self.ends += u32::from(self.deaths.0 != self.died_old);
        (self.died_old, self.collected_old, self.last_death, self.longest_life) = self.deaths;
        if self.old != Point::default() || self.series.last_mark() != 0 {
            self.series.push(mark, self.old);
        }
        if !self.gone.is_empty() {
            self.births.remove(&self.gone);
            self.gone.clear();
        }
        let mut live = self.old;
        self.young.iter().for_each(|p| live.add(*p));
        self.remade.see(mark, Point { bytes: requested, ..live });
        let (_, most) = self.settled;
        if live.blocks > most || live.blocks < most - settles(most) {
            self.settled = (mark, live.blocks);
        }
        self.births.add(mark.saturating_sub(1), self.young[1]);
        self.old.add(self.young[1]);
        self.young = [Point::default(), self.young[0]];
    }

    fn is_idle(&self) -> bool {
        self.old == Point::default()
            && self.at_mark == Point::default()
            && self.young == [Point::default(); 2]
    }
}

/// Bytes of a block. The allocator does not split what is left of a block of its large pool where that is less than 1 MiB: of two requests
/// the larger one may get the smaller block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// That it takes.
    pub(super) rounded: u64,
    /// That were requested.
    pub(super) requested: u64,
}

impl Size {
    /// What takes as much as was requested.
    pub(super) fn exact(bytes: u64) -> Size {
        Size { rounded: bytes, requested: bytes }
    }
}

/// Steps and microbatches that run now (from 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Now {
    pub(super) step: u32,
    pub(super) microbatch: u32,
}

/// When, and by which thread, a block was allocated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Origin {
    pub(super) step: u32,
    pub(super) microbatch: u32,
    pub(super) thread: ThreadId,
}

/// All cohorts.
#[derive(Clone, Debug, Default)]
pub(super) struct Cohorts {
    pub(super) list: Vec<Cohort>,
    by_key: FxHashMap<CohortKey, CohortId>,
    /// The keys of lines on side streams, by the key that they would have in common.
    on_side: FxHashMap<CohortKey, Vec<CohortKey>>,
    /// Cohorts whose tracks must be asked at marks.
    active: Vec<u32>,
    last: Option<(CohortKey, CohortId)>,
}

impl Cohorts {
    /// The cohort of a key; `is_side`: its stream is not the default one.
    #[inline]
    pub(super) fn id(&mut self, key: CohortKey, is_side: bool) -> CohortId {
        if let Some((k, id)) = self.last
            && k == key
        {
            return id;
        }
        let id = self.by_key.get(&key).copied().unwrap_or_else(|| self.first(key, is_side));
        self.last = Some((key, id));
        id
    }

    /// A key is seen first.
    #[cold]
    fn first(&mut self, key: CohortKey, is_side: bool) -> CohortId {
        let shared = CohortKey { stream: SEVERAL, ..key };
        let mut id = self.by_key.get(&shared).copied().filter(|_| is_side);
        if is_side && id.is_none() {
            let keys = self.on_side.entry(shared).or_default();
            keys.push(key);
            if keys.len() > STREAMS {
                // What comes on the streams before is of the same line, too.
                let keys = std::mem::take(keys);
                let all = self.make(shared);
                self.by_key.extend(keys.into_iter().chain([shared]).map(|k| (k, all)));
                return all;
            }
        }
        let id = *id.get_or_insert_with(|| self.make(key));
        self.by_key.insert(key, id);
        id
    }

    fn make(&mut self, key: CohortKey) -> CohortId {
        self.list.push(Cohort { key, ..Cohort::default() });
        CohortId((self.list.len() - 1) as u32)
    }

    #[inline]
    pub(super) fn born(&mut self, id: CohortId, size: Size, by: (ThreadId, Now), in_optimizer: bool) {
        let Some(c) = self.list.get_mut(id.0 as usize) else { return };
        if c.allocs == c.at_mark.0 {
            c.beside = c.frees == c.at_mark.1 && c.live.blocks > 0;
        }
        c.allocs += 1;
        c.workers.born(by.0, by.1.step);
        c.in_optimizer += u64::from(in_optimizer);
        let p = Point::block(size.rounded);
        c.live.add(p);
        c.requested = c.requested.saturating_add(size.requested);
        c.steps.young[0].add(p);
        c.microbatches.young[0].add(p);
        if !c.active {
            c.active = true;
            self.active.push(id.0);
        }
    }

    /// A live block leaves its cohort; `freed`: by its owner (else it became unverified), and whether in Python's collector.
    #[inline]
    pub(super) fn gone(&mut self, id: CohortId, size: Size, born: Origin, now: Now, freed: Option<bool>) {
        let Some(c) = self.list.get_mut(id.0 as usize) else { return };
        c.workers.gone(born.thread);
        c.frees += u64::from(freed.is_some());
        let p = Point::block(size.rounded);
        c.live.sub(p);
        c.requested = c.requested.saturating_sub(size.requested);
        c.steps.gone(p, born.step, now.step, freed);
        c.microbatches.gone(p, born.microbatch, now.microbatch, freed);
    }

    /// A block's rounded size became known late.
    pub(super) fn resized(&mut self, id: CohortId, old: u64, new: u64, born: Origin, now: Now) {
        let Some(c) = self.list.get_mut(id.0 as usize) else { return };
        let fix = |p: &mut Point| p.bytes = p.bytes.saturating_sub(old).saturating_add(new);
        fix(&mut c.live);
        fix(c.steps.bucket(now.step.saturating_sub(born.step)));
        fix(c.microbatches.bucket(now.microbatch.saturating_sub(born.microbatch)));
    }

    pub(super) fn mark_step(&mut self, step: u32) {
        for &i in &self.active {
            let c = &mut self.list[i as usize];
            c.steps.mark(step, c.requested);
            c.at_mark = (c.allocs, c.frees);
        }
        let list = &mut self.list;
        self.active.retain(|&i| {
            let c = &mut list[i as usize];
            c.active = c.live != Point::default() || !c.steps.is_idle() || !c.microbatches.is_idle();
            c.active
        });
    }

    pub(super) fn mark_microbatch(&mut self, n: u32) {
        for &i in &self.active {
            let c = &mut self.list[i as usize];
            c.microbatches.mark(n, c.requested);
            c.at_mark = (c.allocs, c.frees);
        }
    }

    /// Forgets ages and, by step, the series from mark `step` on; live blocks are put back one by one.
    pub(super) fn forget_steps(&mut self, step: u32) {
        for c in &mut self.list {
            c.steps.series.truncate(step);
            let series = std::mem::take(&mut c.steps.series);
            c.steps = Track { series, ..Track::default() };
        }
    }

    /// One that was born in step `born`, when step `now` is about to end.
    pub(super) fn put_back_step(&mut self, id: CohortId, rounded: u64, born: u32, now: u32) {
        if let Some(c) = self.list.get_mut(id.0 as usize) {
            let (p, age) = (Point::block(rounded), now.saturating_sub(born));
            c.steps.bucket(age).add(p);
            if age >= GRACE {
                c.steps.births.add(born, p);
            }
        }
    }

    /// The series up to `step` as far as the blocks of a checkpoint tell it: what lived then, at the marks it
    /// had outlived.
    pub(super) fn remember(&mut self, step: u32) {
        for c in &mut self.list {
            let mut births = std::mem::take(&mut c.births);
            births.sort_unstable();
            let Some(first) = births.first().map(|b| b.0.saturating_add(GRACE)) else { continue };
            let mut p = Point::default();
            let mut rest = births.iter().peekable();
            for mark in first.max(step.saturating_sub(REMEMBERED))..=step {
                while let Some((_, bytes)) = rest.next_if(|b| b.0.saturating_add(GRACE) <= mark) {
                    p.add(Point::block(*bytes));
                }
                c.steps.series.push(mark, p);
            }
            c.steps.at_mark = p;
            c.steps.remembered = step;
            // Blocks of the last step but one are old from the next mark on.
            for (born, bytes) in births.iter().take_while(|b| b.0 < step) {
                c.steps.births.add(*born, Point::block(*bytes));
            }
        }
    }

    /// A live block out of a checkpoint.
    pub(super) fn restore(&mut self, id: CohortId, size: Size, born: Origin, now: Now, in_optimizer: bool) {
        self.born(id, size, (born.thread, now), in_optimizer);
        let rounded = size.rounded;
        if let Some(c) = self.list.get_mut(id.0 as usize) {
            c.births.push((born.step, rounded));
            let p = Point::block(rounded);
            c.steps.young[0].sub(p);
            c.microbatches.young[0].sub(p);
            c.steps.bucket(now.step.saturating_sub(born.step)).add(p);
            c.microbatches.bucket(now.microbatch.saturating_sub(born.microbatch)).add(p);
        }
    }
}
