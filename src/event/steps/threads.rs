//! What the machine knows of each thread that trains. Threads that only allocate (prefetchers) never get an
//! entry.

use crate::event::ThreadId;

/// Threads that are remembered at once. Beyond it the one that was added first and is idle makes room.
pub(super) const MAX: usize = 64;

/// One thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Thread {
    pub(super) id: ThreadId,
    /// It has called backward itself (an autograd worker has not).
    pub(super) began: bool,
    /// Backwards it has open.
    pub(super) open: u8,
    /// An optimizer hook fired within its open backward.
    pub(super) hook_in_backward: bool,
    /// Between an optimizer's pre-hook and its post-hook.
    pub(super) in_optimizer: bool,
    /// A backward has ended, and no forward allocation came since.
    pub(super) microbatch_due: bool,
    /// Whose beat its optimizers have begun since its last forward allocation; 0: none have run.
    pub(super) group: u32,
    pub(super) window: Window,
}

/// The name of a group that is no beat.
pub(super) const PART: u32 = u32::MAX;

/// What a thread's backwards have done since an optimizer used them, or a step was skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Window {
    /// Outer backwards that ended.
    pub(super) backwards: u32,
    /// Stacks that called the first and the last of those that began.
    pub(super) first: u32,
    pub(super) last: u32,
    /// Runs of optimizers without a backward since the last one.
    pub(super) parts: u32,
    /// Since an optimizer ran, whatever was skipped meanwhile: backwards, and times that gradients were dropped.
    pub(super) hook_backwards: u32,
    pub(super) hook_drops: u32,
}

impl Window {
    pub(super) fn sites(&self) -> [u32; 2] {
        [self.first, self.last]
    }

    pub(super) fn begin(&mut self, site: u32) {
        if self.backwards == 0 {
            self.first = site;
        }
        self.last = site;
    }

    pub(super) fn end(&mut self) {
        self.backwards = self.backwards.saturating_add(1);
        self.hook_backwards = self.hook_backwards.saturating_add(1);
    }

    /// A step was skipped.
    pub(super) fn skip(&mut self) {
        (self.backwards, self.parts) = (0, 0);
    }
}

/// All of them: few, so a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Threads {
    pub(super) list: Vec<Thread>,
    spare: Thread,
}

impl Threads {
    pub(super) fn find(&mut self, id: ThreadId) -> Option<&mut Thread> {
        self.list.iter_mut().find(|t| t.id == id)
    }

    /// The entry of a thread, made where there is none.
    pub(super) fn get(&mut self, id: ThreadId) -> &mut Thread {
        let at = self.list.iter().position(|t| t.id == id);
        let at = match at {
            Some(i) => i,
            None => {
                if self.list.len() >= MAX {
                    let idle = self.list.iter().position(|t| t.open == 0 && !t.in_optimizer).unwrap_or(0);
                    self.list.remove(idle);
                }
                self.list.push(Thread { id, ..Thread::default() });
                self.list.len() - 1
            }
        };
        // `at` is in range by construction; the spare keeps this free of panics all the same.
        self.list.get_mut(at).unwrap_or(&mut self.spare)
    }

    /// The entry of the thread whose backwards an optimizer on `id` uses: its own, or where it calls none, another's.
    pub(super) fn user(&mut self, id: ThreadId) -> &mut Thread {
        let of = match self.list.iter().find(|t| t.id == id) {
            Some(t) if t.began => id,
            _ => self.list.iter().find(|t| t.window.backwards > 0).map_or(id, |t| t.id),
        };
        self.get(of)
    }

    /// Whether a thread calls backward, so that its own forward allocations will come.
    pub(super) fn trains(&self, id: ThreadId) -> bool {
        self.list.iter().any(|t| t.id == id && t.began)
    }

    /// Whether a thread that trains is neither in a backward nor in an optimizer.
    pub(super) fn is_in_forward(&self, id: ThreadId) -> bool {
        self.list.iter().any(|t| t.id == id && t.open == 0 && !t.in_optimizer)
    }

    /// How many threads have a microbatch that is over but for their next forward allocation. They have it no more.
    pub(super) fn take_microbatches(&mut self) -> u32 {
        self.list.iter_mut().map(|t| u32::from(std::mem::take(&mut t.microbatch_due))).sum()
    }

    pub(super) fn any_due(&self) -> bool {
        self.list.iter().any(|t| t.microbatch_due || t.group != 0)
    }

    /// An optimizer hook fired on `id`: if that was within a backward, that backward remembers it.
    pub(super) fn note_hook_in_backward(&mut self, id: ThreadId) -> bool {
        let own = self.list.iter().position(|t| t.id == id);
        let (open, began) = own.and_then(|i| self.list.get(i)).map_or((0, false), |t| (t.open, t.began));
        let within = if open > 0 {
            own
        } else if began {
            None
        } else {
            self.list.iter().position(|t| t.open > 0)
        };
        match within.and_then(|i| self.list.get_mut(i)) {
            Some(t) => {
                t.hook_in_backward = true;
                true
            }
            None => false,
        }
    }
}
