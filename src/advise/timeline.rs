//! What was allocated on a device from moment to moment, and when its larger blocks came and went.

use crate::event::{Block, Body, DeviceId, Event, Item, Names, Phase, SiteId, StackId, ThreadId};
use crate::replay::Replay;
use rustc_hash::FxHashMap;

/// A moment: the number of an event that mattered (a larger block, or a [`Mark`]), and what followed until the next one.
pub type Time = u32;

/// The end of a block that was not freed.
pub const NEVER: Time = Time::MAX;

/// Moments that are kept: beyond them a timeline goes on with the last one.
const MOST: usize = 1 << 25;

/// A block that was large enough to matter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Life {
    /// Bytes that were asked for.
    pub size: u64,
    /// Bytes that it took.
    pub rounded: u64,
    /// Its line.
    pub site: SiteId,
    /// Its stack.
    pub stack: StackId,
    /// Who allocated it.
    pub thread: ThreadId,
    /// When it was allocated.
    pub born: Time,
    /// When it was freed, or [`NEVER`].
    pub died: Time,
    /// What its thread did then.
    pub born_in: Phase,
    /// What the thread did that freed it.
    pub died_in: Phase,
    /// Events were lost while it lived, so that its end is not known.
    pub lost: bool,
}

/// Something of a step that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// An outermost backward begins.
    Backward,
    /// It has ended.
    BackwardEnd,
    /// An optimizer's step begins.
    Optimizer,
    /// It has ended.
    OptimizerEnd,
}

/// A block that is left out from one moment until before another, or so many bytes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// From this moment on.
    pub from: Time,
    /// Until before this one.
    pub to: Time,
    /// Bytes.
    pub bytes: u64,
}

/// A device from the first event to the last.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Which device.
    pub device: DeviceId,
    /// The most that was allocated within each moment.
    pub tops: Vec<u64>,
    /// Its larger blocks, in the order in which they came.
    pub lives: Vec<Life>,
    /// When each sort of [`Mark`] came, in order.
    pub(super) marks: [Vec<Time>; 4],
    /// The optimizers that made steps.
    pub optimizers: Vec<u64>,
    /// Events are missing: more may be true than is seen.
    pub partial: bool,
}

impl Timeline {
    /// The most that was allocated, and when first.
    pub fn peak(&self) -> (u64, Time) {
        let most = self.tops.iter().copied().max().unwrap_or(0);
        (most, self.tops.iter().position(|t| *t == most).unwrap_or(0) as Time)
    }

    /// The most that would have been allocated without some blocks.
    pub fn peak_without(&self, cuts: &[Cut]) -> u64 {
        let mut change = vec![0i128; self.tops.len() + 1];
        for c in cuts.iter().filter(|c| c.from < c.to) {
            let at = |t: Time| (t as usize).min(self.tops.len());
            change[at(c.from)] += i128::from(c.bytes);
            change[at(c.to)] -= i128::from(c.bytes);
        }
        let mut gone = 0;
        let left = self.tops.iter().zip(change).map(|(top, change)| {
            gone += change;
            (i128::from(*top) - gone).max(0)
        });
        left.max().unwrap_or(0) as u64
    }

    /// The first mark of this sort after a moment, and when.
    pub fn next(&self, mark: Mark, after: Time) -> Option<Time> {
        let all = &self.marks[mark as usize];
        all.get(all.partition_point(|t| *t <= after)).copied()
    }

    /// The last mark of this sort before a moment, and when.
    pub fn last(&self, mark: Mark, before: Time) -> Option<Time> {
        let all = &self.marks[mark as usize];
        all[..all.partition_point(|t| *t < before)].last().copied()
    }

    /// When the last mark of any sort came.
    pub fn last_of_all(&self) -> Option<Time> {
        self.marks.iter().filter_map(|all| all.last()).max().copied()
    }

    /// Whether there is a mark of this sort after one moment and before another.
    pub fn between(&self, mark: Mark, after: Time, before: Time) -> bool {
        self.next(mark, after).is_some_and(|t| t < before)
    }
}

impl Life {
    /// The cut that leaves it out from a moment on.
    pub fn from(&self, from: Time) -> Cut {
        Cut { from: from.max(self.born), to: self.died, bytes: self.rounded }
    }

    /// It was allocated outside of backward and optimizer.
    pub fn is_forward(&self) -> bool {
        !self.born_in.backward && !self.born_in.optimizer
    }

    /// It lived at a moment.
    pub fn is_alive(&self, at: Time) -> bool {
        self.born <= at && at < self.died
    }
}

/// Makes timelines out of items, the same ones in the same order as the first pass.
#[derive(Debug)]
pub struct Pass {
    replay: Replay,
    tracks: Vec<Track>,
}

/// The timeline of a device, while it is made.
#[derive(Debug)]
struct Track {
    timeline: Timeline,
    /// Bytes of a block that matters.
    least: u64,
    /// Blocks that live, by address.
    open: FxHashMap<u64, usize>,
}

impl Pass {
    /// A pass over these devices, each with the size from which on a block matters.
    pub fn new(devices: impl IntoIterator<Item = (DeviceId, u64)>) -> Pass {
        let track = |(device, least)| Track {
            timeline: Timeline { device, ..Timeline::default() },
            least,
            open: FxHashMap::default(),
        };
        Pass { replay: Replay::new(), tracks: devices.into_iter().map(track).collect() }
    }

    /// Takes the next item.
    pub fn apply(&mut self, item: &Item, names: &Names) {
        self.replay.apply(item, names);
        match item {
            Item::Event(e) => self.tracks.iter_mut().for_each(|t| t.event(e, &self.replay)),
            Item::Dropped(_) => self.tracks.iter_mut().for_each(Track::lose),
            _ => {}
        }
    }

    /// The timelines, and the state at the end: the sites of lives are its own.
    pub fn finish(self) -> (Replay, Vec<Timeline>) {
        (self.replay, self.tracks.into_iter().map(|t| t.timeline).collect())
    }
}

impl Track {
    fn event(&mut self, e: &Event, replay: &Replay) {
        let device = self.timeline.device;
        let Some(now) = replay.device(device).map(|d| d.allocated.0) else { return };
        let mark = match &e.body {
            Body::Alloc(b) if b.device == device => return self.alloc(e, b, now, replay),
            Body::FreeRequested(b) if b.device == device => match self.open.remove(&b.addr.0) {
                Some(life) => {
                    let at = self.moment(now);
                    let life = &mut self.timeline.lives[life];
                    (life.died, life.died_in) = (at, b.phase);
                    return;
                }
                None => None,
            },
            Body::BackwardBegin { nested: false, .. } => Some(Mark::Backward),
            Body::BackwardEnd { nested: false } => Some(Mark::BackwardEnd),
            Body::OptimizerBegin(n) => {
                if !self.timeline.optimizers.contains(n) {
                    self.timeline.optimizers.push(*n);
                }
                Some(Mark::Optimizer)
            }
            Body::OptimizerEnd(_) => Some(Mark::OptimizerEnd),
            Body::Gap { .. } => {
                self.lose();
                None
            }
            _ => None,
        };
        match mark {
            Some(mark) => {
                let at = self.moment(now);
                self.timeline.marks[mark as usize].push(at);
            }
            None => self.goes_on(now),
        }
    }

    fn alloc(&mut self, e: &Event, b: &Block, now: u64, replay: &Replay) {
        let Some(held) = replay.block(b.device, b.addr).filter(|h| h.block.rounded.0 >= self.least) else {
            return self.goes_on(now);
        };
        let at = self.moment(now);
        let life = Life {
            size: b.size.0,
            rounded: held.block.rounded.0,
            site: held.site,
            stack: b.stack,
            thread: e.thread,
            born: at,
            died: NEVER,
            born_in: b.phase,
            died_in: Phase::default(),
            lost: false,
        };
        if let Some(old) = self.open.insert(b.addr.0, self.timeline.lives.len()) {
            (self.timeline.lives[old].died, self.timeline.lives[old].lost) = (at, true);
        }
        self.timeline.lives.push(life);
    }

    /// A moment begins; its number.
    fn moment(&mut self, now: u64) -> Time {
        if self.timeline.tops.len() < MOST {
            self.timeline.tops.push(now);
        } else {
            self.goes_on(now);
        }
        (self.timeline.tops.len() - 1) as Time
    }

    /// Something small happened.
    fn goes_on(&mut self, now: u64) {
        match self.timeline.tops.last_mut() {
            Some(top) => *top = now.max(*top),
            None => self.timeline.tops.push(now),
        }
    }

    /// Events are missing: when what lives now was freed is not known.
    fn lose(&mut self) {
        self.timeline.partial = true;
        for (_, life) in self.open.drain() {
            self.timeline.lives[life].lost = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mark_of_a_sort_is_found_among_others() {
        let marks = [vec![2, 8], vec![4, 9], vec![5], vec![]];
        let timeline = Timeline { marks, ..Timeline::default() };
        let next = |mark, after| timeline.next(mark, after);
        assert_eq!((next(Mark::Backward, 1), next(Mark::Backward, 2)), (Some(2), Some(8)));
        assert_eq!((next(Mark::BackwardEnd, 9), next(Mark::OptimizerEnd, 0)), (None, None));
        let last = |mark, before| timeline.last(mark, before);
        assert_eq!((last(Mark::Backward, 8), last(Mark::Backward, 9)), (Some(2), Some(8)));
        assert_eq!((last(Mark::Optimizer, 5), last(Mark::OptimizerEnd, 9)), (None, None));
        assert!(timeline.between(Mark::Optimizer, 4, 6) && !timeline.between(Mark::Optimizer, 5, 6));
        assert_eq!((timeline.last_of_all(), Timeline::default().last_of_all()), (Some(9), None));
    }
}
