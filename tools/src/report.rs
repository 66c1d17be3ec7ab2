//! `strandline report`: the verdicts of a recording.

use crate::error::{Error, status};
use crate::job::Checkout;
use crate::share::Share;
use crate::store::Fetched;
use crate::{analyze, cli, files, recording, say, terminal};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use strandline::report::{self as print, Report, SourceLinks, Style};

/// Runs the command; the result is the exit status: with `--fail-on-leak` that of the gate, else 0.
///
/// # Errors
/// No recording can be read, or the report cannot be written.
pub(crate) fn main(options: &cli::Report) -> Result<u8, Error> {
    let suppressions = options.gate.suppressions()?;
    let fetched = Fetched::of(options.recording.as_deref())?;
    let asked = fetched.as_ref().map(|f| f.path.as_path()).or(options.recording.as_deref());
    let is_beside = options.html.as_ref().is_some_and(|path| path.as_os_str() == ".");
    if is_beside && fetched.is_some() {
        let what = "the page would be written next to the recording, which is in an object store";
        let hint = "name its file: --html=FILE.html";
        return Err(Error::usage(what, hint));
    }
    if options.source_links.is_some() && !is_page(options) {
        return Err(Error::usage(
            "--source-links works only with the HTML page",
            "add --html, or --format html",
        ));
    }
    let found = recording::find(asked)?;
    let share = options.share.then(Share::default);
    let mut judged = analyze::judge(&found, None, &suppressions, share.as_ref())?;
    if let Some(step) = options.at {
        if options.format == cli::ReportFormat::Html {
            let hint = "click a step in the page, or use --at with --format text or json";
            return Err(Error::usage("the page shows every step", hint));
        }
        judged = analyze::judge_at_step(judged, step, &suppressions)?;
    }
    let mut report = analyze::report(&judged, None);
    report.source_links = options.source_links.map(|to| links(to, &judged)).transpose()?;
    // What would be typed next names the recording, and is of no use to whom the report is shared with.
    if let Some(first) = found.first().filter(|_| !options.share && fetched.is_none()) {
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
    // `--html` alone: beside the recording.
    let beside = found.first().filter(|_| is_beside).map(|first| first.with_extension("html"));
    match beside.as_deref().or(options.html.as_deref()).or(options.output.as_deref()) {
        Some(path) => write(path, options, &judged, &report)?,
        None => {
            let fail = |e: io::Error| Error::new(e.to_string());
            let text = worded(options, &judged, &report, terminal::style_of_stdout(), &fail)?;
            say::out(&String::from_utf8_lossy(&text));
        }
    }
    suppressions.tell_unused();
    let Some(decision) = options.gate.gate().map(|g| g.decide(&judged)) else { return Ok(0) };
    if decision.status != 0 {
        say::line(decision.why);
    }
    Ok(decision.status)
}

/// The passes that a page is drawn from, of the processes that it draws.
fn passes(
    judged: &[analyze::Judged],
    report: &Report<'_>,
) -> Result<BTreeMap<usize, print::html::Pass>, Error> {
    print::html::drawn(report).into_iter().map(|i| Ok((i, judged[i].page()?))).collect()
}

/// Links to lines of the job's files.
///
/// # Errors
/// No recording knows the commit that its job was at.
fn links(to: cli::LinksTo, judged: &[analyze::Judged]) -> Result<SourceLinks, Error> {
    if to == cli::LinksTo::Vscode {
        return Ok(SourceLinks { before: "vscode://file".into(), root: String::new(), line: ":" });
    }
    let told = judged.iter().find_map(|j| Checkout::parse(j.replay.meta().get("checkout")?.as_str()?));
    told.map(|checkout| checkout.links()).ok_or_else(|| {
        let what = "the recording does not contain the commit of the job's code";
        let hint = "it contains the commit if the job is started with `strandline run` in a git checkout whose `origin` is on a host";
        Error::usage(what, hint)
    })
}

fn is_page(options: &cli::Report) -> bool {
    options.html.is_some() || options.format == cli::ReportFormat::Html
}

fn write(
    path: &Path,
    options: &cli::Report,
    judged: &[analyze::Judged],
    report: &Report<'_>,
) -> Result<(), Error> {
    if is_page(options) && path.extension().is_some_and(|e| e == "strand") {
        let hint = "a page is written to a file of its own: --html=FILE.html, and the recording goes last";
        return Err(Error::usage(format!("{} would be overwritten", say::path(path)), hint));
    }
    let fail = |e| Error::io("cannot write the report", path, e).status(status::FAILED);
    let text = worded(options, judged, report, Style::default(), &fail)?;
    files::write(path, &text).map_err(fail)?;
    let next = if is_page(options) { ": open it in a browser" } else { "" };
    say::line(format!("report written to {}{next}", say::path(path)));
    Ok(())
}

fn worded(
    options: &cli::Report,
    judged: &[analyze::Judged],
    report: &Report<'_>,
    style: Style,
    fail: &dyn Fn(io::Error) -> Error,
) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    // Where this machine keeps its files is not shared.
    let root = if options.share { String::new() } else { root() };
    let format = if is_page(options) { cli::ReportFormat::Html } else { options.format };
    let written = match format {
        cli::ReportFormat::Text => print::text::write(&mut text, report, style),
        cli::ReportFormat::Html => print::html::write(&mut text, report, passes(judged, report)?),
        cli::ReportFormat::Json => print::json::write(&mut text, report),
        cli::ReportFormat::Github => print::ci::github(&mut text, report, &root),
        cli::ReportFormat::Sarif => print::ci::sarif(&mut text, report, &root),
        cli::ReportFormat::Junit => print::ci::junit(&mut text, report, &root),
    };
    written.map(|()| text).map_err(fail)
}

/// The folder that files are named from in CI: the checkout where a workflow says so, else where we are.
fn root() -> String {
    let workspace = std::env::var_os("GITHUB_WORKSPACE").filter(|w| !w.is_empty()).map(PathBuf::from);
    let root = workspace.or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    root.to_string_lossy().into_owned()
}
