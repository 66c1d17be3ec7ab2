//! Libraries of the distribution, unpacked beside everything else that tests keep: nothing is installed, and nobody need be root.

use super::support::cache;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file of a Debian package; `None` where it cannot be had, which is said.
pub(crate) fn file(package: &str, path: &str) -> Option<PathBuf> {
    let folder = cache().join("debian").join(package);
    if !folder.join(path).exists()
        && let Err(why) = unpack(package, &folder)
    {
        eprintln!("SKIPPED: Debian's {package} cannot be had here: {why}");
        return None;
    }
    let found = folder.join(path);
    assert!(found.exists(), "{package} has no {path}");
    Some(found)
}

fn unpack(package: &str, folder: &Path) -> Result<(), String> {
    // Tests run beside each other: each unpacks for itself, and the first one's is taken.
    let own = folder.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
    let fail = |e: std::io::Error| e.to_string();
    std::fs::create_dir_all(&own).map_err(fail)?;
    let said = (|| {
        run(Command::new("apt-get").args(["-q", "download", package]).current_dir(&own))?;
        let files = std::fs::read_dir(&own).map_err(fail)?.flatten().map(|e| e.path());
        let deb = files.into_iter().find(|p| p.extension().is_some_and(|e| e == "deb"));
        run(Command::new("dpkg-deb").arg("-x").arg(deb.ok_or("no package came")?).arg(&own))
    })();
    if said.is_ok() && std::fs::rename(&own, folder).is_ok() {
        return Ok(());
    }
    let _ = std::fs::remove_dir_all(&own);
    said
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    if output.status.success() { Ok(()) } else { Err(said) }
}
