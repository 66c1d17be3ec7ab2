//! Whoever does what was asked for. Each action has a thread and a short queue of its own: a slow one holds up neither the
//! others nor the watch over the job, and a failing one is tried a few times, told, and left.

use super::abort;
use super::action::Action;
use super::attempt;
use super::bundle::{Bundles, Why};
use super::cases::{Matter, News};
use super::settings::Settings;
use crate::analyze::Suppressions;
use crate::background::spawn;
use crate::live::Live;
use crate::post::Failed;
use crate::process::Target;
use crate::say;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strandline::report::plural;

/// Alerts that wait for one action.
const QUEUE: usize = 16;
/// Waits between attempts; one more attempt than these.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// What is under way when the job has ended gets so long.
const LAST: Duration = Duration::from_secs(10);
/// Evidence gets longer: it reads the whole recording, as the report after it does.
const EVIDENCE: Duration = Duration::from_secs(120);

/// What the thread that keeps evidence is asked for.
struct Errand {
    /// What a bundle is to be made of, and why.
    bundle: Option<(Why, PathBuf)>,
    /// Then the job is ended: with this grace, these processes.
    abort: Option<(Duration, Vec<Target>)>,
}

struct Worker {
    action: Action,
    queue: Sender<Arc<News>>,
}

/// Does what was asked for.
pub(crate) struct Keeper {
    workers: Vec<Worker>,
    errands: Sender<Errand>,
    abort: Option<Duration>,
    aborted: Arc<AtomicBool>,
    /// The command's own child, where there is one: it is told first.
    job: Option<Target>,
    /// Dropped when nothing more will be asked for: waits are cut short.
    hurry: Sender<()>,
    /// Disconnected once every action's thread has ended.
    busy: Receiver<()>,
    /// The same of the thread that keeps evidence.
    keeping: Receiver<()>,
}

impl Keeper {
    /// Starts its threads. They inherit the signal mask.
    pub(crate) fn start(settings: &Settings, folder: &Path, job: Option<Target>) -> Keeper {
        let (hurry, hurried) = crossbeam_channel::bounded::<()>(0);
        let (holds, busy) = crossbeam_channel::bounded::<()>(0);
        let (keeps, keeping) = crossbeam_channel::bounded::<()>(0);
        let (errands, asked) = crossbeam_channel::bounded::<Errand>(QUEUE);
        let aborted = Arc::new(AtomicBool::new(false));
        let mut abort = None;
        let mut workers = Vec::new();
        for action in &settings.actions {
            if let Action::Abort(grace) = action {
                abort = Some(*grace);
                continue;
            }
            let (queue, news) = crossbeam_channel::bounded(QUEUE);
            let (own, folder, hurried, holds) =
                (action.clone(), folder.to_path_buf(), hurried.clone(), holds.clone());
            let accepted = settings.suppressions.clone();
            let work = move || {
                news.iter().for_each(|n: Arc<News>| persist(&own, &n, &folder, &accepted, &hurried));
                drop(holds);
            };
            let without = format!("{} cannot be started", action.name());
            if say::failure(spawn("sl-action", work), without).is_some() {
                workers.push(Worker { action: action.clone(), queue });
            }
        }
        let (bundles, flag) = (Bundles::new(folder, settings.suppressions.clone()), aborted.clone());
        let work = move || {
            keep(asked, bundles, job, &flag);
            drop(keeps);
        };
        say::failure(
            spawn("sl-evidence", work),
            "the thread that writes the bundles of alerts cannot be started",
        );
        Keeper { workers, errands, abort, aborted, job, hurry, busy, keeping }
    }

    /// Tells news, to people and to every action. Never waits.
    pub(crate) fn tell(&self, news: News) {
        say::raw(&news.block);
        let news = Arc::new(news);
        for worker in &self.workers {
            let only_alerts = matches!(worker.action, Action::Snapshot | Action::Signal(_));
            if news.matter != Matter::Alert && only_alerts {
                continue;
            }
            if let Err(TrySendError::Full(_)) = worker.queue.try_send(news.clone()) {
                say::line(format!(
                    "{} is still busy with earlier alerts, so this alert is not sent to it",
                    worker.action.name()
                ));
            }
        }
        if news.matter == Matter::Alert {
            let abort = self.abort.map(|grace| (grace, news.all.clone())).filter(|_| news.ends);
            self.ask(Errand { bundle: Some((Why::Alert, news.recording.clone())), abort });
            if self.abort.is_some() && !news.ends {
                say::line(
                    "ABORT waits, because this growth may stop by itself. strandline ends the job once it expects the GPU to be full within 50 steps or 10 minutes",
                );
            }
        }
    }

    /// Ends the job, where that is asked for: what was announced cannot wait any longer.
    pub(crate) fn end_job(&self, all: Vec<Target>) {
        if let Some(grace) = self.abort {
            self.ask(Errand { bundle: None, abort: Some((grace, all)) });
        }
    }

    /// Keeps evidence of a process.
    pub(crate) fn bundle(&self, why: Why, live: &Live) {
        self.ask(Errand { bundle: Some((why, live.path.into())), abort: None });
    }

    fn ask(&self, errand: Errand) {
        if self.errands.try_send(errand).is_err() {
            say::line("strandline is still writing earlier bundles, so this alert gets none");
        }
    }

    /// Waits for what is under way, for a while; whether the job was ended because of an alert.
    pub(crate) fn finish(self) -> bool {
        let Keeper { workers, errands, hurry, busy, keeping, aborted, abort, job } = self;
        drop((workers, errands, hurry));
        if busy.recv_timeout(LAST) == Err(RecvTimeoutError::Timeout) {
            say::line(
                "the job has ended, and an action of --on-alert is still running: strandline does not wait for it",
            );
        }
        // An abort has a time of its own: it ends when its processes do.
        let grace = abort.filter(|_| aborted.load(Ordering::SeqCst) && job.is_none_or(|j| j.is_alive()));
        if keeping.recv_timeout(EVIDENCE + grace.unwrap_or_default()) == Err(RecvTimeoutError::Timeout) {
            say::line(
                "no bundle was written, because reading the recording takes too long; strandline report and strandline snapshot show the same data",
            );
        }
        aborted.load(Ordering::SeqCst)
    }
}

/// Tries an action until it works, cannot work, or has had its chances.
fn persist(action: &Action, news: &News, folder: &Path, suppressions: &Suppressions, hurried: &Receiver<()>) {
    for attempt in 0.. {
        let Err(Failed { why, again }) = attempt::attempt(action, news, folder, suppressions) else { return };
        let name = action.name();
        match WAITS.get(attempt).filter(|_| again) {
            Some(wait) => {
                if attempt == 0 {
                    say::line(format!("{name} failed: {why}; strandline will try again"));
                }
                let _ = hurried.recv_timeout(*wait);
            }
            None => {
                let times = if attempt == 0 {
                    String::new()
                } else {
                    format!(" {}", plural(attempt as u64 + 1, "time"))
                };
                return say::line(format!("{name} failed{times}: {why}; strandline gives up"));
            }
        }
    }
}

/// Keeps evidence as it is asked for, and ends the job after it where that is asked for.
fn keep(asked: Receiver<Errand>, mut bundles: Bundles, job: Option<Target>, aborted: &AtomicBool) {
    for errand in asked {
        if let Some((why, recording)) = &errand.bundle {
            bundles.make(*why, recording);
        }
        if let Some((grace, recorded)) = errand.abort
            && !aborted.swap(true, Ordering::SeqCst)
        {
            abort::end(job, &recorded, grace, Instant::now());
        }
    }
}
