//! `strandline env`: what `run` sets, for where you cannot wrap the command.

use crate::cli::EnvFormat as Format;
use crate::error::Error;
use crate::job;
use crate::recording::HOME;
use crate::{cli, embedded, files, say};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use strandline::format::env;

/// Runs the command; the result is the exit status.
///
/// # Errors
/// The library cannot be put on the disk.
pub(crate) fn main(options: &cli::Env) -> Result<u8, Error> {
    let library = embedded::preload()?;
    let folder = match &options.output {
        Some(folder) => folder.clone(),
        None => Path::new(HOME).join(job::now()),
    };
    let folder = std::path::absolute(&folder).map_err(|e| Error::io("cannot find", folder, e))?;
    let mut others = vec![(env::OUT, folder.display().to_string())];
    others.extend(options.recorded.as_env());
    if options.recorded.listens_to_nvtx() {
        others.push((job::NVTX_INJECTION, library.display().to_string()));
    }
    let settings = Settings { existing: std::env::var_os(job::LD_PRELOAD), others, library, folder };
    say::out(&settings.render(options.format));
    if let Some(remark) = remark(options.format) {
        say::line(remark);
    }
    Ok(0)
}

/// What is easily forgotten about a format.
fn remark(format: Format) -> Option<&'static str> {
    match format {
        Format::Ray | Format::Deepspeed => Some(
            "every machine must have the library and the folder at these paths: on a shared file system, or copied there",
        ),
        Format::K8s => Some(
            "the container must have the library and the folder at these paths: in its image or in a volume",
        ),
        _ => None,
    }
}

/// What is to be set.
struct Settings {
    /// What `LD_PRELOAD` is here.
    existing: Option<OsString>,
    others: Vec<(&'static str, String)>,
    library: PathBuf,
    folder: PathBuf,
}

impl Settings {
    /// Every variable with its value, for what does not see the variables that are set here.
    fn all(&self) -> Vec<(&'static str, String)> {
        self.beside(self.existing.clone().filter(|e| !self.is_in(e)))
    }

    /// The same beside what else is preloaded there.
    fn beside(&self, existing: Option<OsString>) -> Vec<(&'static str, String)> {
        let preload = job::appended(existing, &self.library).to_string_lossy().into_owned();
        std::iter::once((job::LD_PRELOAD, preload)).chain(self.others.iter().cloned()).collect()
    }

    /// Our library stands in the list already: it is not put there twice.
    fn is_in(&self, list: &OsString) -> bool {
        let library = self.library.to_string_lossy();
        list.to_string_lossy().split([':', ' ']).any(|entry| entry == library)
    }

    fn render(&self, format: Format) -> String {
        let library = self.library.display();
        // A container has its own LD_PRELOAD, if any.
        let container = |option: &str| {
            let word = |(name, value)| format!("--env {} ", quote(&format!("{name}={value}")));
            let words: String = self.beside(None).into_iter().map(word).collect();
            // Made by whoever starts it, not by a daemon that is root.
            let _ = files::make_folder(&self.folder);
            format!("{words}{option} {library}:{library}:ro {option} {0}:{0}\n", self.folder.display())
        };
        match format {
            Format::Sh => {
                let mut text = format!(
                    "case \":${{LD_PRELOAD-}}:\" in *:{library}:*) ;; *) export LD_PRELOAD=\"${{LD_PRELOAD:+$LD_PRELOAD:}}{library}\" ;; esac\n"
                );
                for (name, value) in &self.others {
                    text.push_str(&format!("export {name}={}\n", quote(value)));
                }
                text
            }
            Format::Ray => {
                let variables: serde_json::Map<_, _> =
                    self.all().into_iter().map(|(name, value)| (name.to_string(), value.into())).collect();
                format!("{}\n", json!({ "env_vars": variables }))
            }
            Format::Deepspeed => self.all().iter().map(|(name, value)| format!("{name}={value}\n")).collect(),
            Format::K8s => {
                let each = |(name, value): &(&str, String)| {
                    format!("  - name: {name}\n    value: {}\n", json!(value))
                };
                format!("env:\n{}", self.all().iter().map(each).collect::<String>())
            }
            Format::Docker => container("--volume"),
            Format::Apptainer => container("--bind"),
        }
    }
}

fn quote(word: &str) -> String {
    crate::words::quoted(&[OsString::from(word)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(existing: Option<&str>) -> Settings {
        let folder = std::env::temp_dir().join(format!("strandline-env-{}", std::process::id()));
        Settings {
            existing: existing.map(OsString::from),
            others: vec![(env::OUT, folder.display().to_string()), (env::STACKS, "both".into())],
            library: "/c/libstrandline.so".into(),
            folder,
        }
    }

    #[test]
    fn a_shell_appends_to_what_is_preloaded_and_does_so_once() {
        let text = settings(None).render(Format::Sh);
        let script = format!(
            "LD_PRELOAD=/lib/other.so\n{text}{text}unset -f x; echo \"$LD_PRELOAD $STRANDLINE_STACKS\""
        );
        // The shell itself must not be started under what it prints.
        let output = std::process::Command::new("sh").arg("-c").arg(script).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), "/lib/other.so:/c/libstrandline.so both");
    }

    #[test]
    fn every_format_is_what_its_reader_reads() {
        let s = settings(Some("/lib/other.so"));
        let ray: serde_json::Value = serde_json::from_str(&s.render(Format::Ray)).expect("JSON");
        assert_eq!(ray["env_vars"]["LD_PRELOAD"], "/lib/other.so:/c/libstrandline.so");
        assert!(s.render(Format::Deepspeed).contains("LD_PRELOAD=/lib/other.so:/c/libstrandline.so\n"));
        let k8s = s.render(Format::K8s);
        assert!(k8s.starts_with("env:\n  - name: LD_PRELOAD\n    value: \"/lib/other.so:/c/"), "{k8s}");
        let docker = s.render(Format::Docker);
        assert!(docker.starts_with("--env LD_PRELOAD=/c/libstrandline.so --env "), "{docker}");
        assert!(docker.contains("--volume /c/libstrandline.so:/c/libstrandline.so:ro"), "{docker}");
        assert!(s.render(Format::Apptainer).contains("--bind /c/libstrandline.so"));
        let twice = settings(Some("/c/libstrandline.so")).render(Format::Deepspeed);
        assert!(twice.contains("LD_PRELOAD=/c/libstrandline.so\n"), "{twice}");
        let _ = std::fs::remove_dir(&s.folder);
    }
}
