//! What has been completed in an environment: a few `key=value` lines, replaced as a whole.

use super::error::{self, Error};
use super::generate::GENERATION;
use crate::files;
use std::fs;
use std::path::{Path, PathBuf};

const NAME: &str = "strandline-stamp";

/// The content of a stamp. A missing or strange one means that nothing has been completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Version of torch that is installed.
    pub(super) torch: Option<String>,
    /// Where packages lie.
    pub(super) site_packages: Option<PathBuf>,
    /// Which simulator the libraries were generated for.
    pub(super) simulator: Option<String>,
    /// Where those libraries lie.
    pub(super) lib_dir: Option<PathBuf>,
    /// Whether transformers is installed.
    pub(super) transformers: bool,
}

impl Stamp {
    /// Reads the stamp of the environment at `root`.
    pub(super) fn read(root: &Path) -> Self {
        let text = fs::read_to_string(root.join(NAME)).unwrap_or_default();
        let mut stamp = Stamp::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            match key {
                "torch" => stamp.torch = Some(value.to_string()),
                "site_packages" => stamp.site_packages = Some(root.join(value)),
                "simulator" => stamp.simulator = Some(value.to_string()),
                "lib_dir" => stamp.lib_dir = Some(root.join(value)),
                "transformers" => stamp.transformers = value == "yes",
                _ => {}
            }
        }
        stamp
    }

    /// Replaces the stamp. Paths are kept relative, so that the cache can be moved or restored elsewhere.
    pub(super) fn write(&self, root: &Path) -> Result<(), Error> {
        let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        let values = [
            ("torch", self.torch.clone()),
            ("site_packages", self.site_packages.as_deref().map(relative)),
            ("simulator", self.simulator.clone()),
            ("lib_dir", self.lib_dir.as_deref().map(relative)),
            ("transformers", self.transformers.then(|| "yes".to_owned())),
        ];
        let text: String = values.into_iter().filter_map(|(k, v)| Some(format!("{k}={}\n", v?))).collect();
        let path = root.join(NAME);
        files::write(&path, text.as_bytes())
            .map_err(|source| error::io("cannot write the stamp", &path, source))
    }
}

/// Identifies a simulator, and the way libraries are generated for it (FNV-1a, 64 bits).
pub(super) fn hash(bytes: &[u8]) -> String {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let start = GENERATION.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, mix);
    format!("{:016x}", bytes.iter().copied().fold(start, mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_survives_a_move_of_the_cache() {
        let base = std::env::temp_dir().join(format!("strandline-stamp-{}", std::process::id()));
        let (old, new) = (base.join("old"), base.join("new"));
        fs::create_dir_all(&old).unwrap();
        let stamp = Stamp {
            torch: Some("2.11.0".into()),
            site_packages: Some(old.join("lib/site-packages")),
            simulator: Some(hash(b"one")),
            lib_dir: Some(old.join("lib/nvidia")),
            transformers: true,
        };
        stamp.write(&old).unwrap();
        assert_eq!(Stamp::read(&old), stamp);
        fs::rename(&old, &new).unwrap();
        assert_eq!(Stamp::read(&new).lib_dir, Some(new.join("lib/nvidia")));
        assert_eq!(Stamp::read(&old), Stamp::default());
        assert_ne!(hash(b"one"), hash(b"two"));
        fs::remove_dir_all(&base).unwrap();
    }
}
