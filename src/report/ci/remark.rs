//! What there is to remark on, how loudly, and at which line of the user's.

use crate::detect::{Certainty, Finding, Outcome};
use crate::event::{Frame, is_generated, is_torch, named};
use crate::replay::SiteKind;
use crate::report::model::{Facts, Process, Report};
use crate::report::style::Ink;
use crate::report::text::{Told, findings, site};

named! {
    /// How loudly.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(super) enum Level {
        Error = "error",
        Warning = "warning",
        Notice = "notice",
    }
}

/// A finding, and where to remark on it.
pub(super) struct Remark<'a> {
    pub(super) level: Level,
    pub(super) process: &'a Process<'a>,
    /// The process among others; `None` where there are no others.
    pub(super) name: Option<String>,
    pub(super) finding: &'a Finding,
    pub(super) told: Told,
    pub(super) spot: Option<Spot>,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Below the root with `/` between its parts where it lies there, else as a whole.
    pub(super) file: String,
    /// It lies below the root.
    pub(super) is_below: bool,
    pub(super) line: u32,
    pub(super) function: String,
    /// The statement, where it is known.
    pub(super) source: Option<String>,
}

/// The word on the job, and why, in one line.
pub(super) fn word(r: &Report<'_>) -> (Level, String) {
    let (phrase, ink) = r.phrase();
    let level = match ink {
        Ink::Bad => Level::Error,
        Ink::Doubt => Level::Warning,
        Ink::Good | Ink::Faint => Level::Notice,
    };
    (level, format!("{phrase}{}", r.summary()))
}

/// Where the allocation was requested that failed and ended the job: the first line of the user's own, else the first of a package.
pub(super) fn failed(r: &Report<'_>, root: &str) -> Option<Spot> {
    let p = r.lead().filter(|p| p.verdict.outcome == Outcome::Oom)?;
    let o = p.replay.devices().find_map(|d| d.ooms.last().filter(|o| !p.replay.lived_on(d.id, o)))?;
    let frames = || p.names.frames(o.stack).filter(|f| !is_generated(&f.file));
    let yours = frames().find(|f| !p.replay.is_installed(&f.file));
    yours.or_else(|| frames().find(|f| !is_torch(&f.file))).and_then(|frame| at(p, root, frame))
}

/// All findings, the loudest first. `root`: the folder that files are named from.
pub(super) fn remarks<'a>(r: &'a Report<'a>, root: &str) -> Vec<Remark<'a>> {
    let mut all = Vec::new();
    let order = r.job().order;
    for p in order.iter().filter_map(|i| r.processes.get(*i)) {
        let name = (r.processes.len() > 1).then(|| r.name(p));
        for told in findings(p) {
            let Some(finding) = p.findings.get(told.index) else { continue };
            let spot = spot(p, told.index, finding, root);
            let name = name.clone();
            all.push(Remark { level: level(finding), process: p, name, finding, told, spot });
        }
    }
    all.sort_by_key(|remark| remark.level);
    all
}

fn level(f: &Finding) -> Level {
    match f.grows() {
        true if f.certainty == Certainty::Leak => Level::Error,
        true => Level::Warning,
        false => Level::Notice,
    }
}

/// The statement that keeps it, else the line of the user's that led there, else the line that allocated.
fn spot(p: &Process<'_>, index: usize, f: &Finding, root: &str) -> Option<Spot> {
    let of = |frame: &Frame| at(p, root, frame);
    if let Some(kept) = p.known.get(index).and_then(|k| k.kept_at.as_ref()) {
        return of(&kept.frame()).map(|spot| Spot { source: Some(kept.source.clone()), ..spot });
    }
    let site = site(p, f)?;
    if site.kind == SiteKind::Native {
        let native = p.native.get(&site.stack)?;
        return native.frames.get(native.reached).and_then(of);
    }
    site.your_line.as_ref().and_then(of).or_else(|| of(&site.frame))
}

/// A frame's line, where that is a line of a file.
fn at(p: &Process<'_>, root: &str, frame: &Frame) -> Option<Spot> {
    let cwd = Facts::of(p.replay).text("cwd").unwrap_or_default();
    let is_file = frame.line > 0 && !frame.file.is_empty() && !frame.file.starts_with('<');
    is_file.then(|| {
        let (file, is_below) = below(root, cwd, &frame.file);
        Spot { file, is_below, line: frame.line, function: frame.function.clone(), source: None }
    })
}

/// A file of a job that ran in `cwd`, as it is called from `root` (empty: from nowhere); and whether it lies below.
fn below(root: &str, cwd: &str, file: &str) -> (String, bool) {
    let whole = match file.starts_with('/') || !cwd.starts_with('/') {
        true => file.to_owned(),
        false => format!("{cwd}/{file}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    let clean = parts.join("/");
    if !whole.starts_with('/') {
        // Nobody knows where the job ran: it is taken for where we are.
        let is_below = !clean.starts_with("../");
        return (clean, is_below);
    }
    let rest = match root.trim_end_matches('/') {
        "" if root.is_empty() => None,
        root => whole_prefix(&clean, root.trim_start_matches('/')),
    };
    match rest {
        Some(rest) => (rest.to_owned(), true),
        None => (format!("/{clean}"), false),
    }
}

/// What follows `root/` in a path.
fn whole_prefix<'p>(path: &'p str, root: &str) -> Option<&'p str> {
    if root.is_empty() {
        return Some(path);
    }
    path.strip_prefix(root)?.strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_from_the_root() {
        let of = |cwd: &str, file: &str| below("/home/u/repo", cwd, file);
        assert_eq!(of("/home/u/repo", "train.py"), ("train.py".into(), true));
        assert_eq!(of("/home/u/repo/jobs", "./../src/a.py"), ("src/a.py".into(), true));
        assert_eq!(of("/x", "/home/u/repo/src/a.py"), ("src/a.py".into(), true));
        assert_eq!(of("/x", "/home/u/repo2/a.py"), ("/home/u/repo2/a.py".into(), false));
        assert_eq!(of("/x", "a.py"), ("/x/a.py".into(), false));
        assert_eq!(of("", "your/file1.py"), ("your/file1.py".into(), true));
        assert_eq!(of("", "../a.py"), ("../a.py".into(), false));
        assert_eq!(below("", "/x", "a.py"), ("/x/a.py".into(), false), "no root is no folder of all");
        assert_eq!(below("/", "/x", "a.py"), ("x/a.py".into(), true));
    }
}
