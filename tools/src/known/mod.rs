//! Leaks that are known, with their remedy: is this finding one of them, and is the fix installed?
//!
//! `leaks.json` lists them: the file and function that allocates what stays, the package, the first version with the fix.
//! The installed version is read from the `dist-info` beside the package that the recording names, where the report is
//! made on the machine that ran the job.

use crate::analyze::Judged;
use serde_json::Value;
use std::fs;
use std::path::Path;
use strandline::detect::Finding;
use strandline::event::Frame;
use strandline::report::{Fix, Known};

const LEAKS: &str = include_str!("leaks.json");

/// What is known of a finding.
pub(crate) fn of(finding: &Finding, judged: &Judged) -> Known {
    let frames = finding.sites.iter().filter_map(|s| judged.replay().site(s.site)).map(|site| &site.frame);
    let leaks: Value = serde_json::from_str(LEAKS).unwrap_or_default();
    let leaks = leaks.as_array().cloned().unwrap_or_default();
    let mut found = frames.filter_map(|frame| leaks.iter().find_map(|leak| fix(leak, frame)));
    Known { fix: found.next(), ..Known::default() }
}

/// The remedy, if the frame is where this known leak allocates and the installed version does not have the fix.
fn fix(leak: &Value, frame: &Frame) -> Option<Fix> {
    let text = |key: &str| leak.get(key)?.as_str();
    let (package, fixed) = (text("package")?, text("fixed")?);
    let matches = frame.file.ends_with(text("file")?) && frame.function.contains(text("function")?);
    if !matches {
        return None;
    }
    let installed = version(&frame.file, package);
    if installed.as_deref().is_some_and(|v| numbers(v) >= numbers(fixed)) {
        return None;
    }
    let have = installed.map(|v| format!(" (you have {v})")).unwrap_or_default();
    Some(Fix {
        known: text("known")?.to_string(),
        text: format!("fixed in {package} {fixed}{have}: {}", text("remedy")?),
    })
}

/// Version of the package that a file belongs to: from the name of the `dist-info` beside the package.
fn version(file: &str, package: &str) -> Option<String> {
    let home = Path::new(file).ancestors().find(|a| a.file_name().is_some_and(|n| n == package))?.parent()?;
    let prefix = format!("{package}-");
    fs::read_dir(home).ok()?.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_prefix(&prefix)?.strip_suffix(".dist-info")?.to_string())
    })
}

/// A version's leading numbers, for comparison.
fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trl(version: Option<&str>, function: &str) -> Option<Fix> {
        let home = std::env::temp_dir().join(format!("strandline-known-{}-{version:?}", std::process::id()));
        fs::create_dir_all(home.join("trl/models")).unwrap();
        if let Some(version) = version {
            fs::create_dir_all(home.join(format!("trl-{version}.dist-info"))).unwrap();
        }
        let file = home.join("trl/models/activation_offloading.py").to_string_lossy().into_owned();
        let leaks: Value = serde_json::from_str(LEAKS).unwrap();
        let frame = Frame { file, line: 430, function: function.into() };
        let found = fix(&leaks[0], &frame);
        fs::remove_dir_all(&home).unwrap();
        found
    }

    #[test]
    fn a_known_leak_is_named_with_the_installed_version_and_the_remedy() {
        let function = "OffloadActivations.__init__.<locals>.unpack_tensor_with_streams";
        let fix = trl(Some("1.3.0"), function).unwrap();
        assert_eq!(fix.known, "huggingface/trl#5700");
        assert_eq!(fix.text, "fixed in trl 1.4.0 (you have 1.3.0): pip install -U \"trl>=1.5\"");
        assert_eq!(
            trl(Some("1.16.0"), function),
            None,
            "1.16 is newer than 1.4, and what is fixed is not proposed"
        );
        assert!(trl(None, function).is_some_and(|f| !f.text.contains("you have")), "on another machine");
        assert_eq!(trl(Some("1.3.0"), "pack_tensor"), None);
    }

    #[test]
    fn the_list_is_whole() {
        let leaks: Value = serde_json::from_str(LEAKS).unwrap();
        for leak in leaks.as_array().unwrap() {
            for key in ["known", "package", "file", "function", "fixed", "remedy"] {
                assert!(leak[key].as_str().is_some_and(|t| !t.is_empty()), "{key} of {leak}");
            }
        }
    }
}
