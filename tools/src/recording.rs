//! Recordings on the disk: which there are, whose they are, and the watcher's account beside them.

use crate::error::{Error, status};
use crate::files;
use crate::say::{self, shown};
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use strandline::event::{Bytes, DeviceId, DriverMemory, Nanos};
use strandline::format::region::Identity;
use strandline::format::tail::{self, Place};
use strandline::reader::{Reader, Summary, kept_path, open_file};
use strandline::report::plural;

/// Folder under which runs are kept, in the current directory.
pub(crate) const HOME: &str = "strandline";

/// The recordings in a folder, by name: rank 2 before rank 10.
pub(crate) fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| is_recording(p)).collect();
    found.sort_by_cached_key(|p| natural(&p.to_string_lossy()));
    found
}

fn is_recording(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "strand")
}

/// What a person means by a recording: a file, the folder of a run, or nothing: the newest run under `./strandline`.
///
/// # Errors
/// There is none.
pub(crate) fn find(asked: Option<&Path>) -> Result<Vec<PathBuf>, Error> {
    match asked {
        Some(path) if path.is_dir() => {
            let found = list(path);
            if found.is_empty() {
                // The folder in which runs are kept stands for the newest of them.
                let newest = newest(path).ok_or_else(|| none_in(path))?;
                tell_others(path, &newest);
                return Ok(newest);
            }
            Ok(found)
        }
        Some(path) if path.exists() => Ok(vec![path.into()]),
        Some(path) => {
            Err(Error::new(format!("{}: there is no such recording", say::path(path))).status(status::USAGE))
        }
        None => newest(Path::new(HOME))
            .ok_or_else(|| Error::usage("there is no recording under ./strandline", RECORD_FIRST)),
    }
}

/// The one recording that a command works on.
///
/// # Errors
/// There are several.
pub(crate) fn only(found: &[PathBuf]) -> Result<&Path, Error> {
    match found {
        [one] => Ok(one),
        [] => Err(Error::new("there is no recording").status(status::USAGE)),
        several => {
            let recordings = plural(several.len() as u64, "recording");
            let what =
                format!("there are {recordings}, one for each process; this command needs one of them");
            Err(Error::usage(what, which(several)))
        }
    }
}

/// Recordings that are named where one is asked for.
const NAMED: usize = 4;

/// Whose recordings these are, and how to choose.
fn which(several: &[PathBuf]) -> String {
    let of = |path: &PathBuf| pid(path).map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    let named: Vec<String> = several.iter().take(NAMED).map(|p| shown(p) + &of(p)).collect();
    let others = several.len() - named.len();
    let others = if others > 0 { format!(" and {others} more") } else { String::new() };
    let report = several[0].parent().map(|f| format!("; `strandline report {}` judges each", shown(f)));
    format!("name one: {}{others}{}", named.join(", "), report.unwrap_or_default())
}

const RECORD_FIRST: &str = "record one: strandline run train.py   (or see one: strandline demo)";

fn none_in(path: &Path) -> Error {
    // A folder of another user's, or a run in it, may not be listed.
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path());
    let folders = std::iter::once(path.to_path_buf()).chain(entries.filter(|p| p.is_dir()));
    let mut refused = folders.filter_map(|folder| fs::read_dir(&folder).err().map(|e| (folder, e)));
    if let Some((folder, e)) = refused.next() {
        return Error::new(format!("{}: {e}", say::path(&folder))).status(status::USAGE);
    }
    let what = format!("{}: there is no recording (*.strand) in this folder", say::path(path));
    let hint = RECORD_FIRST;
    Error::usage(what, hint)
}

/// The runs in a folder of runs, by name: folders with recordings.
pub(crate) fn runs(home: &Path) -> Vec<PathBuf> {
    folders(home).into_iter().filter(|path| !list(path).is_empty()).collect()
}

/// What lies in a folder, by name: 2 before 10.
pub(crate) fn folders(home: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(home).into_iter().flatten().flatten().map(|e| e.path()).collect();
    found.sort_by_cached_key(|p| natural(&p.to_string_lossy()));
    found
}

/// Says that a folder has other runs beside the newest.
fn tell_others(home: &Path, newest: &[PathBuf]) {
    let n = runs(home).len();
    if let Some(run) = newest.first().and_then(|r| r.parent()).filter(|_| n > 1) {
        let (home, run) = (shown(home), shown(run));
        say::line(format!(
            "{home} holds {n} runs; this is the newest, {run} (strandline diff {home} compares them)"
        ));
    }
}

/// The recordings of the newest run in a folder of runs.
fn newest(home: &Path) -> Option<Vec<PathBuf>> {
    let runs = runs(home).into_iter().map(|run| list(&run));
    runs.max_by_key(|run| run.iter().filter_map(|p| modified(p)).max())
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

/// Whether one of these is one of the others.
pub(crate) fn has_same<'a>(some: &[PathBuf], others: impl IntoIterator<Item = &'a Path>) -> bool {
    let found = |path: &Path| fs::canonicalize(path).ok();
    let some: BTreeSet<PathBuf> = some.iter().filter_map(|path| found(path)).collect();
    !some.is_empty() && others.into_iter().filter_map(found).any(|path| some.contains(&path))
}

/// A key by which numbers in names count as numbers, and the first start of a rank (`r1.strand`) comes before others (`r1-restart1.strand`).
fn natural(text: &str) -> Vec<(String, u64)> {
    let mut key = Vec::new();
    let mut rest = text.strip_suffix(".strand").unwrap_or(text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(end);
        key.push((word.to_string(), number.parse().unwrap_or(0)));
        rest = tail;
    }
    key
}

/// Where the watcher writes what the driver says, for a recording.
pub(crate) fn sidecar(recording: &Path) -> PathBuf {
    let mut name = recording.as_os_str().to_owned();
    name.push(".watch");
    name.into()
}

/// Gives back the memory that an ended process's tail takes: the tail is kept beside the recording from now on. Only on the
/// machine that it ran on, where a container is one of its own, and best effort: where it cannot be kept it stays where it is.
pub(crate) fn keep_tail(recording: &Path, reader: &mut Reader) {
    let there = reader.summary().facts.get("host").and_then(|h| h.as_str()).unwrap_or_default();
    if !reader.has_region() || there != files::host() || keep(recording, reader).is_err() {
        return;
    }
    if let Some(Place::File(path)) = reader.tail_place() {
        remove_tail(Path::new(&path), &reader.summary().who);
    }
}

/// Writes what is only in the tail of an ended process beside its recording.
///
/// # Errors
/// The tail cannot be read, or the file cannot be written.
pub(crate) fn keep(recording: &Path, reader: &mut Reader) -> std::io::Result<()> {
    match reader.pack_tail()? {
        Some(packed) if !reader.summary().complete => {
            let mut file = files::create_in_own_folder(&kept_path(recording))?;
            file.write_all(&packed)?;
            file.keep_synced()
        }
        _ => Ok(()),
    }
}

/// Removes a tail whose region was read and is that of the recording at hand, if it is a file that its process can have made: the header
/// that names it may say anything.
fn remove_tail(path: &Path, who: &Identity) {
    use std::os::unix::fs::MetadataExt;
    let user = files::user();
    let is_named = path.file_name().is_some_and(|n| n == tail::name(user, who).as_str());
    // Of the name itself: a link is none of ours, wherever it leads.
    if is_named && fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.uid() == user) {
        let _ = fs::remove_file(path);
    }
}

/// Whether a recording is this user's own. What another user's says is theirs: nothing is written, run or sent because of it.
pub(crate) fn is_own(summary: &Summary) -> bool {
    summary.owner == Some(files::user())
}

/// The process of a recording of this user's, as its header says; `None` where that is not written yet.
pub(crate) fn own_pid(recording: &Path) -> Option<u32> {
    let reader = Reader::open(recording).ok()?;
    is_own(reader.summary()).then_some(reader.summary().who.pid)
}

/// The process of a recording, as its header says; `None` where that is not written yet.
pub(crate) fn pid(recording: &Path) -> Option<u32> {
    let reader = Reader::open(recording).ok()?;
    Some(reader.summary().who.pid)
}

/// The recording that a running process writes.
///
/// # Errors
/// It writes none, or cannot be asked.
pub(crate) fn of_process(pid: u32) -> Result<PathBuf, Error> {
    let open = open_files(pid).map_err(|e| {
        let what = match e.kind() {
            ErrorKind::NotFound => {
                format!("{pid}: there is no recording with this name, and no process with this pid")
            }
            _ => {
                format!("{pid}: there is no recording with this name, and process {pid} cannot be read: {e}")
            }
        };
        Error::new(what).status(status::USAGE)
    })?;
    open.into_iter().find(|path| self::pid(path) == Some(pid)).ok_or_else(|| {
        let what = format!("process {pid} writes no recording");
        let hint = format!(
            "perhaps a child process does: pgrep -P {pid}; or give the recording, such as {}/…/….strand",
            HOME
        );
        Error::usage(what, hint)
    })
}

/// The recordings that running processes of this user write, those left out that are known already.
pub(crate) fn of_this_user(known: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let user = files::user();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mine = processes.filter(|p| p.metadata().is_ok_and(|m| m.uid() == user));
    let pids = mine.filter_map(|p| p.file_name().to_str()?.parse::<u32>().ok());
    let open = pids.flat_map(|pid| open_files(pid).unwrap_or_default().into_iter().map(move |p| (pid, p)));
    let own = |(pid, path): (u32, PathBuf)| (!known(&path) && self::pid(&path) == Some(pid)).then_some(path);
    let mut found: Vec<PathBuf> = open.filter_map(own).collect();
    found.sort_by_cached_key(|p| natural(&p.to_string_lossy()));
    found.dedup();
    found
}

/// The recordings that a process has open: its own, and what it inherited or reads.
fn open_files(pid: u32) -> std::io::Result<Vec<PathBuf>> {
    let open = fs::read_dir(format!("/proc/{pid}/fd"))?;
    Ok(open.flatten().filter_map(|e| fs::read_link(e.path()).ok()).filter(|p| is_recording(p)).collect())
}

/// How a sidecar begins: what the devices are.
pub(crate) fn sidecar_begin(recording: &Path) -> String {
    use std::io::Read;
    let mut bytes = Vec::new();
    let _ = open_file(&sidecar(recording)).and_then(|f| f.take(16 << 10).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One line of a sidecar: time in nanoseconds of the Unix epoch, and what the driver said (its own time still 0).
pub(crate) fn parse_watch(line: &str) -> Option<(u64, DriverMemory)> {
    let value: serde_json::Value = serde_json::from_str(line.trim()).ok()?;
    let number = |name: &str| value.get(name)?.as_u64();
    let memory = DriverMemory {
        time: Nanos(0),
        device: DeviceId(u8::try_from(number("device")?).ok()?),
        total: Bytes(number("total")?),
        free: Bytes(number("free")?),
        process: number("process").map(Bytes),
    };
    Some((number("t_unix_ns")?, memory))
}

/// The watcher's account of a recording, read as it grows.
pub(crate) struct Sidecar {
    path: PathBuf,
    /// When the recording began, in nanoseconds of the Unix epoch.
    began: u64,
    /// How much of it has been read: whole lines.
    read: u64,
}

impl Sidecar {
    /// That of a recording which began then.
    pub(crate) fn of(recording: &Path, began: u64) -> Sidecar {
        Sidecar { path: sidecar(recording), began, read: 0 }
    }

    /// What the driver said since the last time this was asked, on the recording's clock. A line that is not whole yet is
    /// left for the next time.
    pub(crate) fn news(&mut self) -> Vec<DriverMemory> {
        use std::io::{Read, Seek, SeekFrom};
        let mut bytes = Vec::new();
        let read = open_file(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.read))?;
            file.read_to_end(&mut bytes)
        });
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        if read.is_err() || whole == 0 {
            return Vec::new();
        }
        self.read += whole as u64;
        let on_clock = |(time, memory): (u64, DriverMemory)| DriverMemory {
            time: Nanos(time.saturating_sub(self.began)),
            ..memory
        };
        String::from_utf8_lossy(&bytes[..whole]).lines().filter_map(parse_watch).map(on_clock).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_in_their_order() {
        let mut names = ["h-r10.strand", "h-r2.strand", "h-r2-restart1.strand"];
        names.sort_by_cached_key(|n| natural(n));
        assert_eq!(names, ["h-r2.strand", "h-r2-restart1.strand", "h-r10.strand"]);
    }

    #[test]
    fn the_drivers_account_is_put_on_the_recordings_clock() {
        let folder = std::env::temp_dir().join(format!("strandline-watch-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let recording = folder.join("a.strand");
        let text = "{\"t_unix_ns\":1500,\"device\":0,\"total\":10,\"free\":4,\"process\":null}\n{\"t_unix_ns\":1700,\"dev";
        fs::write(sidecar(&recording), text).unwrap();
        let mut account = Sidecar::of(&recording, 1000);
        let read = account.news();
        assert_eq!(read.len(), 1, "the line that is not whole is left out");
        assert_eq!((read[0].time, read[0].free, read[0].process), (Nanos(500), Bytes(4), None));
        assert_eq!(account.news(), []);
        let rest = "ice\":0,\"total\":10,\"free\":3,\"process\":7}\n";
        fs::write(sidecar(&recording), format!("{text}{rest}")).unwrap();
        let read = account.news();
        assert_eq!((read.len(), read[0].time, read[0].process), (1, Nanos(700), Some(Bytes(7))));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_of_runs_stands_for_its_newest_run() {
        let home = std::env::temp_dir().join(format!("strandline-find-{}", std::process::id()));
        for run in ["old", "new"] {
            fs::create_dir_all(home.join(run)).unwrap();
            fs::write(home.join(run).join("h-r0.strand"), "").unwrap();
        }
        fs::create_dir_all(home.join("empty")).unwrap();
        let long_ago = SystemTime::now() - std::time::Duration::from_secs(3600);
        fs::File::options()
            .write(true)
            .open(home.join("old/h-r0.strand"))
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        assert_eq!(find(Some(&home)).unwrap(), [home.join("new/h-r0.strand")]);
        assert_eq!(find(Some(&home.join("old"))).unwrap(), [home.join("old/h-r0.strand")]);
        assert!(find(Some(&home.join("empty"))).unwrap_err().to_string().contains("no recording"));
        assert!(find(Some(&home.join("nope"))).unwrap_err().to_string().contains("no such recording"));
        fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn a_recording_is_its_owners() {
        let folder = std::env::temp_dir().join(format!("strandline-own-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.strand");
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings/v1-plain.strand"), &path)
            .unwrap();
        let is_own = || super::is_own(Reader::open(&path).unwrap().summary());
        assert!(is_own() && own_pid(&path).is_some());
        // Another user's, where we may make one.
        if files::user() == 0 {
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert!(!is_own() && own_pid(&path).is_none() && pid(&path).is_some());
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_process_without_a_recording_is_told_so() {
        let e = of_process(std::process::id()).unwrap_err().to_string();
        assert!(e.contains("writes no recording"), "{e}");
    }
}
