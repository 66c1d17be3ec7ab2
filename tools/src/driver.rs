//! The watcher: what the driver says about the devices while the job runs, once a second, beside each recording.
//!
//! The job never asks the driver anything on our behalf; this thread does, in the wrapper's process. It writes
//! `<recording>.watch`, a line of JSON for each change: `{"t_unix_ns":…,"device":0,"total":…,"free":…,"process":…}`,
//! where `device` is the job's ordinal and `process` is null where the driver does not tell (containers). Before those, a line for
//! each device says what it is, and what a context takes there as far as that was measured (`strandline doctor --context`).

use crate::background::Background;
use crate::clock::unix_ns;
use crate::files::Folder;
use crate::nvml::{self, Device, Nvml, Usage};
use crate::{context, recording};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);
/// Until there is a recording: a short job has its first reading early.
const EAGER: Duration = Duration::from_millis(250);
/// Smaller changes are not written: every context of every process on the card breathes.
const CHANGE: u64 = 1 << 20;
/// After so many lines the interval doubles, so that a sidecar stays small in a run of weeks.
const LINES: u32 = 10_000;

/// Watches the recordings in a folder, until what it returns is dropped. Without NVML there is nothing to watch.
pub(crate) fn start(folder: &Path) -> Background {
    let folder = folder.to_path_buf();
    // Loading NVML takes its time on a large machine, which no signal of the job shall wait for.
    Background::start("sl-watch", move |stopped| {
        if let Some(nvml) = Nvml::load() {
            watch(&nvml, &folder, stopped);
        }
    })
}

fn watch(nvml: &Nvml, folder: &Path, stopped: &Receiver<()>) {
    let mut known: HashMap<PathBuf, Followed> = HashMap::new();
    let mut interval = INTERVAL;
    let mut lines = 0;
    while let Err(RecvTimeoutError::Timeout) =
        stopped.recv_timeout(if known.is_empty() { EAGER } else { interval })
    {
        for path in recording::list(folder) {
            if !known.contains_key(&path)
                && let Some(followed) = Followed::begin(nvml, &path)
            {
                known.insert(path, followed);
            }
        }
        lines += known.values_mut().map(|followed| followed.poll(nvml)).sum::<u32>();
        if lines > LINES {
            lines = 0;
            interval *= 2;
        }
    }
}

/// What the driver said of a device, and of the process's part in it.
type Reading = (Usage, Option<u64>);

/// A recording whose process is known.
struct Followed {
    pid: u32,
    devices: Vec<(Device, Option<Reading>)>,
    file: File,
}

impl Followed {
    fn begin(nvml: &Nvml, path: &Path) -> Option<Followed> {
        let pid = recording::own_pid(path)?;
        let visible = variable(pid, "CUDA_VISIBLE_DEVICES");
        let devices: Vec<_> =
            nvml::visible(nvml, visible.as_deref()).into_iter().map(|d| (d, None)).collect();
        let account = recording::sidecar(path);
        let mut file = Folder::ours(path.parent()?).ok()?.append(account.file_name()?).ok()?;
        let _ = file.write_all(identities(nvml, &devices).as_bytes());
        Some(Followed { pid, devices, file })
    }

    /// Reads every device and writes what has changed; returns how many lines that were.
    fn poll(&mut self, nvml: &Nvml) -> u32 {
        if !has_memory(self.pid) {
            return 0;
        }
        let mut text = String::new();
        let mut lines = 0;
        for (ordinal, (device, last)) in self.devices.iter_mut().enumerate() {
            let Some(usage) = nvml.usage(*device) else { continue };
            let now = (usage, nvml.process(*device, self.pid));
            // Where the driver told of the process and does no longer, the process has let go of the device: it is ending.
            if last.is_some_and(|last| !changed(last, now) || (last.1.is_some() && now.1.is_none())) {
                continue;
            }
            *last = Some(now);
            lines += 1;
            text.push_str(&line(ordinal, now));
        }
        // A full disk costs this account, nothing else.
        let _ = self.file.write_all(text.as_bytes());
        lines
    }
}

/// What the devices are: the first lines, without a time.
fn identities(nvml: &Nvml, devices: &[(Device, Option<Reading>)]) -> String {
    let Some(driver) = nvml.driver() else { return String::new() };
    let each = devices.iter().enumerate();
    each.filter_map(|(i, (device, _))| Some(context::line(i, &nvml.name(*device)?, &driver))).collect()
}

/// Whether the process still has an address space. One that is ending gives it back before its devices.
fn has_memory(pid: u32) -> bool {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    statm.split(' ').next().is_some_and(|pages| !matches!(pages, "" | "0"))
}

fn changed(last: Reading, now: Reading) -> bool {
    let process = last.1.unwrap_or(0).abs_diff(now.1.unwrap_or(0));
    last.0.free.abs_diff(now.0.free) >= CHANGE || process >= CHANGE || last.1.is_some() != now.1.is_some()
}

fn line(ordinal: usize, (usage, process): Reading) -> String {
    let value = serde_json::json!({
        "t_unix_ns": unix_ns(), "device": ordinal, "total": usage.total, "free": usage.free, "process": process,
    });
    format!("{value}\n")
}

/// A variable of another process's environment, as it was started.
fn variable(pid: u32, name: &str) -> Option<String> {
    let all = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    all.split(|b| *b == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(std::ffi::OsStr::from_bytes(value).to_string_lossy().into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_written() {
        let at = |free: u64, process| (Usage { total: 24 << 30, free }, process);
        assert!(!changed(at(5 << 20, Some(1)), at((5 << 20) + 7, Some(2))));
        assert!(changed(at(5 << 20, None), at(6 << 20, None)));
        assert!(changed(at(5 << 20, None), at(5 << 20, Some(0))), "now it tells");
        assert!(has_memory(std::process::id()) && !has_memory(0));
    }

    #[test]
    fn a_line_reads_back() {
        let text = line(1, (Usage { total: 100, free: 40 }, None));
        let (time, memory) = recording::parse_watch(&text).unwrap();
        assert!(time > 0);
        assert_eq!((memory.device.0, memory.total.0, memory.free.0, memory.process), (1, 100, 40, None));
    }
}
