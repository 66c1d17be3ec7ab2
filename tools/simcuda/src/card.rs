//! A card that several processes share: each keeps what it holds in a file of its own, and reads those of the others.
//!
//! The folder is `STRANDLINE_SIM_CARD`. The file `<pid>.<device>` holds a number of bytes; a process that is gone holds nothing.

use std::fs;
use std::path::{Path, PathBuf};

/// One process's side of a device.
pub struct Card {
    folder: PathBuf,
    physical: usize,
}

impl Card {
    /// The device with this place in the machine.
    pub fn new(folder: &str, physical: usize) -> Card {
        Card { folder: folder.into(), physical }
    }

    /// This process holds so much.
    pub fn tell(&self, bytes: u64) {
        let path = self.folder.join(format!("{}.{}", std::process::id(), self.physical));
        // Whole or not at all: a reader must not find it empty.
        let part = path.with_extension("part");
        let written = fs::write(&part, bytes.to_string()).and_then(|()| fs::rename(&part, &path));
        if let Err(e) = written {
            eprintln!("strandline-sim: {}: {e}", path.display());
        }
    }

    /// What others hold: process and bytes.
    pub fn others(&self) -> Vec<(u32, u64)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut all: Vec<(u32, u64)> = entries.filter_map(|entry| self.read(&entry.path())).collect();
        all.sort_unstable();
        all
    }

    fn read(&self, path: &Path) -> Option<(u32, u64)> {
        let (pid, device) = path.file_name()?.to_str()?.split_once('.')?;
        let pid: u32 = pid.parse().ok()?;
        let mine = device.parse() != Ok(self.physical) || pid == std::process::id();
        if mine || !Path::new(&format!("/proc/{pid}")).exists() {
            return None;
        }
        Some((pid, fs::read_to_string(path).ok()?.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_living_processes_hold_is_counted() {
        let folder = std::env::temp_dir().join(format!("strandline-card-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let card = Card::new(folder.to_str().unwrap(), 1);
        card.tell(5);
        assert_eq!(card.others(), [], "what this process holds is not others'");
        for (name, bytes) in [("1.1", "7"), ("1.0", "9"), ("4194305.1", "11"), ("odd", "13")] {
            fs::write(folder.join(name), bytes).unwrap();
        }
        assert_eq!(card.others(), [(1, 7)]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
