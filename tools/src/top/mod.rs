//! `strandline top`: running jobs as they are now, a row for each rank; nothing is sent, and the job does not notice.

mod draw;
mod hangup;
mod jobs;
mod rank;
mod state;
#[cfg(test)]
mod tests;

use crate::analyze::Suppressions;
use crate::background::spawn;
use crate::cli;
use crate::clock::unix_ns;
use crate::error::{Error, status};
use crate::say::shown;
use crate::signals::Set as Signals;
use crate::terminal;
use crossbeam_channel::{Receiver, Sender};
use jobs::Jobs;
use rank::Rank;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use state::{Ask, State};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How long a signal or new rows wait at most.
const TICK: Duration = Duration::from_millis(200);

/// Runs the command; the result is the exit status.
///
/// # Errors
/// There is no terminal, or nothing to show.
pub(crate) fn main(options: &cli::Top) -> Result<u8, Error> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let what = "top needs a terminal, but standard input or output is not a terminal";
        let hint = "for scripts: strandline report --format json, or strandline run --metrics";
        return Err(Error::usage(what, hint));
    }
    let suppressions = Suppressions::read(&options.suppressions)?;
    // Blocked before any thread is started, so that they come to us, and the terminal is put back before we end.
    let signals = Signals::termination();
    signals.block().map_err(|e| Error::new(format!("cannot block signals: {e}")))?;
    let (rows, _stop) = follow(options.recording.clone(), suppressions.into())?;
    hangup::exit_on_hangup();
    let terminal = ratatui::try_init().map_err(|e| {
        ratatui::restore();
        Error::new(format!("this terminal cannot be drawn on: {e}")).status(status::USAGE)
    })?;
    let done = show(terminal, &rows, &signals);
    ratatui::restore();
    done.map_err(|e| Error::new(format!("the terminal cannot be drawn on any more: {e}")))?;
    Ok(0)
}

/// Follows what was asked for on a thread of its own, until what stops it is dropped.
///
/// # Errors
/// There is nothing to show.
fn follow(
    asked: Option<PathBuf>,
    suppressions: Arc<Suppressions>,
) -> Result<(Receiver<Vec<Rank>>, Sender<()>), Error> {
    let (send, rows) = crossbeam_channel::bounded(1);
    let (stop, stopped) = crossbeam_channel::bounded(0);
    let (opened, is_open) = crossbeam_channel::bounded(1);
    let work = move || match Jobs::open(asked.as_deref(), suppressions) {
        Ok(jobs) => {
            let _ = opened.send(Ok(()));
            jobs.follow(&send, &stopped);
        }
        Err(e) => drop(opened.send(Err(e))),
    };
    let started = spawn("sl-top", work);
    started.map_err(|e| Error::new(format!("cannot start a thread: {e}")))?;
    is_open.recv().map_err(|_| Error::new("the recordings cannot be read"))??;
    Ok((rows, stop))
}

/// Draws until it is asked to end.
fn show(mut terminal: DefaultTerminal, rows: &Receiver<Vec<Rank>>, signals: &Signals) -> std::io::Result<()> {
    let mut state = State { message: "reading …".into(), ascii: terminal::is_ascii(), ..State::default() };
    let (said, says) = crossbeam_channel::unbounded();
    loop {
        if let Some(new) = rows.try_iter().last() {
            if state.rows.is_empty() {
                state.message.clear();
            }
            state.rows = new;
        }
        if let Some(message) = says.try_iter().last() {
            state.message = message;
        }
        terminal.draw(|frame| draw::draw(frame, &state, unix_ns()))?;
        if signals.wait_for(Duration::ZERO).is_some() {
            return Ok(());
        }
        if !event::poll(TICK)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        match state.key(key) {
            Ask::Nothing => {}
            Ask::Quit => return Ok(()),
            Ask::Snapshot => {
                let shown = state.shown();
                if let Some(row) = shown.get(state.at(&shown)) {
                    snapshot(row, said.clone());
                    state.message = "taking a snapshot …".into();
                }
            }
        }
    }
}

/// Takes a snapshot of a row's process beside its recording: in a process of its own, which writes nothing on this screen.
fn snapshot(row: &Rank, said: Sender<String>) {
    let recording = row.key.0.clone();
    let path = recording.with_extension(format!("top-step{}.pickle", row.steps));
    let work = move || {
        let _ = said.send(match taken(&recording, &path) {
            Ok(()) => format!("snapshot: {} (pytorch.org/memory_viz)", shown(&path)),
            Err(e) => format!("no snapshot: {e}"),
        });
    };
    // Where no thread can be had, the message stays.
    let _ = spawn("sl-snapshot", work);
}

fn taken(recording: &Path, path: &Path) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(own);
    command.arg("snapshot").arg(recording).arg("-o").arg(path).stdin(Stdio::null());
    let done = command.output().map_err(|e| e.to_string())?;
    if done.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&done.stderr);
    Err(told.lines().next().unwrap_or_default().trim_start_matches("strandline: ").to_string())
}
