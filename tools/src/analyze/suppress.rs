//! Suppressions: what is known to be kept, and is not to count. In the syntax of LeakSanitizer.

use crate::error::{Error, status};
use crate::rate::Threshold;
use crate::say;
use crate::share::Share;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use strandline::detect::{Certainty, Finding};
use strandline::event::{Frame, Names, StackId};
use strandline::format::env;
use strandline::replay::Replay;
use strandline::report::{HeldBy, Known};

/// What does not count: the patterns of all files, and growth that is allowed. Whoever judges a recording asks them, so that
/// every report, page, figure and alert leaves out the same.
#[derive(Debug, Default)]
pub(crate) struct Suppressions {
    all: Vec<Suppression>,
    /// What is only growing, and no faster than this.
    allowed: Option<Threshold>,
}

/// One line of a file.
#[derive(Debug)]
struct Suppression {
    /// Of which findings.
    of: Certainty,
    pattern: String,
    /// The file, as it was named.
    file: PathBuf,
    line: usize,
    /// It matched something.
    used: AtomicBool,
}

/// A process whose finding is asked about.
pub(crate) struct Within<'a> {
    /// Its memory.
    pub(crate) replay: &'a Replay,
    /// Its stacks.
    pub(crate) names: &'a Names,
    /// What has folded its lines, if they are.
    pub(crate) share: Option<&'a Share>,
}

impl Suppressions {
    /// Reads the files that are named by options and by the variable.
    ///
    /// # Errors
    /// A file cannot be read, or a line of it is no suppression.
    pub(crate) fn read(files: &[PathBuf]) -> Result<Suppressions, Error> {
        let variable = std::env::var_os(env::SUPPRESSIONS).unwrap_or_default();
        let more = std::env::split_paths(&variable).filter(|f| !f.as_os_str().is_empty());
        let mut read = Suppressions::default();
        for file in files.iter().cloned().chain(more) {
            let text = std::fs::read_to_string(&file)
                .map_err(|e| Error::io("cannot read suppressions", &file, e).status(status::USAGE))?;
            read.add(&file, &text)?;
        }
        Ok(read)
    }

    fn add(&mut self, file: &Path, text: &str) -> Result<(), Error> {
        for (at, whole) in text.lines().enumerate() {
            let line = whole.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parts = line.split_once(':').map(|(kind, pattern)| (kind, pattern.trim()));
            let (of, pattern) = match parts {
                Some(("leak", pattern)) => (Certainty::Leak, pattern),
                Some(("growing", pattern)) => (Certainty::Growing, pattern),
                _ => (Certainty::Note, ""),
            };
            if pattern.trim_start_matches('^').trim_end_matches('$').trim_matches('*').is_empty() {
                let what = format!("{}:{}: \"{line}\" is not a suppression", say::path(file), at + 1);
                let hint = "write leak:PATTERN or growing:PATTERN, where PATTERN matches a function, a file or the object that holds the memory; a line that begins with # is a comment";
                return Err(Error::usage(what, hint));
            }
            let (file, pattern) = (file.to_path_buf(), pattern.to_owned());
            self.all.push(Suppression { of, pattern, file, line: at + 1, used: AtomicBool::new(false) });
        }
        Ok(())
    }

    /// The same, and what is growing and grows no faster than this.
    pub(crate) fn allowing(self, allowed: Option<Threshold>) -> Suppressions {
        Suppressions { allowed, ..self }
    }

    /// Nothing is suppressed.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.allowed.is_none()
    }

    /// What suppresses a finding: a line, as `file:line`, or an option. All lines that match are used. `native`: the functions of a
    /// stack's native frames.
    pub(crate) fn of(
        &self,
        finding: &Finding,
        known: &Known,
        within: &Within<'_>,
        native: impl FnMut(StackId) -> Vec<Frame>,
    ) -> Option<String> {
        if !finding.grows() {
            return None;
        }
        let names = if self.all.is_empty() { Vec::new() } else { names(finding, known, within, native) };
        let is_meant = |s: &&Suppression| {
            s.of == finding.certainty && names.iter().any(|name| matches(&s.pattern, name))
        };
        let mut first = None;
        for meant in self.all.iter().filter(is_meant) {
            meant.used.store(true, Ordering::Relaxed);
            // Of a report to share the file's folder is nobody's business.
            let shared = meant.file.file_name().filter(|_| within.share.is_some()).map(Path::new);
            let file = say::path(shared.unwrap_or(&meant.file));
            first.get_or_insert(format!("{file}:{}", meant.line));
        }
        let allowed = self.allowed.filter(|_| finding.certainty == Certainty::Growing);
        let allowed = || allowed.filter(|rate| rate.covers(finding, within.replay));
        first.or_else(|| allowed().map(|rate| format!("--allow-growth {rate}")))
    }

    /// Says which of them matched nothing, so that none outlives its leak.
    pub(crate) fn tell_unused(&self) {
        let unused = self.all.iter().filter(|s| !s.used.load(Ordering::Relaxed));
        let unused: Vec<String> = unused
            .map(|s| format!("{}:{} ({}:{})", s.of.name(), s.pattern, say::path(&s.file), s.line))
            .collect();
        if !unused.is_empty() {
            say::line(format!("suppressions that matched nothing: {}", unused.join(", ")));
        }
    }
}

/// What a pattern is held against: functions and files of all its stacks, the statement that keeps it, who holds it.
fn names(
    finding: &Finding,
    known: &Known,
    within: &Within<'_>,
    mut native: impl FnMut(StackId) -> Vec<Frame>,
) -> Vec<String> {
    let mut names = Vec::new();
    let mut add = |frame: &Frame| {
        let frame = within.share.map_or_else(|| frame.clone(), |share| share.real(frame));
        names.extend([frame.function, frame.file]);
    };
    for site in finding.sites.iter().filter_map(|s| s.site(within.replay)) {
        within.names.frames(site.stack).chain(&site.your_line).chain([&site.frame]).for_each(&mut add);
        native(site.stack).iter().for_each(&mut add);
    }
    let nodes = finding.sites.iter().filter_map(|s| within.replay.site(s.site)?.node.clone());
    names.extend(nodes);
    names.extend(known.kept_at.iter().map(|k| k.file.clone()));
    if let HeldBy::Found(holders) = &known.held_by {
        names.extend(holders.iter().flat_map(|h| [Some(h.name.clone()), h.through.clone()]).flatten());
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Whether a pattern is somewhere in a text: `*` is any text, `^` its begin, `$` its end.
fn matches(pattern: &str, text: &str) -> bool {
    let (from_begin, pattern) = pattern.strip_prefix('^').map_or((false, pattern), |p| (true, p));
    let (to_end, pattern) = pattern.strip_suffix('$').map_or((false, pattern), |p| (true, p));
    let mut parts: Vec<&str> = pattern.split('*').collect();
    // Only the last part is bound to the end, and it is looked for there; all others as far to the front as they fit.
    let last = if to_end { parts.pop() } else { None };
    let (mut rest, mut bound) = (text, from_begin);
    for part in parts {
        let found = if bound { rest.starts_with(part).then_some(0) } else { rest.find(part) };
        let Some(at) = found else { return false };
        rest = &rest[at + part.len()..];
        bound = false;
    }
    match last {
        Some(last) if bound => rest == last,
        Some(last) => rest.ends_with(last),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_as_in_leak_sanitizer() {
        for (pattern, text, is) in [
            ("forward", "Model.forward", true),
            ("Forward", "Model.forward", false),
            ("^forward", "Model.forward", false),
            ("^Model", "Model.forward", true),
            ("forward$", "Model.forward", true),
            ("Model$", "Model.forward", false),
            ("^Model.forward$", "Model.forward", true),
            ("^Model$", "Model.forward", false),
            ("Mod*ward", "Model.forward", true),
            ("^Mod*for$", "Model.forward", false),
            ("a*b*c", "xaybzc", true),
            ("a*b*c", "xaybz", false),
            ("a*a$", "a", false),
            ("*.py$", "/job/train.py", true),
            ("^*train*$", "/job/train.py", true),
            ("é*", "café.py", true),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} in {text}");
        }
    }

    #[test]
    fn lines_are_suppressions_comments_or_errors_with_their_place() {
        let read = |text: &str| {
            let mut read = Suppressions::default();
            read.add(Path::new("known.supp"), text).map(|()| read.all)
        };
        let all = read("# known\n\n leak:a::b*c \ngrowing: cache.py\r\n").unwrap();
        let told: Vec<_> = all.iter().map(|s| (s.of, s.pattern.as_str(), s.line)).collect();
        assert_eq!(told, [(Certainty::Leak, "a::b*c", 3), (Certainty::Growing, "cache.py", 4)]);
        for bad in ["leek:a", "a", "leak:", "leak: *", "growing:^$", "race:a"] {
            let e = read(&format!("# one\n{bad}\n")).unwrap_err();
            assert_eq!(e.exit_status(), 2, "{bad}");
            assert!(e.to_string().starts_with("known.supp:2: "), "{bad}: {e}");
        }
    }
}
