//! Suppressions: what is known to be kept, and is not to count. In the syntax of LeakSanitizer.

use super::Judged;
use crate::error::{Error, status};
use crate::say;
use std::path::{Path, PathBuf};
use strandline::detect::{Certainty, Finding};
use strandline::event::Frame;
use strandline::format::env;
use strandline::report::{HeldBy, Known};

/// The patterns of all files.
#[derive(Debug, Default)]
pub(crate) struct Suppressions {
    all: Vec<Suppression>,
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
    used: bool,
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
                let what = format!("{}:{}: \"{line}\" is no suppression", say::path(file), at + 1);
                let hint = "write leak:PATTERN or growing:PATTERN, of a function, a file or what keeps it; # begins a comment";
                return Err(Error::new(what).hint(hint).status(status::USAGE));
            }
            let (file, pattern) = (file.to_path_buf(), pattern.to_owned());
            self.all.push(Suppression { of, pattern, file, line: at + 1, used: false });
        }
        Ok(())
    }

    /// Marks what they match, and judges each recording without it.
    pub(crate) fn apply(&mut self, judged: &mut [Judged]) {
        if !self.all.is_empty() {
            judged.iter_mut().for_each(|j| j.suppress(|j, f, known| self.of(j, f, known)));
        }
    }

    /// The line that suppresses a finding, as `file:line`. All that match are used.
    fn of(&mut self, judged: &Judged, finding: &Finding, known: &Known) -> Option<String> {
        if !finding.grows() {
            return None;
        }
        let names = names(judged, finding, known);
        let is_meant = |s: &&mut Suppression| {
            s.of == finding.certainty && names.iter().any(|name| matches(&s.pattern, name))
        };
        let mut first = None;
        for meant in self.all.iter_mut().filter(is_meant) {
            meant.used = true;
            // Of a report to share the file's folder is nobody's business.
            let shared = meant.file.file_name().filter(|_| judged.share().is_some()).map(Path::new);
            let file = say::path(shared.unwrap_or(&meant.file));
            first.get_or_insert(format!("{file}:{}", meant.line));
        }
        first
    }

    /// Says which of them matched nothing, so that none outlives its leak.
    pub(crate) fn tell_unused(&self) {
        let unused = self.all.iter().filter(|s| !s.used);
        let unused: Vec<String> = unused
            .map(|s| format!("{}:{} ({}:{})", s.of.name(), s.pattern, say::path(&s.file), s.line))
            .collect();
        if !unused.is_empty() {
            say::line(format!("suppressions that matched nothing: {}", unused.join(", ")));
        }
    }
}

/// What a pattern is held against: functions and files of all its stacks, the statement that keeps it, who holds it.
fn names(judged: &Judged, finding: &Finding, known: &Known) -> Vec<String> {
    let mut names = Vec::new();
    let mut add = |frame: &Frame| {
        let frame = judged.share().map_or_else(|| frame.clone(), |share| share.real(frame));
        names.extend([frame.function, frame.file]);
    };
    for site in finding.sites.iter().filter_map(|s| judged.replay().site(s.site)) {
        judged.names().frames(site.stack).chain(&site.your_line).chain([&site.frame]).for_each(&mut add);
        judged.native_frames(site.stack).iter().for_each(&mut add);
    }
    let nodes = finding.sites.iter().filter_map(|s| judged.replay().site(s.site)?.node.clone());
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
