//! What a loop without training steps can be counted by: a place that allocates again and again, until the end.

use crate::event::{Body, Event, Nanos, StackId};
use rustc_hash::FxHashMap;

/// A place must have come so often: a loop of fewer iterations is too short to be judged by them.
const OFTEN: u64 = 24;
/// What came so often may be a loop's.
const FEW: u64 = 3;
/// Between two times at most this part of all allocations from the first to the last.
const APART: u64 = 4;
/// One block in so many that are allocated in the loop is freed there. What only fills, as a model that is loaded, is no loop that computes.
const FREED: u64 = 4;
/// Allocations after the last iteration that are still of it, or of what the job does with its results: at most so many more than
/// two iterations have.
const AFTER: u64 = 64;

/// What the iterations of a loop are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iterations {
    /// Each begins where this stack allocates.
    pub stack: StackId,
    /// Of a job that has trained before: when its last training step ended. What came before is no iteration, and training steps are not counted.
    pub after: Option<Nanos>,
}

/// What the allocations of a job without steps come from, to find the loop that it spends its time in.
#[derive(Clone, Debug, Default)]
pub struct Recurring {
    places: FxHashMap<StackId, Place>,
    allocs: u64,
    frees: u64,
}

/// One stack that allocated.
#[derive(Clone, Copy, Debug)]
struct Place {
    times: u64,
    /// Allocations before the first time, and frees.
    first: (u64, u64),
    /// Those before the last.
    last: (u64, u64),
    /// The most allocations from one time to the next.
    apart: u64,
}

impl Recurring {
    /// Takes the next event.
    pub fn take(&mut self, e: &Event) {
        match &e.body {
            Body::Alloc(b) => {
                let now = (self.allocs, self.frees);
                self.allocs += 1;
                if b.stack == StackId::default() {
                    return;
                }
                let new = Place { times: 0, first: now, last: now, apart: 0 };
                let place = self.places.entry(b.stack).or_insert(new);
                place.times += 1;
                place.apart = place.apart.max(now.0 - place.last.0);
                place.last = now;
            }
            Body::FreeRequested(_) => self.frees += 1,
            _ => {}
        }
    }

    /// The stack whose allocations are taken for the beginnings of iterations: of those that come often enough and evenly enough, until the end, in
    /// a loop that frees what it allocates, the one that comes least often. What comes more often lies in a loop within; what comes only now and then
    /// is an epoch.
    pub fn iteration(&self) -> Option<StackId> {
        let of = self.places.iter().filter(|(_, p)| p.recurs(self.allocs));
        of.min_by_key(|(id, p)| (p.times, p.first, id.0)).map(|(id, _)| *id)
    }

    /// Whether a loop around that may have had a few iterations, too few to be judged by: what is kept in each of those is not seen.
    pub fn has_few_around(&self) -> bool {
        self.places.values().any(|p| (FEW..OFTEN).contains(&p.times) && p.is_even(self.allocs, 2))
    }
}

impl Place {
    /// Whether it comes again and again until the end of so many allocations.
    fn recurs(&self, allocs: u64) -> bool {
        self.times >= OFTEN && self.is_even(allocs, APART)
    }

    /// Whether it comes until the end of so many allocations, never further apart than this part of all between, in a loop that frees.
    fn is_even(&self, allocs: u64, part: u64) -> bool {
        let (span, frees) = (self.last.0 - self.first.0, self.last.1 - self.first.1);
        self.apart <= span / part
            && allocs - self.last.0 <= 2 * self.apart + self.times.min(AFTER)
            && frees >= span / FREED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Block, ThreadId};

    /// The beginnings of iterations in a job whose letters are stacks that allocate; `.` frees.
    fn of(job: &str) -> (Option<char>, bool) {
        let mut all = Recurring::default();
        for c in job.chars() {
            let block = Block { stack: StackId(c as u32), ..Block::default() };
            let body = if c == '.' { Body::FreeRequested(block) } else { Body::Alloc(block) };
            all.take(&Event { time: Nanos(0), thread: ThreadId(0), body });
        }
        (all.iteration().and_then(|id| char::from_u32(id.0)), all.has_few_around())
    }

    #[test]
    fn a_loop_is_counted_by_what_comes_once_in_it() {
        let load = "w".repeat(300);
        for (what, job, want) in [
            ("nothing", String::new(), None),
            ("a loop", format!("{load}{}", "abb..".repeat(40)), Some('a')),
            ("layers of a model have one stack", "abbbbb.....".repeat(30), Some('a')),
            ("a line alone", "a.".repeat(30), Some('a')),
            ("too few", "ab..".repeat(20), None),
            ("epochs are few", format!("e{}", "ab..".repeat(30)).repeat(5), Some('a')),
            ("a model that is loaded is no loop", load.clone(), None),
            ("nor is it where the job goes on", format!("{load}{}", "abcde".repeat(20)), None),
            ("what is done with the results", format!("{}xyz", "ab.".repeat(30)), Some('a')),
            ("another part of the job follows", format!("{}{}", "ab.".repeat(30), "x".repeat(100)), None),
            ("in the first half alone", format!("{}{}", "ab.".repeat(30), "cd.".repeat(30)), Some('c')),
        ] {
            assert_eq!(of(&job).0, want, "{what}");
        }
        assert_eq!(of(&"abbb...".repeat(20)), (Some('b'), true), "layers, in a loop that is too short");
        assert_eq!(of(&format!("{load}{}", "ab..".repeat(40))), (Some('a'), false));
    }

    #[test]
    fn of_a_job_that_has_trained_only_what_comes_after_is_counted() {
        use super::super::{StepMachine, StepSource};
        let mut machine = StepMachine::default();
        machine.count_iterations(Iterations { stack: StackId(7), after: Some(Nanos(50)) });
        let block = Block { stack: StackId(7), ..Block::default() };
        let mut ends = 0;
        for at in (0..100).step_by(5).map(Nanos) {
            for body in [Body::OptimizerBegin(1), Body::OptimizerEnd(1), Body::Alloc(block)] {
                let ended = machine.feed(&Event { time: at, thread: ThreadId(0), body });
                ends += ended.iter().flatten().count();
            }
        }
        assert_eq!((ends, machine.steps(), machine.source()), (10, 10, StepSource::Iteration));
    }
}
