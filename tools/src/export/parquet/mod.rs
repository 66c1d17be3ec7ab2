//! `strandline export --format parquet`: a folder of tables, each in a folder of its own, by job and rank.

mod chunk;
mod events;
mod file;
mod out;

use crate::analyze::Judged;
use crate::error::Error;
use crate::{cli, files};
use events::Events;
use file::{File, Shape};
use out::Out;
use serde_json::Value;
use std::path::Path;
use strandline::report::export::tables::{self, EVENTS, JOBS, STACKS, Table};
use strandline::report::{Facts, Report, plural, thousands};

/// What readers of such folders take for null.
const NONE: &str = "__HIVE_DEFAULT_PARTITION__";

/// Writes the tables of a job. `asked`: what was named as its recording; `first`: one of its recordings. The job's own row is written last and, of an earlier export, removed first:
/// a job that has a row is whole.
///
/// # Errors
/// Nothing can be written there.
pub(super) fn write(
    options: &cli::Export,
    judged: &[Judged],
    report: &Report<'_>,
    asked: Option<&Path>,
    first: &Path,
) -> Result<String, Error> {
    let Some(out) = &options.output else {
        let hint = "name a folder: -o DIR; several jobs can share one";
        return Err(Error::usage("tables are written to a folder, not to stdout", hint));
    };
    // Nothing then tells a file of this name from another one.
    if options.job.is_none() && judged.iter().any(|process| process.epoch_ns() == 0) {
        let what = "a snapshot without a history does not say when it was made";
        let hint = "give the job a unique name: --job NAME";
        return Err(Error::usage(what, hint));
    }
    let job = name(options, asked, first)?;
    let begun = judged.iter().map(Judged::epoch_ns).min().unwrap_or(0);
    let row = tables::job(report, begun, options.commit.as_deref());
    let files = judged.iter().map(file).collect::<Result<Vec<_>, _>>()?;
    let tables = tables::OF_PROCESS.iter().chain([&JOBS, &EVENTS, &STACKS]);
    let parts: Vec<String> = tables.map(|table| format!("{}/{job}", table.name)).collect();
    let mut out = Out::new(out, &parts)?;
    let [processes, ..] = &parts[..] else { return Err(Error::new("there are no tables")) };
    if !is_free_for(&out.files_in(processes), &files) {
        let what = format!("{}/{processes} has another job of this name", out.name());
        let hint = "give --job NAME with another name, or delete the other job's folders";
        return Err(Error::usage(what, hint));
    }
    let of_job = format!("{}/{job}/job.parquet", JOBS.name);
    out.remove(&of_job)?;
    for (i, (process, file)) in judged.iter().zip(&files).enumerate() {
        let rank = Facts::of(&process.replay).rank();
        let rank = rank.map_or_else(|| NONE.to_owned(), |rank| rank.to_string());
        let at = |table: &Table| format!("{}/{job}/rank={rank}/{file}", table.name);
        for (table, rows) in tables::OF_PROCESS.iter().zip(tables::rows(report, i, process.epoch_ns())) {
            // Of the first process also what is empty: each table is there, with its columns.
            if i == 0 || !rows.is_empty() {
                put(&mut out, &at(table), table, rows.iter())?;
            } else {
                out.remove(&at(table))?;
            }
        }
        let part = |n: u32| further(&at(&EVENTS), n);
        let mut parts = 0;
        if options.events {
            let pid = Facts::of(&process.replay).number("pid").map(u64::cast_signed);
            let mut events = Events::of(process, pid)?;
            let mut follow = true;
            while follow {
                out.write(&part(parts), |sink, fail| {
                    let (sink, rows, more) = events.write(sink, options.rows_per_file).map_err(fail)?;
                    follow = more;
                    Ok((sink, rows))
                })?;
                parts += 1;
            }
            put(&mut out, &at(&STACKS), &STACKS, events.frames().collect::<Vec<_>>().iter())?;
        } else {
            out.remove(&at(&STACKS))?;
        }
        // Those of an earlier export. The last goes first, so that who stops here leaves none behind a gap.
        let stale: Vec<String> = (parts..).map(part).take_while(|part| out.has(part)).collect();
        stale.iter().rev().try_for_each(|part| out.remove(part))?;
    }
    out.settle()?;
    put(&mut out, &of_job, &JOBS, [&row])?;
    out.settle()?;
    let there = match out.unchanged() {
        0 => String::new(),
        1 => " (1 was there already)".to_owned(),
        n => format!(" ({} were there already)", thousands(n)),
    };
    Ok(format!(
        "{} in {}{there} written to {}",
        plural(out.rows, "row"),
        plural(out.files, "file"),
        out.name()
    ))
}

/// The name of a table's file, or of its `n`th further one.
fn further(file: &str, n: u32) -> String {
    match (n, file.strip_suffix(".parquet")) {
        (1.., Some(stem)) => format!("{stem}-{n}.parquet"),
        _ => file.to_owned(),
    }
}

/// Writes a file of rows.
fn put<'r>(
    out: &mut Out,
    at: &str,
    table: &Table,
    rows: impl IntoIterator<Item = &'r Value>,
) -> Result<(), Error> {
    out.write(at, |sink, fail| {
        let mut file = File::new(sink, table, Shape::Any).map_err(fail)?;
        rows.into_iter().try_for_each(|row| file.push(row)).map_err(fail)?;
        let rows = file.rows();
        Ok((file.end().map_err(fail)?, rows))
    })
}

/// The longest name of a file, less what a further file, and one that is being written, has more in its name.
const LONGEST: usize = 255 - 50;

/// The folder of the job: named as the option says, else as the folder of its recordings, else as the recording that was given.
///
/// # Errors
/// It has no name, one that is too long, or with `--share` one that would be told.
fn name(options: &cli::Export, asked: Option<&Path>, first: &Path) -> Result<String, Error> {
    let refused = |what: &str| Err(Error::usage(what, "give the job a name: --job NAME"));
    let named = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
    let job = match &options.job {
        Some(job) => job.clone(),
        None if options.share => {
            return refused("the job would be named after its folder, and --share hides that name");
        }
        None => {
            let is_file = asked.is_some_and(|asked| !asked.is_dir());
            let folder = || std::fs::canonicalize(first.parent()?).ok();
            let told =
                if is_file { named(&first.with_extension("")) } else { folder().as_deref().and_then(named) };
            told.unwrap_or_default()
        }
    };
    if job.is_empty() || job == NONE {
        return refused("the folder of the recording cannot serve as the job's name");
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
    let facts = Facts::of(&process.replay);
    let pid = facts.number("pid").unwrap_or(0);
    let host = files::escaped(facts.text("host").unwrap_or("host"));
    let name = format!("{host}-{pid}-{}.parquet", process.epoch_ns());
    if name.len() > LONGEST {
        let what = "the host of a recording has a name that is too long for a file";
        let hint = "leave it out: --share --job NAME";
        return Err(Error::usage(what, hint));
    }
    Ok(name)
}

/// Whether a job has no processes yet, or some of these. A job that goes on, or is exported again, has processes that were there before; those
/// of another job have other names ([`file`]).
fn is_free_for(there: &[String], ours: &[String]) -> bool {
    let mut names = there.iter().filter(|name| name.ends_with(".parquet")).peekable();
    names.peek().is_none() || names.any(|name| ours.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::status;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        export: cli::Export,
    }

    fn named(words: &[&str], first: &str) -> Result<String, u8> {
        let line = [&["export", "--format", "parquet"][..], words].concat();
        let options = Line::try_parse_from(line).expect("a command line").export;
        name(&options, options.recording.as_deref(), Path::new(first)).map_err(|e| e.exit_status())
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
        std::fs::remove_dir_all(run.parent().expect("a folder")).expect("they go");
    }

    #[test]
    fn a_name_that_another_job_has_is_not_free() {
        let folder = std::env::temp_dir().join(format!("strandline-out-{}", std::process::id()));
        let mut out = Out::new(&folder, &[]).expect("a folder");
        let there = |out: &Out| out.files_in("processes/job=a");
        let (ours, theirs) = (["h-1-2.parquet".to_owned()], ["h-1-3.parquet".to_owned()]);
        assert!(is_free_for(&there(&out), &ours));
        let [processes, ..] = &tables::OF_PROCESS;
        let at = format!("processes/job=a/rank=0/{}", ours[0]);
        put(&mut out, &at, processes, []).expect("a file");
        assert!(is_free_for(&there(&out), &ours));
        assert!(is_free_for(&there(&out), &[ours.clone(), theirs.clone()].concat()));
        assert!(!is_free_for(&there(&out), &theirs), "another job's");
        out.remove(&at).expect("it is removed");
        out.remove(&at).expect("it is not there");
        assert!(is_free_for(&there(&out), &theirs));
        std::fs::remove_dir_all(&folder).expect("it goes");
    }
}
