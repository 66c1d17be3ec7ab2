//! Follows a job and ends it when nothing new is to be expected of its memory.

use crate::analyze::Suppressions;
use crate::live::{Followed, Live};
use crate::process::Target;
use crate::recording;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strandline::detect::Finding;
use strandline::event::{StepRow, named};
use strandline::replay::Replay;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// A job that is told to end has so long.
const GRACE: Duration = Duration::from_secs(10);
/// Steps without a new highest peak, at least: batches differ, and a step takes little time here.
const QUIET: u32 = 50;
/// Where it grows, steps after which that is known for sure.
const GROWS: u32 = 40;
/// A job whose memory rises a little now and then is not waited for any longer.
const MOST: u32 = 1000;

named! {
    /// Why a job was ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Why {
        /// For a while no step had a higher peak than those before.
        Settled = "settled",
        /// It grows with every step.
        Grows = "grows",
        /// It has done as many steps as were asked for.
        Steps = "steps",
        /// After a thousand steps it still needed more now and then.
        Unsettled = "unsettled",
    }
}

/// Whether there is nothing more to be seen of a process.
pub(super) fn reached(replay: &Replay, findings: &[Finding], most: u32) -> Option<Why> {
    let steps = replay.steps();
    if steps >= most {
        return Some(Why::Steps);
    }
    if steps >= MOST {
        return Some(Why::Unsettled);
    }
    if steps >= GROWS && findings.iter().any(Finding::grows) {
        return Some(Why::Grows);
    }
    // The last step of a device in which it reserved or allocated more than ever before.
    let highest = |rows: &[StepRow]| {
        let (mut most, mut step) = ((0, 0), None);
        for r in rows {
            if r.reserved.0 > most.0 || r.peak.0 > most.1 {
                (most, step) = ((r.reserved.0.max(most.0), r.peak.0.max(most.1)), Some(r.step));
            }
        }
        step
    };
    let last_news = replay.devices().filter_map(|d| highest(&d.rows)).max()?;
    // A peak that came late may be followed by a higher one as late again.
    (steps >= last_news + QUIET.max(last_news)).then_some(Why::Settled)
}

/// Follows a job on a thread of its own.
pub(super) struct Follower {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<Why>>,
}

impl Follower {
    /// Follows all recordings of a folder; each process does at most so many steps.
    pub(super) fn start(folder: &Path, most: u32) -> Follower {
        let stop = Arc::new(AtomicBool::new(false));
        let (folder, seen) = (folder.to_path_buf(), stop.clone());
        Follower { stop, thread: std::thread::spawn(move || follow(&folder, most, &seen)) }
    }

    /// The job has ended; why it was ended, if it was.
    pub(super) fn finish(self) -> Option<Why> {
        self.stop.store(true, Relaxed);
        self.thread.join().ok().flatten()
    }
}

/// A process that is followed.
struct One {
    followed: Followed,
    reached: Option<Why>,
}

fn follow(folder: &Path, most: u32, stop: &AtomicBool) -> Option<Why> {
    let suppressions = Arc::new(Suppressions::default());
    let (mut known, mut all): (HashSet<PathBuf>, Vec<One>) = (HashSet::new(), Vec::new());
    loop {
        for path in recording::list(folder) {
            if !known.contains(&path)
                && let Some(followed) = Followed::open(known.len(), &path, &suppressions)
            {
                known.insert(path);
                all.push(One { followed, reached: None });
            }
        }
        for one in &mut all {
            let reached = &mut one.reached;
            one.followed.take(&mut |live: &Live<'_>| {
                *reached = reached.or_else(|| self::reached(live.replay, live.findings, most));
            });
        }
        // One that has no steps waits for nobody: it helps those that have some.
        let (done, waited): (Vec<&One>, Vec<&One>) =
            all.iter().filter(|o| o.followed.live().replay.steps() > 0).partition(|o| o.reached.is_some());
        if let Some(first) = done.first().filter(|_| waited.iter().all(|o| o.followed.is_over())) {
            end(&all);
            return first.reached;
        }
        if stop.load(Relaxed) {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// Ends the processes that are recorded; who started them ends of that.
fn end(all: &[One]) {
    let targets: Vec<Target> = all.iter().map(|o| o.followed.live().target).collect();
    targets.iter().for_each(|t| t.send(libc::SIGTERM));
    let since = Instant::now();
    while targets.iter().any(Target::is_alive) {
        if since.elapsed() > GRACE {
            return targets.iter().for_each(|t| t.send(libc::SIGKILL));
        }
        std::thread::sleep(LOOK);
    }
}
