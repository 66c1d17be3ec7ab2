//! Where a step ends: a pure machine over events, used by whoever must tag blocks with their step.
//!
//! Raw facts come in (optimizer hooks, backward calls, scaler updates, manual marks, allocations); ends of
//! steps and of microbatches come out. See [`StepMachine`].

mod rounds;
mod save;
#[cfg(test)]
mod tests;
mod threads;

use super::{Body, Event, Nanos, ThreadId};
use rounds::Rounds;
use threads::Threads;

/// What steps are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum StepSource {
    /// Nothing that could be counted was seen.
    #[default]
    None,
    /// Ticks of time.
    Time,
    /// Ends of backward.
    Backward,
    /// Optimizer hooks.
    Optimizer,
    /// `strandline_step`.
    Manual,
}

impl StepSource {
    /// What a job is counted in, for sentences: one without steps goes by seconds, and says so.
    pub fn noun(self) -> &'static str {
        if self == StepSource::Time { "second" } else { "step" }
    }
}

/// What the machine says after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// Step `n` (from 1) ended just *before* the event that was fed. Where `n` is not greater than the last
    /// step that was announced, the steps from `n` on were one step: they are folded into `n`.
    Step {
        /// Which.
        n: u32,
        /// How it is known.
        source: StepSource,
    },
    /// Microbatch `n` (from 1) ended just before the event that was fed.
    Microbatch(u32),
}

/// Length of a tick in a job that has neither optimizer nor backward.
pub const TICK: Nanos = Nanos(1_000_000_000);
/// Ticks or backwards that may still turn out to be one first step. Beyond it the job has shown another shape
/// for so long that folding would destroy more than it repairs; numbering then goes on.
const FOLD_LIMIT: u32 = 4096;
/// Steps with the same number of backwards after which one backward more than that means that a step was
/// skipped.
const ALIKE: u32 = 3;
/// Runs of an optimizer after one backward beyond which they are taken for steps of a job whose backward is not
/// seen (a replayed graph), not for parts of one step.
const PARTS: u32 = 256;

/// What a run of an optimizer is when no backward has ended since the last step. The first step decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Repeated {
    /// There was none so far.
    #[default]
    Never,
    /// There were some in what has been counted so far; the next backward tells.
    Undecided,
    /// A step.
    Step,
    /// A part of the step before: sub-groups that allocate between their runs.
    Part,
}

/// The machine. Bounded in memory whatever comes in, and it never fails.
///
/// A step ends at the first *forward allocation* (neither in backward nor in an optimizer) of the thread
/// whose optimizer has run: what an optimizer and `zero_grad` free still belongs to the step. Rules:
///
/// - Hooks with no forward allocation between them are one step (ZeRO sub-groups, Muon + AdamW). Where the first
///   backward is followed by several runs that do allocate, and then by a backward, that is one step as well
///   (ZeRO-3).
/// - Hooks inside a backward end nothing; the end of that backward stands for them.
/// - Optimizers that take turns: the one that steps least often, within a factor of 8, ends the step.
/// - A scaler's update after a backward without an optimizer hook is a skipped step, and counts. Without
///   scaler events, one backward more than every recent step had tells the same, a little later.
/// - Optimizers that run before the first backward prepare their state; that is part of step 1.
/// - No optimizer yet: ends of backward; no backward yet: ticks of a second. Both are provisional, and folded
///   into step 1 when the better source appears.
/// - The first manual step turns all of this off, and folds what was before into step 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepMachine {
    steps: u32,
    microbatches: u32,
    source: StepSource,
    threads: Threads,
    rounds: Rounds,
    /// An optimizer (or a scaler) decides from now on; the next announcement is due to it.
    optimizer_mode: bool,
    /// The next step is number 1 again.
    fold: bool,
    /// A step has ended but for the next forward allocation of this thread.
    due: Option<ThreadId>,
    /// Something is due at a forward allocation: the one flag an allocation has to test.
    armed: bool,
    scaler_seen: bool,
    backward_seen: bool,
    repeated: Repeated,
    /// Outer backwards that ended since the last step.
    backwards: u32,
    /// An optimizer hook fired since the last step.
    hooked: bool,
    /// Backwards per step in the last `alike` steps.
    usual: u32,
    alike: u32,
    next_tick: Option<Nanos>,
}

impl StepMachine {
    /// Feeds the next event in order; at most one step and one microbatch end before it.
    #[inline]
    pub fn feed(&mut self, e: &Event) -> [Option<Boundary>; 2] {
        match &e.body {
            Body::Alloc(b) if self.armed => {
                if b.phase.backward || b.phase.optimizer {
                    [None, None]
                } else {
                    self.forward(e.thread)
                }
            }
            Body::OptimizerBegin(_)
            | Body::OptimizerEnd(_)
            | Body::BackwardBegin { .. }
            | Body::BackwardEnd { .. }
            | Body::ScalerUpdate
            | Body::ManualStep(_) => self.mark(e),
            _ if matches!(self.source, StepSource::None | StepSource::Time) => self.tick(e.time),
            _ => [None, None],
        }
    }

    fn mark(&mut self, e: &Event) -> [Option<Boundary>; 2] {
        match e.body {
            Body::OptimizerBegin(_) => self.threads.get(e.thread).in_optimizer = true,
            Body::OptimizerEnd(id) => self.optimizer_end(id, e.thread),
            Body::BackwardBegin { nested: false, .. } => return self.backward_begin(e.thread),
            Body::BackwardEnd { nested: false } => self.backward_end(e.thread),
            Body::ScalerUpdate => self.scaler_update(e.thread),
            Body::ManualStep(_) => return [Some(self.manual()), None],
            _ => {}
        }
        [None, None]
    }

    /// A forward allocation of `thread`, or something else that only happens when the last step is over.
    fn forward(&mut self, thread: ThreadId) -> [Option<Boundary>; 2] {
        let Some(t) = self.threads.find(thread) else { return [None, None] };
        let micro = std::mem::take(&mut t.microbatch_due);
        t.group = 0;
        let microbatch = micro.then(|| {
            self.microbatches = self.microbatches.saturating_add(1);
            Boundary::Microbatch(self.microbatches)
        });
        let ends = match self.source {
            StepSource::Manual => false,
            _ if self.optimizer_mode => self.due.is_some_and(|d| d == thread || !self.threads.trains(d)),
            _ => micro,
        };
        let step = ends.then(|| self.announce());
        self.rearm();
        [step, microbatch]
    }

    fn announce(&mut self) -> Boundary {
        let source = if self.optimizer_mode { StepSource::Optimizer } else { StepSource::Backward };
        if self.source == StepSource::Time {
            self.fold = self.steps <= FOLD_LIMIT;
        }
        if self.backwards > 0 && self.backwards == self.usual {
            self.alike = self.alike.saturating_add(1);
        } else {
            (self.usual, self.alike) = (self.backwards, 1);
        }
        let repeated = self.optimizer_mode && self.backward_seen && self.backwards == 0;
        (self.source, self.backwards, self.hooked, self.due) = (source, 0, false, None);
        let boundary = self.number();
        if repeated && self.steps > 1 && self.repeated == Repeated::Never {
            self.repeated = Repeated::Undecided;
        }
        boundary
    }

    fn number(&mut self) -> Boundary {
        if std::mem::take(&mut self.fold) {
            self.steps = 0;
        }
        self.steps = self.steps.saturating_add(1);
        Boundary::Step { n: self.steps, source: self.source }
    }

    fn rearm(&mut self) {
        self.armed = self.due.is_some() || self.threads.any_due();
    }

    fn optimizer_end(&mut self, id: u64, thread: ThreadId) {
        if self.threads.note_hook_in_backward(thread) {
            return;
        }
        self.threads.get(thread).in_optimizer = false;
        self.optimizer_ran(id, thread);
    }

    /// An optimizer has done its work for now: its hook, or the end of a backward within which hooks fired.
    fn optimizer_ran(&mut self, id: u64, thread: ThreadId) {
        if self.source == StepSource::Manual || (self.repeated == Repeated::Part && self.backwards == 0) {
            return;
        }
        self.enter_optimizer_mode();
        self.hooked = true;
        let group = &mut self.threads.get(thread).group;
        let heard = self.rounds.hook(id, group);
        if heard.new_marker && self.source == StepSource::Optimizer && self.steps <= rounds::RARE {
            self.fold = self.steps > 0;
        }
        if heard.ends_round {
            self.due = Some(thread);
        }
        self.rearm();
    }

    fn enter_optimizer_mode(&mut self) {
        if !std::mem::replace(&mut self.optimizer_mode, true) {
            self.fold = self.steps > 0 && self.steps <= FOLD_LIMIT;
            (self.usual, self.alike) = (0, 0);
        }
    }

    fn backward_begin(&mut self, thread: ThreadId) -> [Option<Boundary>; 2] {
        // A job whose forward allocates nothing still ends its steps here.
        let mut out = if self.armed { self.forward(thread) } else { [None, None] };
        let t = self.threads.get(thread);
        let in_optimizer = t.in_optimizer;
        t.began = true;
        t.open = t.open.saturating_add(1);
        let one_too_many = self.optimizer_mode
            && self.source == StepSource::Optimizer
            && !self.scaler_seen
            && !self.hooked
            && !in_optimizer
            && self.alike >= ALIKE
            && self.backwards > 0
            && self.backwards == self.usual;
        let parts = !in_optimizer && self.decide_repeated();
        self.fold |= parts;
        if (one_too_many || parts) && out[0].is_none() {
            out[0] = Some(self.announce());
            self.rearm();
        }
        out
    }

    /// A backward begins after the first step: what runs without one are. Whether the steps so far were parts of one.
    fn decide_repeated(&mut self) -> bool {
        if !self.backward_seen || self.source != StepSource::Optimizer || self.steps == 0 {
            return false;
        }
        self.repeated = match self.repeated {
            Repeated::Undecided if self.steps <= PARTS => {
                self.repeated = Repeated::Part;
                return true;
            }
            Repeated::Never | Repeated::Undecided => Repeated::Step,
            decided => decided,
        };
        false
    }

    fn backward_end(&mut self, thread: ThreadId) {
        let t = self.threads.get(thread);
        t.open = t.open.saturating_sub(1);
        t.microbatch_due = true;
        let hooked = std::mem::take(&mut t.hook_in_backward);
        self.backwards = self.backwards.saturating_add(1);
        self.armed = true;
        // Optimizers that ran before any backward made their state (a restored checkpoint, a warm-up): no
        // steps.
        if !std::mem::replace(&mut self.backward_seen, true) && self.source == StepSource::Optimizer {
            self.fold |= self.steps > 0 && self.steps <= rounds::RARE;
        }
        if hooked {
            self.optimizer_ran(rounds::IN_BACKWARD, thread);
        }
    }

    fn scaler_update(&mut self, thread: ThreadId) {
        self.scaler_seen = true;
        // What the scaler allocates before its first update has ended a provisional step already.
        let provisional = !self.optimizer_mode && self.source == StepSource::Backward;
        let since = self.backwards > 0 || provisional;
        if since && !self.hooked && self.source != StepSource::Manual {
            self.enter_optimizer_mode();
            self.threads.get(thread);
            self.due = Some(thread);
            self.armed = true;
        }
    }

    fn manual(&mut self) -> Boundary {
        if self.source != StepSource::Manual {
            self.fold = self.steps > 0;
            (self.source, self.due, self.optimizer_mode) = (StepSource::Manual, None, false);
            self.rearm();
        }
        self.number()
    }

    fn tick(&mut self, now: Nanos) -> [Option<Boundary>; 2] {
        let after = Some(Nanos(now.0.saturating_add(TICK.0)));
        match self.next_tick {
            Some(t) if now >= t => {
                // A provisional step is due to a better source already: do not count the same time twice.
                if self.armed {
                    return [None, None];
                }
                (self.next_tick, self.source) = (after, StepSource::Time);
                [Some(self.number()), None]
            }
            Some(_) => [None, None],
            None => {
                self.next_tick = after;
                [None, None]
            }
        }
    }

    /// The recording is over: a step whose optimizer has run has ended, and so has a microbatch whose backward has.
    pub fn finish(&mut self) -> [Option<Boundary>; 2] {
        let ends = match self.source {
            StepSource::Manual => false,
            _ if self.optimizer_mode => self.due.is_some(),
            _ => self.threads.any_due(),
        };
        let due = self.threads.take_microbatches();
        let microbatch = (due > 0).then(|| {
            self.microbatches = self.microbatches.saturating_add(due);
            Boundary::Microbatch(self.microbatches)
        });
        [ends.then(|| self.announce()), microbatch]
    }

    /// Steps that have ended.
    pub fn steps(&self) -> u32 {
        self.steps
    }
    /// Microbatches that have ended.
    pub fn microbatches(&self) -> u32 {
        self.microbatches
    }
    /// What steps are counted by at present.
    pub fn source(&self) -> StepSource {
        self.source
    }
    /// The state as bytes, for a checkpoint.
    pub fn save(&self) -> Vec<u8> {
        save::save(self)
    }
    /// The state out of a checkpoint; `None` where the bytes are not one.
    pub fn load(b: &[u8]) -> Option<StepMachine> {
        save::load(b)
    }
}
