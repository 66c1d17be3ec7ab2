//! What is done on an alert, as it is written on the command line, and each attempt at it.

use super::cases::News;
use crate::analyze::{Judged, Suppressions};
use crate::files::{self, Folder};
use crate::post::{Failed, post};
use crate::snapshot;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};
use strandline::format::secrets::masked;

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The verdict is appended to `alerts.jsonl` beside the recordings.
    Log,
    /// A memory_viz snapshot of the process, beside its recording.
    Snapshot,
    /// A shell command with the verdict on its standard input, one line.
    Exec(String),
    /// The verdict is posted to this address.
    Webhook(String),
    /// This signal is sent to the processes that leak.
    Signal(i32),
    /// The job is ended: SIGTERM, and SIGKILL after this time.
    Abort(Duration),
}

/// How long a command may take.
const COMMAND: Duration = Duration::from_secs(30);
/// Between SIGTERM and SIGKILL, where nothing else is said: what SLURM and Kubernetes give.
const GRACE: Duration = Duration::from_secs(30);
/// Steps whose history a snapshot on an alert shows.
pub(super) const HISTORY: u32 = 8;
const WORDS: [&str; 6] = ["log", "snapshot", "abort", "exec:", "webhook:", "signal:"];

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Action, String> {
        let bad = |why: &str| format!("\"{text}\": {why}");
        let (word, rest) = text.split_once(':').map_or((text, None), |(w, r)| (w, Some(r.trim())));
        let value = |what: &str| rest.filter(|r| !r.is_empty()).ok_or_else(|| bad(what));
        match (word, rest) {
            ("log", None) => Ok(Action::Log),
            ("snapshot", None) => Ok(Action::Snapshot),
            ("abort", None) => Ok(Action::Abort(GRACE)),
            ("abort", Some(seconds)) => match seconds.parse::<u32>() {
                Ok(s) => Ok(Action::Abort(Duration::from_secs(s.into()))),
                Err(_) => Err(bad("the grace time is a number of seconds")),
            },
            ("exec", _) => Ok(Action::Exec(value("there is no command after exec:")?.to_string())),
            ("webhook", _) => {
                let url = value("there is no address after webhook:")?;
                match url.starts_with("http://") || url.starts_with("https://") {
                    true => Ok(Action::Webhook(url.to_string())),
                    false => Err(bad("the address begins with neither http:// nor https://")),
                }
            }
            ("signal", _) => {
                let name = value("there is no signal after signal:")?;
                signal(name)
                    .map(Action::Signal)
                    .ok_or_else(|| bad("that signal is not known; such as signal:USR1"))
            }
            _ => Err(bad("is none of log, snapshot, exec:CMD, webhook:URL, signal:NAME, abort")),
        }
    }
}

/// Signals by the names that people send them by.
fn signal(name: &str) -> Option<i32> {
    let name = name.to_ascii_uppercase();
    Some(match name.strip_prefix("SIG").unwrap_or(&name) {
        "HUP" => libc::SIGHUP,
        "INT" => libc::SIGINT,
        "QUIT" => libc::SIGQUIT,
        "USR1" => libc::SIGUSR1,
        "USR2" => libc::SIGUSR2,
        "TERM" => libc::SIGTERM,
        "CONT" => libc::SIGCONT,
        "WINCH" => libc::SIGWINCH,
        number => number.parse().ok().filter(|n| (1..=64).contains(n))?,
    })
}

impl Action {
    /// Several in one variable: `webhook:https://…,exec:notify a,b,abort`. A comma separates where an action follows it.
    ///
    /// # Errors
    /// One of them cannot be understood.
    pub(crate) fn parse_all(text: &str) -> Result<Vec<Action>, String> {
        let mut pieces: Vec<String> = Vec::new();
        for piece in text.split(',') {
            let begins = WORDS.iter().any(|w| piece.trim_start().starts_with(w));
            match pieces.last_mut() {
                Some(last) if !begins => *last = format!("{last},{piece}"),
                _ => pieces.push(piece.to_string()),
            }
        }
        pieces.iter().map(|p| p.trim().parse()).collect()
    }

    /// As it is named in our lines: without an address, which may be a secret, and without what a command has of them.
    pub(crate) fn name(&self) -> String {
        match self {
            Action::Log => "log".into(),
            Action::Snapshot => "snapshot".into(),
            Action::Exec(command) => format!("exec:{}", masked([command.clone()]).concat()),
            Action::Webhook(url) => {
                let rest = url.split_once("://").map_or("", |(_, rest)| rest);
                let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
                format!("webhook to {}", authority.rsplit('@').next().unwrap_or_default())
            }
            Action::Signal(n) => format!("signal:{n}"),
            Action::Abort(_) => "abort".into(),
        }
    }

    /// One attempt. [`Action::Abort`] is the keeper's own: here it is nothing.
    pub(super) fn attempt(
        &self,
        news: &News,
        folder: &Path,
        suppressions: &Suppressions,
    ) -> Result<(), Failed> {
        match self {
            Action::Log => log(news, folder),
            Action::Snapshot => snapshot(news, suppressions),
            Action::Exec(command) => execute(command, news),
            Action::Webhook(url) => post(url, &[], &news.verdict),
            Action::Signal(n) => {
                news.targets.iter().for_each(|t| t.send(*n));
                Ok(())
            }
            Action::Abort(_) => Ok(()),
        }
    }
}

fn log(news: &News, folder: &Path) -> Result<(), Failed> {
    let file = Folder::ours(folder).and_then(|folder| folder.append(OsStr::new("alerts.jsonl")));
    let write = |mut file: File| {
        // A full disk takes a part of a line: what comes after it is whole again.
        let begun = if is_torn(&file) { "\n" } else { "" };
        file.write_all(format!("{begun}{}\n", news.verdict).as_bytes())
    };
    file.and_then(write).map_err(|e| Failed::for_now(e.to_string()))
}

/// Whether a file ends within a line.
fn is_torn(file: &File) -> bool {
    let mut last = [0];
    let end = file.metadata().map_or(0, |m| m.len());
    end > 0 && file.read_exact_at(&mut last, end - 1).is_ok() && last != *b"\n"
}

fn snapshot(news: &News, suppressions: &Suppressions) -> Result<(), Failed> {
    let judged = Judged::read(&news.recording, suppressions, &mut |_| {})
        .map_err(|e| Failed::for_good(e.to_string()))?;
    // One for each alert; one that is there is never overwritten.
    let free =
        (1..).map(|n| news.recording.with_extension(format!("alert-{n}.pickle"))).find(|p| !p.exists());
    let Some(path) = free else { return Ok(()) };
    let to = || files::create_unasked(&path);
    snapshot::write(&judged, &path, Some(HISTORY), to).map(drop).map_err(|e| Failed::for_good(e.to_string()))
}

fn execute(line: &str, news: &News) -> Result<(), Failed> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::piped()).stdout(Stdio::null());
    // A group of its own: Ctrl-C in the job's terminal is not meant for it, and it can be ended with all it started.
    command.process_group(0);
    // SAFETY: sigemptyset and sigprocmask are async-signal-safe, and the set is a local of the child.
    unsafe {
        command.pre_exec(|| {
            let mut none = std::mem::MaybeUninit::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            crate::run::restore_limits();
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(|e| Failed::for_now(format!("cannot start: {e}")))?;
    // It may end without reading what it is given; a verdict is smaller than a pipe holds, so this never waits.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(format!("{}\n", news.verdict).as_bytes());
    }
    let until = Instant::now() + COMMAND;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(Failed::for_now(status.to_string())),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                // SAFETY: the group is the child's own, and the child has not been waited for.
                unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
                let _ = child.wait();
                return Err(Failed::for_good(format!("ended after {} s without an end", COMMAND.as_secs())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read_one_by_one_and_from_a_variable() {
        let all = Action::parse_all("webhook:https://h/x?a,b, exec:notify a,b ,log,signal:SIGUSR1,abort:5")
            .unwrap();
        let (url, line) = ("https://h/x?a,b".to_string(), "notify a,b".to_string());
        let abort = Action::Abort(Duration::from_secs(5));
        assert_eq!(
            all,
            [Action::Webhook(url), Action::Exec(line), Action::Log, Action::Signal(libc::SIGUSR1), abort]
        );
        for bad in
            ["mail:x", "exec:", "webhook:example.com", "signal:NOPE", "abort:soon", "log,", "signal:65"]
        {
            assert!(Action::parse_all(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_with_a_secret_in_it_is_not_printed() {
        let action: Action = "webhook:https://hooks.example.com/services/T0/SECRET".parse().unwrap();
        assert_eq!(action.name(), "webhook to hooks.example.com");
        assert_eq!(Action::Webhook("http://me:pass@h:80?x".into()).name(), "webhook to h:80");
        let notify = "curl -H 'Authorization: Bearer abc' https://me:pass@h/x";
        assert_eq!(Action::Exec(notify.into()).name(), "exec:curl -H 'Authorization: ***' https://***@h/x");
    }
}
