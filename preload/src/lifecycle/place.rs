//! Where the recording goes: one file per process, made exclusively, never one that is there already.

use crate::platform::config::Config;
use crate::platform::{descriptor, environment};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use strandline_core::format::env;

/// Who this process is among those of its job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rank {
    /// Of the whole job; 0 where there is only one.
    pub(crate) rank: u32,
    /// On this node.
    pub(crate) local: Option<u32>,
    /// Processes of the job.
    pub(crate) world: Option<u32>,
    /// How often the launcher has started this rank again.
    pub(crate) restart: u32,
}

impl Rank {
    /// Whether it is the first process of its job on this machine, as its launcher counts.
    pub(crate) fn is_first_on_node(&self) -> bool {
        self.local.unwrap_or(self.rank) == 0
    }

    /// Reads what torchrun, SLURM and Open MPI tell their processes.
    pub(crate) fn read() -> Rank {
        let all = environment::variables();
        Rank::from(|name| all.iter().find(|(n, _)| n == name)?.1.to_str()?.trim().parse().ok())
    }

    fn from(get: impl Fn(&str) -> Option<u32>) -> Rank {
        let first = |names: &[&str]| names.iter().find_map(|n| get(n));
        Rank {
            rank: first(&["RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"]).unwrap_or(0),
            local: first(&["LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"]),
            world: first(&["WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"]),
            restart: get("TORCHELASTIC_RESTART_COUNT").unwrap_or(0),
        }
    }
}

/// A recording's file, made by this process.
pub(crate) struct Created {
    /// Open for writing.
    pub(crate) file: File,
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// No process of this rank has made one before.
    pub(crate) is_first: bool,
}

/// Makes the recording's file.
///
/// # Errors
/// One sentence: what could not be made, why, and what to do.
pub(crate) fn create(
    config: &Config,
    rank: &Rank,
    host: &str,
    command: &[String],
) -> Result<Created, String> {
    let asked = config.out.clone();
    let path = match asked {
        Some(file) if file.extension().is_some_and(|e| e == "strand") => file,
        Some(directory) => directory.join(file_name(host, rank)),
        None => default_directory(command).join(file_name(host, rank)),
    };
    let path = std::path::absolute(&path).unwrap_or(path);
    let failed = |e: io::Error, what: &Path| {
        format!(
            "cannot write {}: {e}; nothing is recorded, the job goes on (set {} to a writable directory)",
            what.display(),
            env::OUT
        )
    };
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(|e| failed(e, parent))?;
    }
    let names = std::iter::once(path.clone()).chain((0..100).map(|n| numbered(&path, n)));
    for name in names {
        let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name);
        match descriptor::open(open) {
            Ok(file) => return Ok(Created { file, is_first: name == path, path: name }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed(e, &name)),
        }
    }
    Err(format!("{} and a hundred names like it exist already; nothing is recorded", path.display()))
}

/// `a.strand` as `a-p4711.strand`; a process that became another one keeps its pid, hence the number.
fn numbered(path: &Path, n: u32) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let pid = std::process::id();
    let again = if n == 0 { String::new() } else { format!("-{n}") };
    path.with_file_name(format!("{stem}-p{pid}{again}.strand"))
}

fn file_name(host: &str, rank: &Rank) -> String {
    let restart = if rank.restart == 0 { String::new() } else { format!("-restart{}", rank.restart) };
    format!("{host}-r{}{restart}.strand", rank.rank)
}

fn default_directory(command: &[String]) -> PathBuf {
    PathBuf::from("strandline").join(format!("{}-{}", script(command), local_minute()))
}

/// What is run, in one word: the script, the module of `-m`, or the program.
pub(crate) fn script(command: &[String]) -> String {
    let after_m = command.iter().position(|a| a == "-m").and_then(|i| command.get(i + 1));
    let script = command.iter().skip(1).find(|a| a.ends_with(".py"));
    let name = script.or(after_m).or(command.first()).map_or("job", String::as_str);
    let name = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
    let name: String = name
        .trim_end_matches(".py")
        .chars()
        .map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' })
        .take(64)
        .collect();
    if name.is_empty() { "job".into() } else { name }
}

/// `MMDD-HHMM` in local time.
fn local_minute() -> String {
    // SAFETY: the structure is ours; `localtime_r` fills it from a valid time, or returns null and leaves zeros.
    let t = unsafe {
        let now = libc::time(core::ptr::null_mut());
        let mut t: libc::tm = core::mem::zeroed();
        libc::localtime_r(&now, &mut t);
        t
    };
    format!("{:02}{:02}-{:02}{:02}", t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(s: &str) -> Vec<String> {
        s.split(' ').map(str::to_string).collect()
    }

    #[test]
    fn the_directory_is_named_after_what_is_run() {
        assert_eq!(script(&words("python -u my/train.py vl.yaml")), "train");
        assert_eq!(script(&words("/usr/bin/python3 -m trl.scripts.sft --x 1")), "trl.scripts.sft");
        assert_eq!(script(&words("./a.out")), "a.out");
        assert_eq!(script(&[]), "job");
        assert_eq!(script(&words("python3 we!rd name.py")), "name");
    }

    #[test]
    fn the_rank_is_the_first_that_a_launcher_tells() {
        let torchrun = |n: &str| match n {
            "RANK" => Some(9),
            "LOCAL_RANK" => Some(1),
            "WORLD_SIZE" => Some(16),
            "TORCHELASTIC_RESTART_COUNT" => Some(2),
            _ => None,
        };
        let r = Rank::from(torchrun);
        assert_eq!(r, Rank { rank: 9, local: Some(1), world: Some(16), restart: 2 });
        assert_eq!(file_name("h", &r), "h-r9-restart2.strand");
        assert_eq!(file_name("h", &Rank::from(|_| None)), "h-r0.strand");
    }

    #[test]
    fn a_file_that_exists_is_left_alone() {
        let dir = std::env::temp_dir().join(format!("strandline-place-{}", std::process::id()));
        let config = Config::read();
        let config = Config { out: Some(dir.join("x.strand")), ..config };
        let first = create(&config, &Rank::default(), "h", &[]).unwrap();
        let second = create(&config, &Rank::default(), "h", &[]).unwrap();
        assert_eq!((first.path, first.is_first), (dir.join("x.strand"), true));
        let numbered = dir.join(format!("x-p{}.strand", std::process::id()));
        assert_eq!((second.path, second.is_first), (numbered, false));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
