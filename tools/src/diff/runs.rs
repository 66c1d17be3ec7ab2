//! Which runs are compared in one table, and which of them are repeats of each other.

use crate::analyze::{self, Judged, Suppressions};
use crate::error::Error;
use crate::recording;
use crate::say::{self, shown};
use std::path::{Path, PathBuf};
use strandline::report::diff::{Modes, Run, Variant};

/// A run that was asked for: what it is called, and where it lies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    name: String,
    /// The name was given, not found.
    is_given: bool,
    /// The folder of its mode; empty where there are no modes.
    mode: String,
    path: PathBuf,
}

/// The runs that are meant, where it is a table that is meant: several, a folder of runs, or runs with names.
pub(super) fn asked(paths: &[&Path]) -> Option<Vec<Asked>> {
    let all: Vec<Asked> = paths.iter().flat_map(|path| meant(path)).collect();
    (paths.len() != 2 || all.len() > 2 || all.iter().any(|a| a.is_given)).then_some(all)
}

/// Reads and compares them; the first is the base.
///
/// # Errors
/// One of them cannot be read, or there is nothing to compare.
pub(super) fn compare(asked: Vec<Asked>) -> Result<Modes, Error> {
    let mut modes: Vec<(String, Vec<Variant>)> = Vec::new();
    for (mode, name, path) in named(&asked) {
        let found = recording::find(Some(path))?;
        let judged = analyze::judge(&found, None, &Suppressions::default(), None)?;
        if let Some(snapshot) = judged.iter().find(|j| j.read.is_snapshot) {
            let what = format!("{}: a snapshot has no steps to compare", say::path(&snapshot.path));
            let hint = "to compare two snapshots line by line: strandline diff BASE NEW";
            return Err(Error::usage(what, hint));
        }
        judged.iter().for_each(Judged::warn_of_damage);
        let processes: Vec<_> = judged.iter().map(Judged::process).collect();
        let run = Run::of(shown(path), &processes);
        let at = modes.iter().position(|(m, _)| m == mode).unwrap_or(modes.len());
        if at == modes.len() {
            modes.push((mode.to_owned(), Vec::new()));
        }
        let variants = &mut modes[at].1;
        match variants.iter_mut().find(|v| v.name == name) {
            Some(variant) => variant.runs.push(run),
            None => variants.push(Variant { name, runs: vec![run] }),
        }
    }
    Modes::of(modes).ok_or_else(|| {
        let what = "there is only one run (or repeats of one): give a second recording";
        let hint = "for example: strandline diff BASE NEW, or strandline diff old=REC new=REC";
        Error::usage(what, hint)
    })
}

/// What a path of the command line means: a run, `NAME=` and a run, or each run of a folder of them. A folder of such folders has a mode in each.
fn meant(path: &Path) -> Vec<Asked> {
    let text = path.to_str().filter(|_| !path.exists()).and_then(|text| text.split_once('='));
    if let Some((name, rest)) =
        text.filter(|(name, rest)| !name.is_empty() && !name.contains('/') && !rest.is_empty())
    {
        let one = |path| Asked { name: name.to_owned(), is_given: true, mode: String::new(), path };
        return runs_in(Path::new(rest)).unwrap_or_else(|| vec![rest.into()]).into_iter().map(one).collect();
    }
    let one = |mode: &str, path: PathBuf| Asked {
        name: called(&path),
        is_given: false,
        mode: mode.to_owned(),
        path,
    };
    if let Some(runs) = runs_in(path) {
        return runs.into_iter().map(|run| one("", run)).collect();
    }
    let modes = modes_in(path);
    if modes.len() < 2 {
        return vec![one("", path.into())];
    }
    let of = |(mode, runs): (String, Vec<PathBuf>)| {
        runs.into_iter().map(|run| one(&mode, run)).collect::<Vec<_>>()
    };
    modes.into_iter().flat_map(of).collect()
}

/// The folders of runs in a folder that holds neither a recording nor a run itself, by name.
fn modes_in(folder: &Path) -> Vec<(String, Vec<PathBuf>)> {
    if !folder.is_dir() || !recording::list(folder).is_empty() || !recording::runs(folder).is_empty() {
        return Vec::new();
    }
    let with_runs = |path: PathBuf| {
        Some(recording::runs(&path)).filter(|runs| !runs.is_empty()).map(|runs| (called(&path), runs))
    };
    recording::folders(folder).into_iter().filter_map(with_runs).collect()
}

/// The runs in a folder that holds no recording itself, by name; `None`: it is no folder of several runs.
fn runs_in(folder: &Path) -> Option<Vec<PathBuf>> {
    if !folder.is_dir() || !recording::list(folder).is_empty() {
        return None;
    }
    let runs = recording::runs(folder);
    (runs.len() > 1).then_some(runs)
}

/// A run's folder, or its file without the ending.
fn called(path: &Path) -> String {
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    name.map_or_else(|| shown(path), |n| n.to_string_lossy().into_owned())
}

/// Each run with its mode and the name of its variant: repeats differ in a last number alone. Where that leaves one variant of a mode, all of its
/// runs have their whole names.
fn named(asked: &[Asked]) -> Vec<(&str, String, &Path)> {
    let name = |a: &Asked, is_short: bool| {
        if a.is_given || !is_short { a.name.clone() } else { without_number(&a.name).to_owned() }
    };
    let is_alone = |a: &Asked| {
        let mut others = asked.iter().filter(|other| other.mode == a.mode);
        others.all(|other| name(other, true) == name(a, true))
    };
    asked.iter().map(|a| (a.mode.as_str(), name(a, !is_alone(a)), a.path.as_path())).collect()
}

/// `offload` of `offload-2`, `train` of `train-1120-0312`; a name that is a number stays.
fn without_number(name: &str) -> &str {
    let mut rest = name;
    loop {
        let word = rest.trim_end_matches(|c: char| c.is_ascii_digit());
        let before = word.trim_end_matches(['-', '_', '.']);
        // A number that belongs to the word, as in `zero3`, stays.
        if word.len() == rest.len() || before.len() == word.len() || before.is_empty() {
            return rest;
        }
        rest = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_told_by_a_last_number() {
        for (name, short) in [
            ("offload-2", "offload"),
            ("offload_10", "offload"),
            ("train-1120-0312", "train"),
            ("zero3", "zero3"),
            ("zero3.1", "zero3"),
            ("17", "17"),
            ("-3", "-3"),
        ] {
            assert_eq!(without_number(name), short, "{name}");
        }
    }

    #[test]
    fn runs_that_are_repeats_of_one_have_their_whole_names() {
        let of = |mode: &str, name: &str| Asked {
            name: name.into(),
            is_given: false,
            mode: mode.into(),
            path: name.into(),
        };
        let one = |name: &str| of("", name);
        let names = |asked: &[Asked]| named(asked).into_iter().map(|(_, name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(&[one("train-1"), one("train-2")]), ["train-1", "train-2"]);
        assert_eq!(names(&[one("a-1"), one("a-2"), one("b-1")]), ["a", "a", "b"]);
        let modes = [of("full", "a-1"), of("full", "b-1"), of("lora", "a-1"), of("lora", "a-2")];
        assert_eq!(names(&modes), ["a", "b", "a-1", "a-2"]);
        let given = Asked { is_given: true, ..one("a-1") };
        assert_eq!(names(&[one("a-2"), given]), ["a", "a-1"]);
    }

    #[test]
    fn two_recordings_are_compared_line_by_line() {
        assert_eq!(asked(&[Path::new("a.strand"), Path::new("b.strand")]), None);
        assert!(asked(&[Path::new("a"), Path::new("b"), Path::new("c")]).is_some_and(|all| all.len() == 3));
        assert!(asked(&[Path::new("old=a"), Path::new("new=b")]).is_some_and(|all| all[0].name == "old"));
    }
}
