//! The machine that says where a step ends, and its rules.

use super::gradients::Gradients;
use super::iterations::Iterations;
use super::threads::{PART, Threads};
use super::turns::{Heard, IN_BACKWARD, Turns};
use crate::event::{Body, Event, Nanos, StackId, ThreadId, named};

named! {
    /// What steps are counted by.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub enum StepSource {
        /// Nothing that could be counted was seen.
        #[default]
        None = "none",
        /// Ticks of time.
        Time = "time",
        /// Ends of backward.
        Backward = "backward",
        /// Optimizer hooks.
        Optimizer = "optimizer",
        /// `strandline_step`.
        Manual = "manual",
        /// Allocations of one stack that come again and again: see [`super::Recurring`]. Only where a reader asks for it.
        Iteration = "iteration",
    }
}

impl StepSource {
    /// What a job is counted in, for sentences: one without steps goes by seconds or iterations, and says so.
    pub fn noun(self) -> &'static str {
        match self {
            StepSource::Time => "second",
            StepSource::Iteration => "iteration",
            _ => "step",
        }
    }

    /// Whether what is counted are a training's steps.
    pub fn is_training(self) -> bool {
        matches!(self, StepSource::Backward | StepSource::Optimizer | StepSource::Manual)
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
/// Steps that end with a recording, at most: more are none of a job's.
const OWED: usize = 4096;
/// Steps before the first backward that may have been made to prepare an optimizer's state.
const PREPARED: u32 = 8;
/// Runs of an optimizer after one backward beyond which they are taken for steps of a job whose backward is not
/// seen (a replayed graph), not for parts of one step.
pub(super) const PARTS: u32 = 256;

/// The machine. Bounded in memory whatever comes in, and it never fails.
///
/// A step ends at the first *forward allocation* (neither in backward nor in an optimizer) of the thread
/// whose optimizer has run: what an optimizer and `zero_grad` free still belongs to the step. Rules:
///
/// - Hooks with no backward between them are one step (ZeRO sub-groups, Muon + AdamW), however many backwards came
///   before (accumulation, LBFGS, SAM). Where a graph was captured with a backward in it, backwards are replayed
///   unseen, and each run is a step.
/// - Hooks inside a backward end nothing; the end of that backward stands for them.
/// - Optimizers that take turns within a loop (a GAN, MAML's outer one): the one that steps least often ends the
///   step. The evidence is that it comes back for a single run, twice after the same number of the others' runs, 32
///   at most; what was counted until then is folded. Optimizers that replace one another, and models that are trained
///   by turns of several steps, do not, and each step counts. Where they ran one by one and then one of them runs
///   alone (PPO whose actor stops early), it was the others that were left out, and each run of it is a step.
/// - Where a reader tells how the source has the places that call backward ([`super::InPass`]): what only some passes of a loop run is part of the
///   step of what each of them runs, and branches of an `if` are steps of their own.
/// - A run of an optimizer right after its own, for gradients from another place, is part of the step (lazy
///   regularization).
/// - A step that was skipped after its backward counts: a scaler's update says so, or the gradients were dropped
///   with no optimizer having run, after as many backwards and called from the same places as in a step whose
///   optimizer did run. Not seen are skips where gradients are set to zero in place, and the last of a training that
///   is followed by one from another place in the program.
/// - Optimizers that run before the first backward prepare their state; that is part of step 1.
/// - Where a reader asks for it, in a job without either: allocations of one stack, each of which begins an iteration.
/// - No optimizer yet: ends of backward; no backward yet: ticks of a second. Both are provisional, and folded
///   into step 1 when the better source appears.
/// - The first manual step turns all of this off, and folds what was before into step 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepMachine {
    /// The last number that was announced.
    pub(super) steps: u32,
    /// Of those announced, the ones that stand: the others are parts of the next one.
    pub(super) stands: u32,
    /// Steps that have ended by what is known now. Those beyond the ones that stand are yet to be announced.
    pub(super) count: u32,
    pub(super) microbatches: u32,
    pub(super) source: StepSource,
    pub(super) threads: Threads,
    pub(super) turns: Turns,
    pub(super) gradients: Gradients,
    /// An optimizer (or a scaler) decides from now on; the next announcement is due to it.
    pub(super) optimizer_mode: bool,
    /// A step has ended but for the next forward allocation of this thread.
    pub(super) due: Option<ThreadId>,
    /// Something is due at a forward allocation: the one flag an allocation has to test.
    pub(super) armed: bool,
    pub(super) backward_seen: bool,
    /// Streams that are captured.
    pub(super) capturing: u32,
    /// A backward was captured.
    pub(super) graphed: bool,
    /// The most runs without a backward that turned out to be parts of a step.
    pub(super) parts: u32,
    pub(super) next_tick: Option<Nanos>,
    /// What iterations are counted by, instead of ticks. It is told by a reader, and is not saved.
    pub(super) iterations: Option<Iterations>,
}

impl StepMachine {
    /// Feeds the next event in order; at most one step and one microbatch end before it.
    #[inline]
    pub fn feed(&mut self, e: &Event) -> [Option<Boundary>; 2] {
        match &e.body {
            Body::Alloc(b) => {
                self.gradients.alloc(b.addr, b.phase.backward);
                if !self.armed {
                    self.quiet(e.time, Some(b.stack))
                } else if b.phase.backward || b.phase.optimizer {
                    [None, None]
                } else {
                    self.forward(e.thread)
                }
            }
            // An allocation that failed is one as well: the step before it is over.
            Body::Oom { .. } if self.armed && self.threads.is_in_forward(e.thread) => self.forward(e.thread),
            Body::FreeRequested(b) => {
                self.gradients.free(b.addr, b.phase.backward);
                self.quiet(e.time, None)
            }
            Body::OptimizerBegin(_)
            | Body::OptimizerEnd(_)
            | Body::BackwardBegin { .. }
            | Body::BackwardEnd { .. }
            | Body::ScalerUpdate
            | Body::CaptureBegin(_)
            | Body::CaptureEnd(_)
            | Body::ManualStep(_) => self.mark(e),
            _ => self.quiet(e.time, None),
        }
    }

    /// An event that says nothing but the time, and of an allocation its stack.
    #[inline]
    fn quiet(&mut self, now: Nanos, stack: Option<StackId>) -> [Option<Boundary>; 2] {
        match (self.source, self.iterations) {
            (StepSource::None | StepSource::Time, None) => self.tick(now),
            (StepSource::None | StepSource::Iteration, Some(of))
                if Some(of.stack) == stack && of.after.is_none_or(|last| now >= last) =>
            {
                self.iterates()
            }
            _ => [None, None],
        }
    }

    fn mark(&mut self, e: &Event) -> [Option<Boundary>; 2] {
        if self.iterations.is_some_and(|of| of.after.is_some()) {
            return [None, None];
        }
        match e.body {
            Body::OptimizerBegin(id) => {
                let before = self.replayed(id, e.thread);
                self.threads.get(e.thread).in_optimizer = true;
                return before;
            }
            Body::OptimizerEnd(id) => self.optimizer_end(id, e.thread),
            Body::BackwardBegin { nested: false, stack } => return self.backward_begin(e.thread, stack.0),
            Body::BackwardEnd { nested: false } => self.backward_end(e.thread),
            Body::ScalerUpdate => self.scaler_update(e.thread),
            Body::CaptureBegin(_) => self.capturing = self.capturing.saturating_add(1),
            Body::CaptureEnd(_) => self.capturing = self.capturing.saturating_sub(1),
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
        let step = if ends { self.announce() } else { None };
        self.rearm();
        [step, microbatch]
    }

    /// The next step that has ended and was not announced.
    fn announce(&mut self) -> Option<Boundary> {
        let source = if self.optimizer_mode { StepSource::Optimizer } else { StepSource::Backward };
        if self.source == StepSource::Time && !self.optimizer_mode && self.steps <= FOLD_LIMIT {
            (self.stands, self.count) = (0, 0);
        }
        self.source = source;
        let ended = !self.optimizer_mode || self.count > self.stands;
        let boundary = ended.then(|| self.number());
        if self.count <= self.stands {
            self.due = None;
        }
        boundary
    }

    fn number(&mut self) -> Boundary {
        self.gradients.step();
        self.stands = self.stands.saturating_add(1);
        self.steps = self.stands;
        self.count = self.count.max(self.stands);
        Boundary::Step { n: self.steps, source: self.source }
    }

    fn rearm(&mut self) {
        self.armed = self.due.is_some() || self.threads.any_due();
    }

    /// An optimizer begins. Where backwards are replayed unseen, and it is the one that ran first in the last step, that step is over, though
    /// nothing was allocated since.
    fn replayed(&mut self, id: u64, thread: ThreadId) -> [Option<Boundary>; 2] {
        let t =
            self.threads.find(thread).filter(|t| t.window.backwards == 0 && t.open == 0 && !t.in_optimizer);
        let group = t.map_or(0, |t| t.group);
        if self.graphed && self.capturing == 0 && group != 0 && self.turns.begins(id, group) {
            self.forward(thread)
        } else {
            [None, None]
        }
    }

    fn optimizer_end(&mut self, id: u64, thread: ThreadId) {
        self.threads.get(thread).in_optimizer = false;
        if !self.threads.note_hook_in_backward(thread) {
            self.optimizer_ran(id, thread);
        }
    }

    /// An optimizer has done its work for now: its hook, or the end of a backward within which hooks fired.
    fn optimizer_ran(&mut self, id: u64, thread: ThreadId) {
        if self.source == StepSource::Manual {
            return;
        }
        self.enter_optimizer_mode();
        self.gradients.begin();
        let group = self.threads.get(thread).group;
        if group == 0 {
            self.ran_first(id, thread);
        } else if group != PART {
            self.turns.join(id, group);
        }
        self.rearm();
    }

    /// An optimizer has run, and none since this thread's last forward allocation.
    fn ran_first(&mut self, id: u64, thread: ThreadId) {
        let user = self.threads.user(thread);
        let window = user.window;
        if window.backwards == 0 && self.backward_seen && !self.graphed {
            user.window.parts = window.parts.saturating_add(1);
            self.threads.get(thread).group = PART;
            // More than ever were parts of a step: perhaps these, and those before them, are steps.
            let more = match window.parts.cmp(&self.parts) {
                std::cmp::Ordering::Less => return,
                std::cmp::Ordering::Equal => self.parts.saturating_add(1),
                std::cmp::Ordering::Greater => 1,
            };
            self.count = self.count.saturating_add(more);
            self.due = Some(thread);
            return;
        }
        user.window = Default::default();
        let heard = self.turns.hook(id, &window, thread, self.count);
        self.threads.get(thread).group = heard.label;
        self.heard(heard, thread);
    }

    fn heard(&mut self, heard: Heard, thread: ThreadId) {
        if heard.ends {
            self.stands = self.stands.min(heard.count.saturating_sub(1));
            self.due = Some(thread);
        }
        self.count = heard.count;
    }

    fn enter_optimizer_mode(&mut self) {
        if !std::mem::replace(&mut self.optimizer_mode, true) {
            self.stands = if self.steps <= FOLD_LIMIT { 0 } else { self.steps };
            self.count = self.stands;
        }
    }

    fn backward_begin(&mut self, thread: ThreadId, site: u32) -> [Option<Boundary>; 2] {
        // A job whose forward allocates nothing still ends its steps here.
        let mut out = if self.armed { self.forward(thread) } else { [None, None] };
        self.graphed |= self.capturing > 0;
        let t = self.threads.get(thread);
        t.began = true;
        t.open = t.open.saturating_add(1);
        if self.optimizer_mode && t.open == 1 && !t.in_optimizer {
            self.close_parts(thread);
            self.close_skipped(thread, Some(site));
        }
        self.threads.get(thread).window.begin(site);
        if self.optimizer_mode && self.count > self.stands && self.due.is_none_or(|d| d == thread) {
            self.due = Some(thread);
            out[0] = out[0].or_else(|| self.announce());
            self.rearm();
        }
        out
    }

    /// A backward comes after runs of an optimizer that had none: they were parts of the step before.
    fn close_parts(&mut self, thread: ThreadId) {
        let window = &mut self.threads.get(thread).window;
        let ran = std::mem::take(&mut window.parts);
        if ran > PARTS {
            self.graphed = true;
        } else if ran > self.parts {
            self.parts = ran;
            self.count = self.count.saturating_sub(ran).max(1);
            self.stands = self.stands.min(self.count - 1);
        }
    }

    /// The gradients of this thread's backwards were dropped, and no optimizer had run: was that a step? `next` is
    /// where the backward is called that begins now.
    fn close_skipped(&mut self, thread: ThreadId, next: Option<u32>) {
        let window = &mut self.threads.get(thread).window;
        if window.backwards == 0 || !self.gradients.were_dropped() {
            return;
        }
        window.hook_drops = window.hook_drops.saturating_add(1);
        if self.turns.skipped(window, next) {
            self.skip(thread);
        }
    }

    fn skip(&mut self, thread: ThreadId) {
        let t = self.threads.get(thread);
        let heard = self.turns.skip(&t.window, thread, self.count);
        t.window.skip();
        self.heard(heard, thread);
    }

    fn backward_end(&mut self, thread: ThreadId) {
        let t = self.threads.get(thread);
        t.open = t.open.saturating_sub(1);
        t.microbatch_due = true;
        t.window.end();
        let hooked = std::mem::take(&mut t.hook_in_backward);
        self.armed = true;
        self.gradients.begin();
        // Optimizers that ran before any backward made their state (a restored checkpoint, a warm-up): no
        // steps.
        if !std::mem::replace(&mut self.backward_seen, true) && self.source == StepSource::Optimizer {
            self.turns.forget();
            if self.steps <= PREPARED {
                (self.stands, self.count) = (0, 0);
            }
        }
        if hooked {
            self.optimizer_ran(IN_BACKWARD, thread);
        }
    }

    fn scaler_update(&mut self, thread: ThreadId) {
        let skipped = self.threads.get(thread).window.backwards > 0;
        if skipped && self.source != StepSource::Manual {
            self.enter_optimizer_mode();
            self.skip(thread);
            self.armed = true;
        }
    }

    fn manual(&mut self) -> Boundary {
        if self.source != StepSource::Manual {
            (self.source, self.due, self.optimizer_mode) = (StepSource::Manual, None, false);
            (self.stands, self.count) = (0, 0);
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

    /// Iterations are counted instead of seconds from now on.
    pub fn count_iterations(&mut self, of: Iterations) {
        self.iterations = Some(of);
    }

    /// An iteration begins: what was before it has ended.
    #[cold]
    fn iterates(&mut self) -> [Option<Boundary>; 2] {
        self.source = StepSource::Iteration;
        [Some(self.number()), None]
    }

    /// The recording is over: all that ends with it, in order.
    pub fn finish(&mut self) -> Vec<[Option<Boundary>; 2]> {
        let ends = std::iter::from_fn(|| Some(self.finish_one()).filter(|ends| *ends != [None, None]));
        ends.take(OWED).collect()
    }

    /// A step whose optimizer has run has ended, and so has a microbatch whose backward has.
    fn finish_one(&mut self) -> [Option<Boundary>; 2] {
        if self.optimizer_mode {
            self.finish_skipped();
            self.count = self.count.saturating_add(self.turns.take_unfinished());
        }
        let due = self.threads.take_microbatches();
        let ends = match self.source {
            StepSource::Manual => false,
            _ => self.optimizer_mode || due > 0,
        };
        let microbatch = (due > 0).then(|| {
            self.microbatches = self.microbatches.saturating_add(due);
            Boundary::Microbatch(self.microbatches)
        });
        [if ends { self.announce() } else { None }, microbatch]
    }

    /// The last step may have been skipped. Gradients that went with their model say nothing.
    fn finish_skipped(&mut self) {
        let last = self.threads.list.iter().find(|t| t.window.backwards > 0 && !t.in_optimizer).map(|t| t.id);
        if let Some(thread) = last.filter(|_| self.gradients.alone()) {
            self.close_skipped(thread, None);
        }
    }

    /// Steps that have ended.
    pub fn steps(&self) -> u32 {
        self.steps
    }
    /// Microbatches that have ended.
    pub fn microbatches(&self) -> u32 {
        self.microbatches
    }
    /// What iterations are counted by, where they are.
    pub fn iterations(&self) -> Option<Iterations> {
        self.iterations
    }
    /// What steps are counted by at present.
    pub fn source(&self) -> StepSource {
        self.source
    }
}
