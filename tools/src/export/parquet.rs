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
    let job = partition(&name(options, judged, first));
    let begun = judged.iter().map(Judged::epoch_ns).min().unwrap_or(0);
    let mut written = Written::default();
    let row = print::job(report, begun, options.commit.as_deref());
    let place = |table: &Table| out.join(table.name).join(format!("job={job}"));
    written.file(&place(&print::JOBS), "job", &print::JOBS, &[row])?;
    for (i, process) in judged.iter().enumerate() {
        let facts = Facts::of(process.replay());
        let rank = facts.rank().map_or_else(|| NONE.to_owned(), |rank| rank.to_string());
        let pid = facts.number("pid").unwrap_or(0);
        let file =
            format!("{}-{pid}-{}", partition(facts.text("host").unwrap_or("host")), process.epoch_ns());
        for (table, rows) in print::OF_PROCESS.iter().zip(print::rows(report, i, process.epoch_ns())) {
            // Of the first process also what is empty: each table is there, with its columns.
            if i == 0 || !rows.is_empty() {
                written.file(&place(table).join(format!("rank={rank}")), &file, table, &rows)?;
            }
        }
    }
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
        let path: PathBuf = folder.join(format!("{name}.parquet"));
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

/// What the job is called: as the option says, else as the folder of its recordings, else as the recording.
fn name(options: &cli::Export, judged: &[Judged], first: &Path) -> String {
    let named = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
    let real = std::fs::canonicalize(first).unwrap_or_else(|_| first.to_path_buf());
    let of_path = || match judged.len() {
        1 => named(&real.with_extension("")),
        _ => named(real.parent()?),
    };
    let told = options.job.clone().or_else(|| if options.share { None } else { of_path() });
    told.unwrap_or_else(|| "job".to_owned())
}

/// A text as part of a path, as those who read such folders undo it.
fn partition(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, ESCAPED).to_string()
}

/// All but letters, digits and `-._`: also what shells and object stores take for something else.
const ESCAPED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');
