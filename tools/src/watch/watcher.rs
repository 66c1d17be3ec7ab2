//! A folder of recordings, looked at again and again while their processes run.

use super::asker::Asker;
use crate::alert::{Cases, Keeper, News, Settings, Why};
use crate::analyze::Suppressions;
use crate::background::spawn;
use crate::live::{Followed, Live, Which};
use crate::metrics::Exporter;
use crate::process::Target;
use crate::say::{self, shown};
use crate::{recording, terminal};
use crossbeam_channel::{RecvTimeoutError, Sender};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strandline::report::metrics::Metrics;

/// How often it is looked for news: two rounds and what is held for other ranks are less than a second.
pub(super) const INTERVAL: Duration = Duration::from_millis(200);
/// As a job begins more often: one that lives for seconds is asked in time who holds what.
const EARLY: Duration = Duration::from_millis(50);
/// So long it begins.
const BEGINS: Duration = Duration::from_secs(30);

/// All that is watched.
pub(super) struct Watch {
    folder: PathBuf,
    which: Which,
    known: HashSet<PathBuf>,
    followed: Vec<Followed>,
    cases: Cases,
    keeper: Keeper,
    exporters: Vec<Exporter>,
    asker: Asker,
    suppressions: Arc<Suppressions>,
    /// Alerts told of each process.
    alerts: HashMap<u32, u64>,
    began: Instant,
}

impl Watch {
    pub(super) fn new(folder: &Path, settings: &Settings, job: Option<Target>, which: Which) -> Watch {
        Watch {
            folder: folder.into(),
            which,
            known: HashSet::new(),
            followed: Vec::new(),
            cases: Cases::new(settings.rules, terminal::style_of_stderr()),
            keeper: Keeper::start(settings, folder, job),
            exporters: settings.metrics.iter().filter_map(Exporter::start).collect(),
            suppressions: settings.suppressions.clone(),
            alerts: HashMap::new(),
            asker: Asker::default(),
            began: Instant::now(),
        }
    }

    /// Takes all that is new and tells what is news.
    pub(super) fn round(&mut self) {
        for path in recording::list(&self.folder) {
            // One whose header is not written yet is looked at again.
            if !self.known.contains(&path)
                && let Some(followed) = Followed::open(self.known.len(), &path, &self.suppressions)
            {
                let is_own = followed.is_own();
                if !is_own {
                    say::line(format!("{} belongs to another user, so it is not watched", shown(&path)));
                }
                self.known.insert(path);
                if !is_own {
                    continue;
                }
                if self.which == Which::All || followed.live().target.is_alive() {
                    self.followed.push(followed);
                }
            }
        }
        let alone = self.followed.len() == 1;
        let Watch { cases, keeper, alerts, asker, .. } = self;
        let mut tell = |news: News| {
            news.targets.iter().for_each(|t| *alerts.entry(t.pid).or_default() += 1);
            keeper.tell(news);
        };
        for followed in &mut self.followed {
            followed.take(&mut |live| {
                cases.look(live);
                // Nobody is waited for: it is told as of this very step, unless that is history and only caught up with.
                if alone && live.is_news() {
                    cases.settle(&[live], false).into_iter().for_each(&mut tell);
                }
            });
            match followed.is_over() {
                true => asker.forget(followed.live().id),
                false => {
                    let place = followed.questions();
                    asker.look(&followed.asked(), place.as_deref());
                }
            }
            if followed.has_new_oom() {
                keeper.bundle(Why::OutOfMemory, &followed.live());
            }
        }
        let last = self.followed.iter().all(Followed::is_over);
        let lives: Vec<Live<'_>> = self.followed.iter().map(Followed::live).collect();
        let lives: Vec<&Live<'_>> = lives.iter().collect();
        if cases.ends_now(&lives) {
            keeper.end_job(lives.iter().map(|l| l.target).collect());
        }
        cases.settle(&lives, last).into_iter().for_each(&mut tell);
        self.export(last);
        self.followed.retain(|f| !f.is_over());
    }

    /// Hands the figures on, now and then, and those of the end.
    fn export(&mut self, last: bool) {
        let is_due = last || self.exporters.iter().any(Exporter::is_due);
        if self.exporters.is_empty() || self.followed.is_empty() || !is_due {
            return;
        }
        let mut figures = Metrics::default();
        for followed in &self.followed {
            let live = followed.live();
            let alerts = self.alerts.get(&live.target.pid).copied().unwrap_or(0);
            live.process(|p| figures.add(p, alerts));
        }
        self.exporters.iter_mut().for_each(|e| e.tell(figures.clone(), last));
    }

    /// Until the next round.
    fn interval(&self) -> Duration {
        if self.began.elapsed() < BEGINS { EARLY } else { INTERVAL }
    }

    /// Nothing that is watched runs.
    pub(super) fn is_idle(&self) -> bool {
        self.followed.is_empty()
    }

    /// Something may still begin: there is no recording, or one whose header is not written yet.
    pub(super) fn may_begin(&self) -> bool {
        let all = recording::list(&self.folder);
        all.is_empty() || all.iter().any(|path| !self.known.contains(path))
    }

    /// How many processes are watched.
    pub(super) fn running(&self) -> usize {
        self.followed.len()
    }

    /// Waits for what is under way; whether an alert has ended the job.
    pub(super) fn end(self) -> bool {
        self.exporters.into_iter().for_each(Exporter::finish);
        self.keeper.finish()
    }

    /// The job was asked to end and may be killed soon: evidence is kept of what there is.
    pub(super) fn terminating(&mut self) {
        self.round();
        if let Some(first) = self.followed.first() {
            self.keeper.bundle(Why::Terminated, &first.live());
        }
    }
}

/// A watch on a thread of its own.
pub(crate) struct Watcher {
    asked: Sender<()>,
    thread: Option<JoinHandle<bool>>,
}

impl Watcher {
    /// Starts it. `job` is the child that an abort is for.
    pub(crate) fn start(folder: &Path, settings: &Settings, job: Option<Target>) -> Watcher {
        let (asked, ask) = crossbeam_channel::bounded::<()>(1);
        let (folder, settings) = (folder.to_path_buf(), settings.clone());
        let work = move || {
            let mut watch = Watch::new(&folder, &settings, job, Which::All);
            loop {
                match ask.recv_timeout(watch.interval()) {
                    Ok(()) => watch.terminating(),
                    Err(RecvTimeoutError::Timeout) => watch.round(),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            watch.round();
            watch.end()
        };
        let without = "no process watches this job, so there will be no alerts";
        Watcher { asked, thread: say::failure(spawn("sl-alerts", work), without) }
    }

    /// The job was asked to end.
    pub(crate) fn terminating(&self) {
        let _ = self.asked.try_send(());
    }

    /// The job has ended: what it did last is looked at, and what is under way is waited for. Whether an alert ended it.
    pub(crate) fn finish(self) -> bool {
        drop(self.asked);
        self.thread.and_then(|t| t.join().ok()).unwrap_or_default()
    }
}
