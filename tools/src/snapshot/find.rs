//! The one recording that is meant: a file, a rank of a run, or the process with a pid.

use crate::error::{Error, status};
use crate::recording;
use std::path::{Path, PathBuf};

/// The recording.
///
/// # Errors
/// There is none, or several are meant.
pub(super) fn one(asked: Option<&Path>, rank: Option<u32>) -> Result<PathBuf, Error> {
    if let Some(pid) = asked.filter(|path| !path.exists()).and_then(|p| p.to_str()?.parse::<u32>().ok()) {
        return recording::of_process(pid);
    }
    let found = recording::find(asked)?;
    let Some(rank) = rank else { return recording::only(&found).map(Path::to_path_buf) };
    let of_rank: Vec<PathBuf> = found.into_iter().filter(|path| rank_of(path) == Some(rank)).collect();
    // A rank that was restarted has several recordings; the last one is meant.
    of_rank
        .into_iter()
        .next_back()
        .ok_or_else(|| Error::new(format!("there is no recording of rank {rank}")).status(status::USAGE))
}

/// `h-r3.strand` is of rank 3, `h-r3-restart1.strand` too.
fn rank_of(path: &Path) -> Option<u32> {
    let name = path.file_stem()?.to_str()?;
    let mut words = name.split('-').filter_map(|word| word.strip_prefix('r')?.parse().ok());
    words.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_read_from_names() {
        let rank = |name: &str| rank_of(Path::new(name));
        assert_eq!(rank("run/node-r7-r12.strand"), Some(12));
        assert_eq!(rank("h-r3-restart1.strand"), Some(3));
        assert_eq!(rank("recording.strand"), None);
    }
}
