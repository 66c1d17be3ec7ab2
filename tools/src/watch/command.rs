//! `strandline watch`: the watch alone, over a job that runs without `strandline run` around it.

use super::watcher::{INTERVAL, Watch};
use crate::alert::Settings;
use crate::analyze::Suppressions;
use crate::driver;
use crate::error::{Error, status};
use crate::files::{self, Folder};
use crate::live::Which;
use crate::say::{self, shown};
use crate::ship::{self, Shipper};
use crate::signals::Set as Signals;
use crate::snapshot;
use crate::{cli, recording};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use strandline::report::plural;

/// Runs the command; the result is the exit status: 82 where an alert ended the job, else 0.
///
/// # Errors
/// Nothing runs there, or an option or variable cannot be understood.
pub(crate) fn main(options: &cli::Watch) -> Result<u8, Error> {
    let suppressions = Suppressions::read(&options.suppressions)?;
    let settings = Settings::new(&options.alerts, suppressions.into())?;
    let ship = ship::Settings::new(&options.shipping)?;
    let folder = folder(options)?;
    // Blocked before any thread is started, so that they come to us alone.
    let signals = Signals::termination();
    signals.block().map_err(|e| Error::new(format!("cannot block signals: {e}")))?;
    if options.background {
        return Ok(background(&folder, &settings, &signals));
    }
    let shipper = ship.and_then(|s| Shipper::start(&s, &folder, Which::Running));
    let status = foreground(&folder, &settings, &signals, shipper.is_some());
    if let Some(shipper) = shipper {
        shipper.finish();
    }
    status
}

/// The watch of a person. `ships`: what has ended is of use, too.
fn foreground(folder: &Path, settings: &Settings, signals: &Signals, ships: bool) -> Result<u8, Error> {
    let mut watch = Watch::new(folder, settings, None, Which::Running);
    watch.round();
    // The job may just be beginning: its file comes with its first CUDA call, and has its header a moment later.
    if watch.is_idle() && watch.may_begin() {
        say::line(format!("nothing is recorded in {} yet; waiting for a recording", shown(folder)));
        while watch.is_idle() && watch.may_begin() {
            match signals.wait_for(INTERVAL) {
                Some(_) => return Ok(0),
                None => watch.round(),
            }
        }
    }
    if watch.is_idle() && ships {
        say::line(format!(
            "no job recorded in {} is running on this machine; the files in that folder are sent",
            shown(folder)
        ));
        watch.end();
        return Ok(0);
    }
    if watch.is_idle() {
        let what = format!("no running job on this machine records into {}", shown(folder));
        let hint = format!("for a job that has ended: strandline report {}", shown(folder));
        return Err(Error::usage(what, hint));
    }
    let processes = plural(watch.running() as u64, "process");
    say::line(format!("watching {processes} in {}", shown(folder)));
    let snapshots = snapshot::fulfil(folder, Which::Running, false, settings.suppressions.clone());
    while !watch.is_idle() {
        match signals.wait_for(INTERVAL) {
            Some(_) => break,
            None => watch.round(),
        }
    }
    drop(snapshots);
    Ok(if watch.end() { status::ABORTED } else { 0 })
}

/// The watcher that a job starts for itself. It says what it has to say in a file beside the recordings.
fn background(folder: &Path, settings: &Settings, signals: &Signals) -> u8 {
    let host = files::host();
    let open = |name: String| Folder::ours(folder).and_then(|f| f.append(OsStr::new(&name)));
    let Ok(lock) = open(format!(".watch-{host}.lock")) else { return status::FAILED };
    if let Ok(log) = open(format!("watch-{host}.log")) {
        // SAFETY: both descriptors are open; standard error goes to the file from now on.
        unsafe { libc::dup2(log.as_raw_fd(), libc::STDERR_FILENO) };
    }
    // Another rank's watcher may have gone away just when this one was refused: a look after letting go settles it.
    let mut watch = None;
    while files::lock(&lock, libc::LOCK_EX | libc::LOCK_NB).is_ok() {
        begun(&lock, folder);
        let watch = watch.get_or_insert_with(|| {
            let snapshots = snapshot::fulfil(folder, Which::Running, false, settings.suppressions.clone());
            let others = (driver::start(folder), snapshots);
            (others, Watch::new(folder, settings, None, Which::Running))
        });
        loop {
            watch.1.round();
            if watch.1.is_idle() {
                break;
            }
            if signals.wait_for(INTERVAL) == Some(libc::SIGTERM) {
                watch.1.terminating();
            }
        }
        // Of one that is killed the number stays, and whoever watches next says so.
        let _ = lock.set_len(0);
        let _ = files::lock(&lock, libc::LOCK_UN);
        watch.1.round();
        if watch.1.is_idle() {
            break;
        }
    }
    if let Some((others, watch)) = watch {
        drop(others);
        watch.end();
        say::line("no recorded job is running here any more, so watching has ended");
    }
    0
}

/// Says that the watch has begun, and what became of the one before it.
fn begun(mut lock: &File, folder: &Path) {
    let mut before = String::new();
    if lock.read_to_string(&mut before).is_ok_and(|n| n > 0) {
        let pid = before.trim();
        say::line(format!(
            "the previous watcher (pid {pid}) ended unexpectedly: alerts that it sent may be repeated"
        ));
    }
    let pid = std::process::id();
    let _ = lock.set_len(0).and_then(|()| lock.write_all(format!("{pid}\n").as_bytes()));
    say::line(format!("watching {}, pid {pid}", shown(folder)));
}

/// The folder that is meant: that of the recordings which any other command would take.
fn folder(options: &cli::Watch) -> Result<PathBuf, Error> {
    if let (true, Some(folder)) = (options.background, &options.folder) {
        return Ok(folder.clone());
    }
    let found = match (recording::find(options.folder.as_deref()), &options.folder) {
        (Err(_), Some(folder)) if folder.is_dir() => return Ok(folder.clone()),
        (found, _) => found?,
    };
    let parent = found.first().and_then(|r| r.parent()).map(PathBuf::from);
    parent.ok_or_else(|| Error::new("there is no recording to watch").status(status::USAGE))
}
