//! How the process of a recording ended: what the recording says, and what whoever waited for the process saw.

use super::feed::Feed;
use crate::job::{self, Seen};
use crate::process::Target;
use serde_json::json;
use strandline::event::{HostKiller, Item, Names};
use strandline::replay::Replay;
use strandline::report::Ended;

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    pub(super) ended: Ended,
    /// The status that it exited with, where the recording itself does not say it.
    status: Option<i32>,
    /// What the host's out-of-memory killer may have had to do with it.
    pub(super) killer: HostKiller,
}

impl End {
    /// As the recording says it, or whoever kept its tail, or the command that waited for the job (`outcome`).
    pub(super) fn of(feed: &Feed, outcome: Option<&Seen>) -> End {
        let summary = feed.summary();
        let only = |ended| End { ended, ..End::default() };
        match summary.ended() {
            Some("exit") => return only(Ended::Exit),
            Some("stopped") => return only(Ended::Stopped),
            Some(told) => {
                if let Some(n) = told.strip_prefix("signal ").and_then(|n| n.parse().ok()) {
                    return only(Ended::Signal(n));
                }
            }
            None => {}
        }
        if is_alive(feed) {
            return only(Ended::Running);
        }
        let own = outcome.filter(|o| o.pid == summary.who.pid).map(|o| o.ended);
        let (ended, status) = match (own, summary.died) {
            (Some(job::Ended::Signal(n)), _) => (Ended::Signal(n), None),
            (Some(job::Ended::Exit(status)), _) => (Ended::Exit, Some(status.into())),
            (None, Some(w)) if libc::WIFSIGNALED(w.status) => (Ended::Signal(libc::WTERMSIG(w.status)), None),
            (None, Some(w)) => (Ended::Exit, Some(libc::WEXITSTATUS(w.status))),
            (None, None) => (Ended::Unknown, None),
        };
        // The host's killer sends SIGKILL and nothing else.
        let may_be = matches!(ended, Ended::Signal(libc::SIGKILL) | Ended::Unknown);
        let killer = summary.died.map(|w| w.killer).or(outcome.map(|o| o.killer)).filter(|_| may_be);
        End { ended, status, killer: killer.unwrap_or_default() }
    }

    /// Tells the replay of a process that could not say itself how it ended.
    pub(super) fn tell(self, replay: &mut Replay, names: &Names) {
        // What a process was refused, that was ended from outside, was not what ended it.
        match (self.ended, self.status) {
            (Ended::Signal(n), _) if n != libc::SIGABRT && n != libc::SIGSEGV => {}
            (Ended::Exit, Some(0)) => {}
            _ => replay.died(true),
        }
        // `os._exit` leaves out Python's own end, and with it whoever tells.
        if let Some(status) = self.status {
            replay.apply(&Item::Meta(json!({ "exit_status": status })), names);
        }
    }
}

/// The recorded process has not ended.
pub(super) fn is_alive(feed: &Feed) -> bool {
    Target::recorded(&feed.summary().who).is_alive()
}
