//! One attempt at what is to be done on an alert.

use super::action::Action;
use super::cases::News;
use crate::analyze::{Judged, Suppressions};
use crate::files::{self, Folder};
use crate::post::{Failed, post};
use crate::{inherited, snapshot};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a command may take.
const COMMAND: Duration = Duration::from_secs(30);
/// Steps whose history a snapshot on an alert shows.
pub(super) const HISTORY: u32 = 8;

/// One attempt. [`Action::Abort`] is the keeper's own: here it is nothing.
pub(super) fn attempt(
    action: &Action,
    news: &News,
    folder: &Path,
    suppressions: &Suppressions,
) -> Result<(), Failed> {
    match action {
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

fn log(news: &News, folder: &Path) -> Result<(), Failed> {
    let file = Folder::ours(folder).and_then(|folder| folder.append(OsStr::new("alerts.jsonl")));
    let write = |mut file: File| {
        // A full disk takes a part of a line: what comes after it is whole again.
        let begun = if is_torn(&file) { "\n" } else { "" };
        file.write_all(format!("{begun}{}\n", news.verdict).as_bytes())
    };
    file.and_then(write).map_err(|e| Failed::retryable(e.to_string()))
}

/// Whether a file ends within a line.
fn is_torn(file: &File) -> bool {
    let mut last = [0];
    let end = file.metadata().map_or(0, |m| m.len());
    end > 0 && file.read_exact_at(&mut last, end - 1).is_ok() && last != *b"\n"
}

fn snapshot(news: &News, suppressions: &Suppressions) -> Result<(), Failed> {
    let judged = Judged::read(&news.recording, suppressions, &mut |_| {})
        .map_err(|e| Failed::permanent(e.to_string()))?;
    // One for each alert; one that is there is never overwritten.
    let free =
        (1..).map(|n| news.recording.with_extension(format!("alert-{n}.pickle"))).find(|p| !p.exists());
    let Some(path) = free else { return Ok(()) };
    let to = || files::create_in_own_folder(&path);
    snapshot::write(&judged, &path, Some(HISTORY), to).map(drop).map_err(|e| Failed::permanent(e.to_string()))
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
            inherited::restore_sigxfsz();
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(|e| Failed::retryable(format!("cannot start: {e}")))?;
    // It may end without reading what it is given; a verdict is smaller than a pipe holds, so this never waits.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(format!("{}\n", news.verdict).as_bytes());
    }
    let until = Instant::now() + COMMAND;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(Failed::retryable(status.to_string())),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                // SAFETY: the group is the child's own, and the child has not been waited for.
                unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
                let _ = child.wait();
                return Err(Failed::permanent(format!(
                    "killed after {} s, because it had not ended",
                    COMMAND.as_secs()
                )));
            }
        }
    }
}
