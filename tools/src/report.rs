//! `strandline report`: the verdicts of a recording.

use crate::error::{Error, status};
use crate::{analyze, cli, recording, say, terminal};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use strandline::report::{self as print, Report, Style};

/// Runs the command; the result is the exit status: with `--fail-on-leak` that of the gate, else 0.
///
/// # Errors
/// No recording can be read, or the report cannot be written.
pub(crate) fn main(options: &cli::Report) -> Result<u8, Error> {
    let found = recording::find(options.recording.as_deref())?;
    let judged = analyze::judge(&found, None)?;
    let mut report = analyze::report(&judged, None);
    if let Some(first) = found.first() {
        let place = match (found.len(), first.parent()) {
            (1, _) | (_, None) => first.as_path(),
            (_, Some(folder)) => folder,
        };
        report.next = analyze::next(&judged, place);
        // What has just been typed is no news.
        report.next.retain(|(command, _)| {
            !command.starts_with("strandline report") || analyze::any_running(&judged)
        });
    }
    match &options.output {
        Some(path) => write_file(path, options.format, &report)?,
        None => {
            let style = terminal::style_of_stdout();
            let text = worded(options.format, &report, style).map_err(|e| Error::new(e.to_string()))?;
            say::out(&String::from_utf8_lossy(&text));
        }
    }
    let gate = analyze::gate(analyze::worst(&judged), options.allow_inconclusive);
    Ok(if options.fail_on_leak { gate } else { 0 })
}

fn write_file(path: &Path, format: cli::ReportFormat, report: &Report<'_>) -> Result<(), Error> {
    let fail = |e| Error::io("cannot write the report", path, e).status(status::FAILED);
    let text = worded(format, report, Style::default()).map_err(fail)?;
    let mut file = BufWriter::new(File::create(path).map_err(fail)?);
    file.write_all(&text).and_then(|()| file.flush()).map_err(fail)?;
    say::line(format!("report written to {}", path.display()));
    Ok(())
}

fn worded(format: cli::ReportFormat, report: &Report<'_>, style: Style) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    match format {
        cli::ReportFormat::Text => print::text::write(&mut text, report, style)?,
        cli::ReportFormat::Json => print::json::write(&mut text, report, true)?,
    }
    Ok(text)
}
