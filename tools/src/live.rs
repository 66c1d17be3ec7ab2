//! One recording, followed while it is written.

use crate::analyze::{Analysis, Feed, Suppressions, by_iterations};
use crate::clock::unix_ns;
use crate::process::Target;
use crate::symbols::Symbols;
use crate::{known, recording};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strandline::detect::{Detector, Finding, after_training, judge};
use strandline::event::Names;
use strandline::replay::{Progress, Replay};
use strandline::report::{Known, Process};

/// Which recordings of a folder are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// All: the folder is a run's own.
    All,
    /// Those whose process runs on this machine: the others are history, or another node's.
    Running,
}

/// A recording, and what is true of it so far.
pub(crate) struct Followed {
    feed: Feed,
    state: State,
}

struct State {
    id: usize,
    path: PathBuf,
    target: Target,
    /// When its recording began, in nanoseconds of the Unix epoch.
    began: u64,
    analysis: Analysis,
    /// What does not count.
    suppressions: Arc<Suppressions>,
    symbols: Symbols,
    /// Its process has ended and all of it was read.
    over: bool,
    /// Failed allocations that were told of.
    ooms: usize,
    /// What the iterations of a job show that seconds do not, and when it is looked for.
    iterations: Iterations,
}

/// When a job that seconds cannot judge yet is judged by its iterations.
#[derive(Default)]
struct Iterations {
    /// As of the last look.
    analysis: Option<Analysis>,
    /// When its first event was, and how long after that the next look is due, in nanoseconds of its recording.
    began: Option<u64>,
    due: u64,
    /// It was looked at as it began to end: that was the last look.
    is_last: bool,
}

/// Nanoseconds from the first event to the first look; to each later one it is twice as long. The first forward of a training is mostly over by then.
const FIRST_LOOK: u64 = 2_000_000_000;

impl Iterations {
    /// Looks, where it is time to.
    fn look(&mut self, so_far: &Analysis, path: &Path, is_ending: bool) {
        let replay = &so_far.replay;
        // A training is judged by its steps, from its first backward on, until it has done something else for longer.
        let after = after_training(replay);
        if replay.step_source().is_training() && after.is_none() {
            self.analysis = None;
            return;
        }
        if self.is_last || replay.events() == 0 {
            return;
        }
        let began = after.map_or_else(|| *self.began.get_or_insert(replay.time().0), |last| last.0);
        let passed = replay.time().0.saturating_sub(began);
        if is_ending || passed >= self.due.max(FIRST_LOOK) {
            self.due = passed.max(FIRST_LOOK).saturating_mul(2);
            self.is_last = is_ending;
            self.analysis = by_iterations(so_far, path);
        }
    }
}

/// A process as of now.
#[derive(Clone, Copy)]
pub(crate) struct Live<'a> {
    /// Tells it from the others of a watch.
    pub(crate) id: usize,
    /// Its recording.
    pub(crate) path: &'a Path,
    /// Its process.
    pub(crate) target: Target,
    /// When its recording began, in nanoseconds of the Unix epoch.
    pub(crate) began: u64,
    /// Its stacks.
    pub(crate) names: &'a Names,
    /// Its memory.
    pub(crate) replay: &'a Replay,
    /// What was found in it.
    pub(crate) findings: &'a [Finding],
    detector: &'a Detector,
}

/// What is so old is history, in nanoseconds.
const HISTORY: u64 = 3_000_000_000;

impl Live<'_> {
    /// Whether its last event was a moment ago.
    pub(crate) fn is_news(&self) -> bool {
        let last = self.began.saturating_add(self.replay.time().0);
        unix_ns().saturating_sub(last) < HISTORY
    }
}

impl Followed {
    /// Whether the recording is this user's own, as the open file says.
    pub(crate) fn is_own(&self) -> bool {
        recording::is_own(self.feed.summary())
    }

    /// Begins with a recording; `None` where it cannot be read (yet).
    pub(crate) fn open(id: usize, path: &Path, suppressions: &Arc<Suppressions>) -> Option<Followed> {
        crate::process::map_large_buffers();
        let feed = Feed::follow(path).ok()?;
        let (target, began) = (Target::recorded(&feed.summary().who), feed.summary().unix_ns);
        let (path, suppressions, symbols) = (path.into(), suppressions.clone(), Symbols::default());
        let analysis = Analysis::new();
        let (over, ooms, iterations) = (false, 0, Iterations::default());
        let state =
            State { id, path, target, began, analysis, suppressions, symbols, over, ooms, iterations };
        Some(Followed { feed, state })
    }

    /// Takes what is new. `at_mark` is called after each step and microbatch.
    pub(crate) fn take(&mut self, at_mark: &mut dyn FnMut(&Live<'_>)) {
        let was_ending = self.is_ending();
        self.take_once(at_mark);
        // What was read just now is in order when later events have come, or none: a job that waits for its last question makes none.
        if self.is_ending() && !was_ending && !self.is_over() {
            self.take_once(at_mark);
        }
    }

    /// Its interpreter has begun to end, and waits for the last question.
    fn is_ending(&self) -> bool {
        self.state.analysis.replay.meta().get("ending").is_some()
    }

    fn take_once(&mut self, at_mark: &mut dyn FnMut(&Live<'_>)) {
        let Followed { feed, state } = self;
        // Asked before: what it did before it ended is then seen.
        let alive = state.target.is_alive();
        if alive {
            feed.poll()
        } else {
            feed.finish()
        }
        feed.each(|item, names| {
            let progress = state.analysis.take(item, names);
            state.passed(progress, names, at_mark);
        });
        if !alive {
            if state.analysis.replay.ended().is_none() {
                let progress = state.analysis.finish();
                state.passed(progress, feed.names(), at_mark);
            }
            state.over = true;
        }
    }

    /// When its last event was, in nanoseconds of the Unix epoch.
    pub(crate) fn last_event(&self) -> u64 {
        self.feed.summary().unix_ns.saturating_add(self.state.analysis.replay.time().0)
    }

    /// Part of it could not be read so far.
    pub(crate) fn is_damaged(&self) -> bool {
        !self.feed.damage().is_empty()
    }

    /// Where a question to its process is to lie; `None`: it cannot be reached.
    pub(crate) fn questions(&self) -> Option<PathBuf> {
        self.feed.questions(&self.state.path)
    }

    /// Its process has ended, and all of it has been taken.
    pub(crate) fn is_over(&self) -> bool {
        self.state.over
    }

    /// Whether allocations failed since this was last asked.
    pub(crate) fn has_new_oom(&mut self) -> bool {
        let ooms = self.state.analysis.replay.devices().map(|d| d.ooms.len()).sum();
        std::mem::replace(&mut self.state.ooms, ooms) < ooms
    }

    /// As of now, for a question about what was found: of a job that is too short for its seconds, what its iterations show.
    pub(crate) fn asked(&mut self) -> Live<'_> {
        let is_ending = self.is_ending();
        let State { analysis, path, iterations, .. } = &mut self.state;
        iterations.look(analysis, path, is_ending);
        let live = self.live();
        // What steps show, or seconds after all, is surer.
        let is_known = live.findings.iter().any(Finding::grows);
        self.state.iterations.analysis.as_ref().filter(|_| !is_known).map_or(live, |a| live.by(a))
    }

    /// As of now.
    pub(crate) fn live(&self) -> Live<'_> {
        Live::of(&self.state, self.feed.names())
    }
}

impl State {
    #[inline]
    fn passed(&mut self, progress: Progress, names: &Names, at_mark: &mut dyn FnMut(&Live<'_>)) {
        if progress != Progress::default() {
            let State { analysis, suppressions, symbols, began, .. } = self;
            // As a report of the same moment does.
            if analysis.detector.findings().iter().any(Finding::grows) {
                analysis.refine(names, *began, None, suppressions, symbols);
            }
            at_mark(&Live::of(self, names));
        }
    }
}

impl<'a> Live<'a> {
    fn of(state: &'a State, names: &'a Names) -> Live<'a> {
        let State { id, ref path, target, began, ref analysis, .. } = *state;
        let Analysis { replay, detector } = analysis;
        Live { id, path, target, began, names, replay, detector, findings: detector.findings() }
    }

    /// The same as another analysis of it says.
    fn by(self, analysis: &'a Analysis) -> Live<'a> {
        let Analysis { replay, detector } = analysis;
        Live { replay, detector, findings: detector.findings(), ..self }
    }

    /// As what is printed takes it, with what is known of what grows.
    pub(crate) fn process<R>(&self, print: impl FnOnce(&Process<'_>) -> R) -> R {
        let verdict = judge(self.replay, self.detector);
        let mut process = Process::new(self.replay, self.names, &verdict, self.findings);
        let known = |f: &Finding| match f.grows() {
            true => known::about(f, self.replay, self.names, self.began, None),
            false => Known::default(),
        };
        process.known = self.findings.iter().map(known).collect();
        print(&process)
    }
}
