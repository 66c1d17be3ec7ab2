//! PyTorch on a simulated GPU: provided on demand, and what a job needs to run there.

use crate::embedded;
use crate::error::Error;
use crate::job::Variable;
use crate::simulate::{self, Options};
use crate::size::Size;
use std::path::{Path, PathBuf};
use strandline::format::env;

/// The torch that is provided; the one that everything is tested with.
pub(crate) const TORCH: &str = "2.11.0";

/// Provides the environment: at once where it is there, in a minute or so (told on stderr) where it is not. The result is its python.
///
/// # Errors
/// It could not be made.
pub(crate) fn prepare() -> Result<PathBuf, Error> {
    prepare_with(TORCH, false)
}

/// The same for another version of torch.
pub(super) fn prepare_with(torch: &str, transformers: bool) -> Result<PathBuf, Error> {
    let options = Options {
        cache: cache()?,
        torch: torch.to_string(),
        transformers,
        simulator: embedded::simulator()?,
    };
    simulate::provision(&options)
        .map_err(|e| Error::new(format!("the simulated device cannot be set up: {e}")))
}

/// Where it is kept.
///
/// # Errors
/// There is no such place: no home.
pub(crate) fn cache() -> Result<PathBuf, Error> {
    let own = std::env::var_os(env::CACHE).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = own.or_else(|| Some(embedded::cache()?.join("simulated")));
    let cache =
        cache.ok_or_else(|| Error::new("HOME is not set, so there is no folder for the simulated device"));
    let cache = cache.map_err(|e| e.hint(format!("set {} to a folder with 2 GB of room", env::CACHE)))?;
    std::path::absolute(&cache).map_err(|e| Error::io("cannot find", cache, e))
}

/// What a job must find in its variables to run there: the device's size, and the programs beside that python first.
pub(crate) fn variables(python: &Path, size: Option<Size>) -> Vec<Variable> {
    let mut variables = Vec::new();
    if let Some(size) = size {
        variables.push((format!("{}TOTAL", env::SIMULATOR_PREFIX), size.0.to_string().into()));
    }
    if let Some(programs) = python.parent() {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(programs.to_path_buf()).chain(std::env::split_paths(&path));
        if let Ok(joined) = std::env::join_paths(all) {
            variables.push(("PATH".to_string(), joined));
        }
    }
    variables
}

/// Whether a python is one of ours: its torch runs on the simulated device.
pub(crate) fn is_simulated(python: &Path) -> bool {
    cache().is_ok_and(|cache| python.starts_with(cache))
}

/// Whether this process was started on the simulated device, as by `strandline simulate`.
pub(crate) fn is_within() -> bool {
    std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with(env::SIMULATOR_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The programs of an environment, as the first entry of a `PATH`.
    fn first_of_path(variables: &[Variable]) -> Option<PathBuf> {
        let (_, path) = variables.iter().find(|(name, _)| name == "PATH")?;
        std::env::split_paths(path).next()
    }

    #[test]
    fn a_job_finds_the_environments_programs_first_and_the_size_it_asked_for() {
        let python = Path::new("/c/torch/bin/python");
        let set = variables(python, Some(Size(24 << 30)));
        assert_eq!(first_of_path(&set), Some("/c/torch/bin".into()));
        assert!(set.iter().any(|(n, v)| n.ends_with("TOTAL") && v == "25769803776"));
        assert!(!variables(python, None).iter().any(|(n, _)| n.starts_with(env::SIMULATOR_PREFIX)));
    }
}
