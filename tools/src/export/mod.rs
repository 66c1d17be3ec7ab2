//! `strandline export`: a recording for tools that people have already.

mod parquet;
mod read;

use crate::error::{Error, status};
use crate::share::Share;
use crate::store::Fetched;
use crate::{analyze, cli, files, recording, say};
use cli::ExportFormat;
use flate2::{Compression, GzBuilder};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use strandline::report::Process;
use strandline::report::export::{self as print, Column, Profile};

/// Runs the command; the result is the exit status.
///
/// # Errors
/// No recording can be read, there is no such moment, or the export cannot be written.
pub(crate) fn main(options: &cli::Export) -> Result<u8, Error> {
    refuse(options)?;
    let suppressions = analyze::Suppressions::read(&options.suppressions)?;
    let fetched = Fetched::of(options.recording.as_deref())?;
    let asked = fetched.as_ref().map(|f| f.path.as_path()).or(options.recording.as_deref());
    let found = recording::find(asked)?;
    let share = options.share.then(Share::default);
    // No format has what filled a device.
    let judged = analyze::judge_only(&found, &suppressions, share.as_ref())?;
    judged.iter().for_each(analyze::Judged::warn_of_damage);
    let report = analyze::report(&judged, None);
    if options.format == ExportFormat::Parquet {
        let first = found.first().map_or(Path::new(""), PathBuf::as_path);
        say::line(parquet::write(options, &judged, &report, asked, first)?);
        return Ok(0);
    }
    if let Some(first) = judged.first().filter(|_| judged.iter().all(|j| j.replay.events() == 0)) {
        return Err(analyze::nothing(first));
    }
    let begun = judged.iter().map(analyze::Judged::epoch_ns).min().unwrap_or(0);
    let mut out = Vec::new();
    let written = match options.format {
        ExportFormat::Perfetto => {
            let lines =
                judged.iter().map(|j| read::timeline(j, options.lines)).collect::<Result<Vec<_>, _>>()?;
            print::perfetto(&mut out, &report, &lines)
        }
        format => {
            let mut profiles = Vec::new();
            for (j, process) in judged.iter().zip(&report.processes) {
                profiles.push(read::profile(j, process, &report, options)?);
            }
            match format {
                ExportFormat::Folded if options.allocated => {
                    print::folded(&mut out, &profiles, Column::Allocated)
                }
                ExportFormat::Folded => print::folded(&mut out, &profiles, Column::Held(0)),
                ExportFormat::Speedscope => print::speedscope(&mut out, &profiles, &name(&report.processes)),
                ExportFormat::Pprof | ExportFormat::Perfetto | ExportFormat::Parquet => {
                    zipped(&mut out, &profiles, begun)
                }
            }
        }
    };
    written.map_err(|e| Error::new(e.to_string()))?;
    match &options.output {
        Some(path) => write(path, &out)?,
        // A reader that has gone away has what it wanted.
        None => drop(io::stdout().lock().write_all(&out)),
    }
    Ok(0)
}

/// What cannot be meant.
fn refuse(options: &cli::Export) -> Result<(), Error> {
    let refused = |what: &str, hint: &str| Err(Error::usage(what, hint));
    let speedscope = options.format == ExportFormat::Speedscope;
    if options.at.len() > 1 && !speedscope {
        return refused("this format shows one moment only", "--format speedscope shows several");
    }
    if options.format == ExportFormat::Parquet && !options.at.is_empty() {
        return refused("tables contain every step", "use --at with --format folded, speedscope or pprof");
    }
    if options.format != ExportFormat::Parquet
        && (options.job.is_some() || options.commit.is_some() || options.events)
    {
        return refused(
            "only tables (--format parquet) can contain several jobs, or events",
            "--job, --commit and --events need --format parquet",
        );
    }
    if options.format == ExportFormat::Perfetto && !options.at.is_empty() {
        return refused(
            "a timeline shows every moment",
            "use --at with --format folded, speedscope or pprof",
        );
    }
    if options.allocated && options.format != ExportFormat::Folded {
        return refused(
            "files for speedscope and pprof always contain both what was allocated and what was held",
            "use --allocated with --format folded",
        );
    }
    let terminal = options.output.is_none() && io::stdout().is_terminal();
    if options.format == ExportFormat::Pprof && terminal {
        return refused(
            "a compressed profile cannot be shown on a terminal",
            "write it to a file: -o FILE.pb.gz",
        );
    }
    Ok(())
}

/// What the file is called: the program.
fn name(processes: &[Process<'_>]) -> String {
    let program = processes.first().and_then(|p| strandline::report::Facts::of(p.replay).program());
    program.unwrap_or_else(|| "GPU memory".to_owned())
}

fn zipped(out: &mut Vec<u8>, profiles: &[Profile<'_>], begun: u64) -> io::Result<()> {
    // Without a time of its own: the same recording makes the same file.
    let mut zip = GzBuilder::new().write(out, Compression::default());
    zip.write_all(&print::pprof(profiles, begun))?;
    zip.finish().map(drop)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if path.extension().is_some_and(|e| e == "strand") {
        let what = format!("{} would be overwritten", say::path(path));
        return Err(Error::usage(what, "-o names the file to write; the recording is the last argument"));
    }
    files::write(path, bytes)
        .map_err(|e| Error::io("cannot write the export", path, e).status(status::FAILED))?;
    say::line(format!("written to {}", say::path(path)));
    Ok(())
}
