//! A Python with an unmodified PyTorch on a simulated CUDA device, made on demand below a cache directory.
//!
//! ```text
//! <cache>/torch-2.11.0/                 a virtual environment; torch from the package index, as it is
//!    lib/python3.x/site-packages/…      torch finds its CUDA libraries by its own search path; there lie
//!       nvidia/cu13/lib/                the simulator and, for every CUDA library torch needs, one that jumps to it
//!    strandline-stamp                   what has been completed; written last
//! <cache>/wheels/                       wheels that are used as they are, not installed
//! <cache>/lock                          held while anything is made
//! ```
//!
//! With everything in place [`provision`] reads the stamp and returns. A simulator that was built anew has its
//! libraries generated anew, which takes a second or two; torch is not touched.

pub(crate) mod elf;
mod error;
mod folders;
mod generate;
mod link;
mod lock;
mod progress;
mod python;
mod slim;
mod stamp;

pub(crate) use error::Error;

use folders::make_directory;
use stamp::Stamp;
use std::fs;
use std::path::{Path, PathBuf};

/// The TRL wheels that come with transformers.
pub(crate) const TRL_VERSIONS: [&str; 4] = ["1.3.0", "1.4.0", "1.6.0", "1.16.0"];

/// What to provide.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Where everything is kept.
    pub(crate) cache: PathBuf,
    /// Version of torch, for example `2.11.0`.
    pub(crate) torch: String,
    /// To install transformers and accelerate as well, and the TRL wheels that known leaks are shown with.
    pub(crate) transformers: bool,
    /// The built simulator, `libstrandline_simcuda.so`.
    pub(crate) simulator: PathBuf,
}

/// Provides an environment, making what is missing: its Python, which nothing needs to be set for.
pub(crate) fn provision(options: &Options) -> Result<PathBuf, Error> {
    supported()?;
    let root = options.cache.join(format!("torch-{}", name_part(&options.torch)?));
    make_directory(&root)?;
    let simulator = read(&options.simulator)?;
    let wanted = stamp::hash(&simulator);
    let venv = python::Venv::at(&root);
    let mut done = Stamp::read(&root);
    if is_complete(&done, options, &venv, &wanted) {
        return Ok(venv.python());
    }

    let _lock = lock::take(&options.cache)?;
    done = Stamp::read(&root); // Somebody else may have done it while we waited.
    if is_complete(&done, options, &venv, &wanted) {
        return Ok(venv.python());
    }
    if done.torch.as_deref() != Some(&options.torch) {
        link::check(&root)?;
        venv.create()?;
        venv.install_torch(&options.torch)?;
        let site_packages = venv.site_packages()?;
        let freed = slim::slim(&site_packages.join("torch/lib"));
        if freed > 0 {
            let what = "freeing disk space that holds code for GPUs";
            progress::tell(format_args!("strandline: {what}: {} MB\n", freed / 1_000_000));
        }
        done = Stamp {
            torch: Some(options.torch.clone()),
            site_packages: Some(site_packages),
            ..Stamp::default()
        };
        done.write(&root)?;
    }
    let site_packages = match &done.site_packages {
        Some(path) => path.clone(),
        None => venv.site_packages()?,
    };
    let lib_dir = generate::directory(&site_packages)?;
    if done.simulator.as_deref() != Some(&wanted) || done.lib_dir.as_deref() != Some(&lib_dir) {
        done.simulator = None; // Whatever stops us half-way must not leave an old stamp on new files.
        done.write(&root)?;
        progress::stage("simulated CUDA libraries: generating", || {
            generate::generate(&site_packages, &lib_dir, &options.simulator, &simulator)
        })?;
        progress::stage("first use of torch on the simulated device: testing", || venv.smoke_test())?;
        done.simulator = Some(wanted);
        done.lib_dir = Some(lib_dir.clone());
        done.write(&root)?;
    }
    if options.transformers {
        if !done.transformers {
            venv.install_transformers()?;
            done.transformers = true;
            done.write(&root)?;
        }
        python::download_trl(&venv.python(), &options.cache.join("wheels"), &TRL_VERSIONS)?;
    }
    Ok(venv.python())
}

/// Downloads TRL wheels of those versions to `<cache>/wheels` with the pip of `python`, which is an
/// environment's; returns the directory. Cheap, and free once they are there.
pub(crate) fn wheels(cache: &Path, python: &Path, versions: &[&str]) -> Result<PathBuf, Error> {
    let directory = cache.join("wheels");
    if python::missing_trl(&directory, versions).is_empty() {
        return Ok(directory);
    }
    make_directory(cache)?;
    let _lock = lock::take(cache)?;
    python::download_trl(python, &directory, versions)?;
    Ok(directory)
}

fn supported() -> Result<(), Error> {
    if cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")) {
        return Ok(());
    }
    let why = "the simulated device needs Linux on x86-64 with glibc, as PyTorch's CUDA wheels do";
    Err(why.into())
}

/// Whether what is there, by its stamp, is all that is asked.
fn is_complete(done: &Stamp, options: &Options, venv: &python::Venv, simulator: &str) -> bool {
    let wheels = options.cache.join("wheels");
    let extras =
        !options.transformers || done.transformers && python::missing_trl(&wheels, &TRL_VERSIONS).is_empty();
    let current =
        done.torch.as_deref() == Some(&options.torch) && done.simulator.as_deref() == Some(simulator);
    let has_libraries = done.site_packages.is_some() && done.lib_dir.as_ref().is_some_and(|l| l.exists());
    current && extras && venv.python().exists() && has_libraries
}

/// A version as part of a directory's name.
fn name_part(version: &str) -> Result<&str, Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-');
    match version {
        "" => Err("no version of torch was named; try 2.11.0".into()),
        version if version.chars().all(plain) => Ok(version),
        _ => Err(format!("{version:?} is not a version of torch; try 2.11.0")),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| error::io("cannot read the simulator", path, source))
}
