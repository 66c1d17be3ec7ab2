//! `strandline export --format parquet`: a folder of tables, each in a folder of its own, by job and rank.

use crate::analyze::Judged;
use crate::error::{Error, status};
use crate::{cli, files, say};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use strandline::report::export::parquet::{self as print, Table};
use strandline::report::{Facts, Report};

/// What readers of such folders take for null.
const NONE: &str = "__HIVE_DEFAULT_PARTITION__";

/// Writes the tables of a job. `first`: one of its recordings.
///
/// # Errors
/// Nothing can be written there.
pub(super) fn write(
    options: &cli::Export,
    judged: &[Judged],
    report: &Report<'_>,
    first: &Path,
) -> Result<(), Error> {
    let Some(out) = &options.output else {
        let hint = "give the folder: -o DIR; several jobs go into one";
        return Err(Error::new("tables are a folder, and nothing for stdout")
            .hint(hint)
            .status(status::USAGE));
    };
    if out.exists() && !out.is_dir() {
        return Err(Error::new(format!("{} is a file, and tables are a folder", say::path(out)))
            .hint("give another name: -o DIR")
            .status(status::USAGE));
    }
    // Nothing then tells a file of this name from another one.
    if options.job.is_none() && judged.iter().any(|process| process.epoch_ns() == 0) {
        return Err(Error::new("a snapshot without a history does not say when it was made")
            .hint("give the job a name that no other has: --job NAME")
            .status(status::USAGE));
    }
    let job = name(options, first)?;
    let begun = judged.iter().map(Judged::epoch_ns).min().unwrap_or(0);
    let row = print::job(report, begun, options.commit.as_deref());
    let place = |table: &Table| out.join(table.name).join(&job);
    let files = judged.iter().map(file).collect::<Result<Vec<_>, _>>()?;
    let [processes, ..] = &print::OF_PROCESS;
    if !is_free_for(&place(processes), &files) {
        let what = format!("{} has another job of this name", say::path(&place(processes)));
        let hint = "give --job NAME with another name, or delete the other job's folders";
        return Err(Error::new(what).hint(hint).status(status::USAGE));
    }
    let mut written = Written::default();
    for (i, (process, file)) in judged.iter().zip(&files).enumerate() {
        let rank = Facts::of(process.replay()).rank();
        let rank = format!("rank={}", rank.map_or_else(|| NONE.to_owned(), |rank| rank.to_string()));
        for (table, rows) in print::OF_PROCESS.iter().zip(print::rows(report, i, process.epoch_ns())) {
            let folder = place(table).join(&rank);
            // Of the first process also what is empty: each table is there, with its columns.
            if i == 0 || !rows.is_empty() {
                written.file(&folder, file, table, &rows)?;
            } else {
                remove(&folder.join(file))?;
            }
        }
    }
    written.file(&place(&print::JOBS), "job.parquet", &print::JOBS, &[row])?;
    say::line(format!(
        "{} rows in {} files written to {}",
        strandline::report::count(written.rows),
        strandline::report::count(written.files),
        say::path(out)
    ));
    Ok(())
}

/// What has been written.
#[derive(Default)]
struct Written {
    files: u64,
    rows: u64,
}

impl Written {
    fn file(
        &mut self,
        folder: &Path,
        name: &str,
        table: &Table,
        rows: &[serde_json::Value],
    ) -> Result<(), Error> {
        let path: PathBuf = folder.join(name);
        let fail = |e| Error::io("cannot write the table", &path, e).status(status::FAILED);
        files::make_folder(folder).map_err(fail)?;
        let out = BufWriter::new(files::create(&path).map_err(fail)?);
        let mut file = print::File::new(out, table.columns).map_err(fail)?;
        rows.iter().try_for_each(|row| file.push(row)).map_err(fail)?;
        let facts = [("strandline.schema", print::SCHEMA), ("strandline.table", table.name)];
        let mut out = file.end(&facts).map_err(fail)?;
        out.flush().map_err(fail)?;
        out.into_inner().map_err(|e| e.into_error()).and_then(files::New::keep).map_err(fail)?;
        self.files += 1;
        self.rows += rows.len() as u64;
        Ok(())
    }
}

/// The longest name of a file, less what a file that is being written has more in its name.
const LONGEST: usize = 255 - 40;

/// The folder of the job: named as the option says, else as the folder of its recordings, else as the recording that was given.
///
/// # Errors
/// It has no name, one that is too long, or with `--share` one that would be told.
fn name(options: &cli::Export, first: &Path) -> Result<String, Error> {
    let refused =
        |what: &str| Err(Error::new(what).hint("give the job a name: --job NAME").status(status::USAGE));
    let named = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
    let job = match &options.job {
        Some(job) => job.clone(),
        None if options.share => {
            return refused("the job would be called as its folder, which --share leaves out");
        }
        None => {
            let is_file = options.recording.as_ref().is_some_and(|asked| !asked.is_dir());
            let folder = || std::fs::canonicalize(first.parent()?).ok();
            let told =
                if is_file { named(&first.with_extension("")) } else { folder().as_deref().and_then(named) };
            told.unwrap_or_default()
        }
    };
    if job.is_empty() || job == NONE {
        return refused("the job has no name");
    }
    let job = format!("job={}", files::escaped(&job));
    if job.len() > LONGEST {
        return refused("the job's name is too long for a folder");
    }
    Ok(job)
}

/// The name of a process's files: no other process of any job has it.
///
/// # Errors
/// The name of its machine is too long.
fn file(process: &Judged) -> Result<String, Error> {
    let facts = Facts::of(process.replay());
    let pid = facts.number("pid").unwrap_or(0);
    let host = files::escaped(facts.text("host").unwrap_or("host"));
    let name = format!("{host}-{pid}-{}.parquet", process.epoch_ns());
    if name.len() > LONGEST {
        return Err(Error::new("the host of a recording has a name that is too long for a file")
            .hint("leave it out: --share --job NAME")
            .status(status::USAGE));
    }
    Ok(name)
}

/// Whether a job's folder of processes has none yet, or some of these. A job that goes on, or is exported again, has processes that
/// were there before; those of another job have other names ([`file`]).
fn is_free_for(processes: &Path, ours: &[String]) -> bool {
    let within = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let files = within(processes.to_path_buf()).flat_map(|rank| within(rank.path()));
    let mut names = files
        .map(|f| f.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".parquet"))
        .peekable();
    names.peek().is_none() || names.any(|name| ours.contains(&name))
}

/// Removes rows of an earlier export, which are no longer true.
fn remove(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("cannot remove rows that are no longer true", path, e).status(status::FAILED))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        export: cli::Export,
    }

    fn named(words: &[&str], first: &str) -> Result<String, u8> {
        let line = [&["export", "--format", "parquet"][..], words].concat();
        let options = Line::try_parse_from(line).expect("a command line").export;
        name(&options, Path::new(first)).map_err(|e| e.exit_status())
    }

    #[test]
    fn a_job_is_called_as_its_folder_or_as_it_is_told() {
        let run =
            std::env::temp_dir().join(format!("strandline-tables-{}", std::process::id())).join("run 7");
        files::make_folder(&run).expect("a folder");
        let recording = run.join("rank-0.strand");
        let (folder, one) = (run.to_str().expect("UTF-8"), recording.to_str().expect("UTF-8"));
        assert_eq!(named(&[folder], one), Ok("job=run%207".into()), "also of a single recording");
        assert_eq!(named(&[], one), Ok("job=run%207".into()));
        assert_eq!(named(&[one], one), Ok("job=rank-0".into()));
        assert_eq!(named(&[folder, "--share", "--job", "a=b"], one), Ok("job=a%3Db".into()));
        for wrong in [&["--share"][..], &["--job", ""], &["--job", NONE], &["--job", &"/".repeat(80)]] {
            assert_eq!(named(&[&[folder][..], wrong].concat(), one), Err(status::USAGE), "{wrong:?}");
        }
        let rank = run.join("rank=0");
        let (ours, theirs) = (["h-1-2.parquet".to_owned()], ["h-1-3.parquet".to_owned()]);
        assert!(is_free_for(&run, &ours) && is_free_for(&run.join("none"), &ours));
        files::make_folder(&rank).expect("a folder");
        files::write(&rank.join(&ours[0]), b"").expect("a file");
        assert!(is_free_for(&run, &ours) && is_free_for(&run, &[ours.clone(), theirs.clone()].concat()));
        assert!(!is_free_for(&run, &theirs), "another job's");
        remove(&rank.join(&ours[0])).expect("it is removed");
        remove(&rank.join(&ours[0])).expect("it is not there");
        assert!(is_free_for(&run, &theirs));
        std::fs::remove_dir_all(run.parent().expect("a folder")).expect("they go");
    }
}
