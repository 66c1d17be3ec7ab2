//! What was measured, kept for reports: `contexts.json` in the user's cache, one entry for each kind of device and driver.

use crate::{embedded, files, say};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// What the device is called.
    pub(super) name: String,
    /// The driver's version.
    pub(super) driver: String,
    /// What a context took.
    pub(super) bytes: u64,
    /// On which day, as `2026-11-22`.
    pub(super) measured: String,
}

impl Kept {
    /// Measured today.
    pub(super) fn now(name: String, driver: String, bytes: u64) -> Kept {
        Kept { name, driver, bytes, measured: crate::job::today() }
    }

    fn read(value: &Value) -> Option<Kept> {
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_string());
        let bytes = value.get("bytes")?.as_u64()?;
        Some(Kept { name: text("name")?, driver: text("driver")?, bytes, measured: text("measured")? })
    }

    fn to_json(&self) -> Value {
        json!({ "name": self.name, "driver": self.driver, "bytes": self.bytes, "measured": self.measured })
    }
}

fn path() -> Option<PathBuf> {
    Some(embedded::cache()?.join("contexts.json"))
}

/// What is known of such a device.
pub(super) fn find(name: &str, driver: &str) -> Option<Kept> {
    all(&path()?).into_iter().find(|k| k.name == name && k.driver == driver)
}

/// Adds what was measured, in the place of what is known of the same; says where it is kept, or why it is not.
pub(super) fn add(news: Vec<Kept>) -> String {
    let Some(path) = path() else { return "nowhere: HOME is not set".into() };
    match add_to(&path, news) {
        Ok(()) => format!("{}, for reports of what is recorded here", say::path(&path)),
        Err(e) => format!("nowhere: {}: {e}", say::path(&path)),
    }
}

/// A file that is not as it should be is as none.
fn all(path: &Path) -> Vec<Kept> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let entries = value.get("contexts").and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(Kept::read).collect()
}

fn add_to(path: &Path, news: Vec<Kept>) -> std::io::Result<()> {
    let mut kept = all(path);
    kept.retain(|k| !news.iter().any(|n| n.name == k.name && n.driver == k.driver));
    kept.extend(news);
    let entries: Vec<Value> = kept.iter().map(Kept::to_json).collect();
    let text = format!("{:#}\n", json!({ "schema": 1, "contexts": entries }));
    if let Some(folder) = path.parent() {
        files::make_folder(folder)?;
    }
    files::write(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_figure_takes_the_place_of_the_older_one() {
        let folder = std::env::temp_dir().join(format!("strandline-kept-{}", std::process::id()));
        let path = folder.join("contexts.json");
        let kept = |name: &str, driver: &str, bytes| Kept::now(name.into(), driver.into(), bytes);
        add_to(&path, vec![kept("A", "1", 7), kept("B", "1", 8)]).unwrap();
        add_to(&path, vec![kept("A", "1", 9), kept("A", "2", 10)]).unwrap();
        let known: Vec<_> = all(&path).into_iter().map(|k| (k.name, k.driver, k.bytes)).collect();
        let text = |s: &str| s.to_string();
        assert_eq!(known, [(text("B"), text("1"), 8), (text("A"), text("1"), 9), (text("A"), text("2"), 10)]);
        std::fs::write(&path, "{\"contexts\": 7}").unwrap();
        assert_eq!(all(&path), [], "what is no such file is as none");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
