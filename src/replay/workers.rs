//! Blocks of a cohort by the thread that allocated them: whether each thread has its own, and no more.

use crate::event::ThreadId;

/// Threads of a cohort that are told apart. Where more allocate there, nothing is said of any.
const MOST: usize = 256;
/// Threads from which on they are several that do the same.
const SEVERAL: usize = 3;
/// Steps in which a thread allocates there, of which the fewest blocks that it had are compared. A block of one step may be freed in the next.
const WINDOW: u32 = 4;
/// Such steps in which it makes all that it makes once: a step may end while it does.
const FIRST: u32 = 2;
/// And until it is known what it has left then.
const MADE: u32 = FIRST + WINDOW;
/// The number of all threads that have no ring of their own, those after the fifteenth; and how many of them there may be.
const OTHERS: ThreadId = ThreadId(0);
const MOST_OTHERS: u32 = 49;
/// Threads that must be told apart until the others are taken to be like them.
const ALIKE: usize = 8;

/// A thread that allocates in a cohort.
#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    thread: ThreadId,
    /// Live blocks that it allocated.
    live: u32,
    /// The fewest since the window began, in the window before it, and in the first.
    low: u32,
    before: u32,
    left: u32,
    /// The first and the latest of these steps, and how many there were.
    first: u32,
    last: u32,
    steps: u32,
}

impl Worker {
    fn new(thread: ThreadId, step: u32) -> Worker {
        Worker { thread, first: step, last: step, steps: 1, ..Worker::default() }
    }

    #[inline]
    fn allocates(&mut self, step: u32) {
        if step != self.last {
            if self.steps % WINDOW == FIRST {
                self.before = self.low;
                if self.steps == MADE {
                    self.left = self.low;
                }
                self.low = self.live;
            }
            self.steps += 1;
            self.last = step;
        }
        self.live += 1;
    }

    /// Whether it came again and again: what it makes once is made.
    fn came_again(&self) -> bool {
        self.steps > MADE
    }
}

/// The threads that allocate in a cohort, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Workers {
    /// The only one of most cohorts; without steps: nobody was there yet.
    first: Worker,
    more: Vec<Worker>,
    /// The one of them that was asked for last.
    at: usize,
    /// There are more than are told apart.
    is_crowd: bool,
}

impl Workers {
    #[inline]
    pub(super) fn born(&mut self, thread: ThreadId, step: u32) {
        if let Some(worker) = self.find(thread) {
            return worker.allocates(step);
        }
        let mut worker = Worker::new(thread, step);
        worker.allocates(step);
        if self.first.steps == 0 {
            self.first = worker;
        } else if self.more.len() < MOST {
            self.more.push(worker);
        } else {
            self.is_crowd = true;
        }
    }

    #[inline]
    pub(super) fn gone(&mut self, thread: ThreadId) {
        if let Some(worker) = self.find(thread) {
            worker.live = worker.live.saturating_sub(1);
            worker.low = worker.low.min(worker.live);
        }
    }

    #[inline]
    fn find(&mut self, thread: ThreadId) -> Option<&mut Worker> {
        if self.first.thread == thread {
            return Some(&mut self.first).filter(|worker| worker.steps > 0);
        }
        if self.more.get(self.at).is_none_or(|worker| worker.thread != thread) {
            self.at = self.more.iter().rposition(|worker| worker.thread == thread)?;
        }
        self.more.get_mut(self.at)
    }

    /// Whether what is kept is what each of several threads makes once, such as the workspaces of cuBLAS: those that came again and again left no
    /// more than at first, and most were still at work when the next one came. There is then no more of it than there are threads. A thread for
    /// each task, which leaves something and ends, is no such worker.
    pub fn each_has_its_own(&self) -> bool {
        if self.more.is_empty() {
            return false;
        }
        let ours: Vec<&Worker> = [&self.first].into_iter().chain(&self.more).filter(|w| w.live > 0).collect();
        let came_again = ours.iter().filter(|w| w.came_again()).count();
        let stayed = ours.windows(2).filter(|w| w[0].last > w[1].first).count();
        let most = ours.iter().filter(|w| w.came_again()).map(|w| w.left).max().unwrap_or(0);
        let allowed = |w: &Worker| match w.thread {
            OTHERS if ours.len() > ALIKE => most.saturating_mul(MOST_OTHERS),
            _ => w.left,
        };
        !self.is_crowd
            && ours.len() >= SEVERAL
            && came_again * 2 >= ours.len()
            && ours.iter().all(|w| !w.came_again() || w.before <= allowed(w))
            && stayed * 4 >= (ours.len() - 1) * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that come one after the other, `apart` steps between them, and allocate from then on every step, or for `steps` of them; `keeps`
    /// says how many blocks the thread keeps of the `n`th of its steps.
    fn run(threads: u16, apart: u32, steps: u32, keeps: impl Fn(u32) -> u32) -> Workers {
        let mut all = Workers::default();
        for step in 1..=u32::from(threads) * apart + 10 {
            for thread in 1..=threads {
                let begun = u32::from(thread - 1) * apart;
                let Some(n) = (step - 1).checked_sub(begun).filter(|n| *n < steps) else { continue };
                (0..=keeps(n)).for_each(|_| all.born(ThreadId(thread), step));
                // What it returns is freed.
                all.gone(ThreadId(thread));
            }
        }
        all
    }

    #[test]
    fn what_each_thread_of_a_pool_makes_once_is_its_own() {
        let once = |n| if n == 0 { 2 } else { 0 };
        assert!(run(8, 10, 1000, once).each_has_its_own());
        assert!(!run(2, 10, 1000, once).each_has_its_own(), "two are no pool");
        assert!(!run(8, 10, 10, once).each_has_its_own(), "each ended before the next began");
        assert!(!run(8, 10, 1, once).each_has_its_own(), "a thread for each task");
        assert!(!run(300, 1, 1000, once).each_has_its_own(), "a crowd");
    }

    #[test]
    fn a_block_of_one_step_may_be_freed_in_the_next() {
        let mut all = Workers::default();
        for step in 1..100 {
            let thread = ThreadId(1 + step as u16 % 4);
            if step > 4 && step % 3 == 0 {
                all.gone(thread);
            }
            (0..=u32::from(step <= 4)).for_each(|_| all.born(thread, step));
            if step % 3 != 0 {
                all.gone(thread);
            }
        }
        assert!(all.each_has_its_own());
    }

    #[test]
    fn threads_without_a_number_of_their_own_are_like_the_others() {
        let with = |others: u32| {
            let mut all = run(10, 10, 1000, |n| if n == 0 { 2 } else { 0 });
            (0..others).for_each(|n| (0..=n % 10).for_each(|_| all.born(OTHERS, 200 + n)));
            all
        };
        assert!(with(10).each_has_its_own());
        assert!(!with(100).each_has_its_own());
    }

    #[test]
    fn what_a_thread_leaves_again_is_no_more_its_own() {
        assert!(!run(8, 10, 1000, |n| u32::from(n % 20 == 0)).each_has_its_own());
        assert!(
            !run(8, 10, 1000, |n| u32::from(n == 0 || n == 60)).each_has_its_own(),
            "the first has left a second one"
        );
        assert!(!run(8, 10, 1000, |_| 1).each_has_its_own());
        assert!(!run(8, 10, 1000, |_| 0).each_has_its_own(), "nothing is kept");
    }
}
