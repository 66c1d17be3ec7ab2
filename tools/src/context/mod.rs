//! What a CUDA context takes of a device before its process allocates anything: measured by `strandline doctor --context`, kept
//! beside our libraries, and told apart in reports from what else is not the job's allocator's.
//!
//! It depends on the device and the driver, not on the job. So it is measured once, with nothing else in the process.

mod driver;
mod kept;
mod measure;

use crate::error::{Error, status};
use crate::nvml::Nvml;
use crate::say;
use kept::Kept;
use measure::Measured;
use std::collections::BTreeMap;
use std::path::Path;
use strandline::event::{Bytes, DeviceId};
use strandline::report::Context;

/// Runs `strandline doctor --context`; the result is the exit status: 0 where every device was measured.
///
/// # Errors
/// There is no driver, or no device.
pub(crate) fn main() -> Result<u8, Error> {
    leave_recording()?;
    let wrong = |what: String| {
        let error = Error::new(format!("cannot measure a CUDA context: {what}"));
        match std::env::var("CUDA_VISIBLE_DEVICES") {
            Ok(list) => error.hint(format!("CUDA_VISIBLE_DEVICES is \"{list}\": does it hide every GPU?")),
            Err(_) => error,
        }
    };
    let driver = driver::Driver::load().map_err(wrong)?;
    let devices = driver.count().map_err(wrong)?;
    if devices == 0 {
        return Err(wrong("CUDA shows no device".into()));
    }
    let version = version();
    let mut progress = say::Progress::new();
    let mut all = Vec::new();
    for device in 0..devices {
        progress.show(|| format!("measuring GPU {device} of {devices}"));
        all.push((driver.name(device), measure::device(&driver, device)));
    }
    drop(progress);
    let (text, found) = summary(&all, version.as_deref());
    say::text(&text);
    let is_known = |name: &str| version.as_ref().map(|driver| (name.to_string(), driver.clone()));
    let news = found.into_iter().filter_map(|(name, bytes)| Some((is_known(&name)?, bytes)));
    let news: Vec<Kept> = news.map(|((name, driver), bytes)| Kept::now(name, driver, bytes)).collect();
    if !news.is_empty() {
        say::out(&format!("  kept   {}\n", kept::add(news)));
    }
    Ok(if all.iter().all(|(_, m)| matches!(m, Measured::Bytes { .. })) { 0 } else { status::FAILED })
}

/// Has a context on a device until stdin ends: the process that is measured.
///
/// # Errors
/// There is no such device, or the driver refuses.
pub(crate) fn hold(device: i32) -> Result<u8, Error> {
    measure::hold(device).map(|()| 0).map_err(Error::new)
}

/// Under our own preload these calls would be a recording of ours.
fn leave_recording() -> Result<(), Error> {
    use std::os::unix::process::CommandExt;
    let preload = std::env::var("LD_PRELOAD").unwrap_or_default();
    if !preload.contains("libstrandline") {
        return Ok(());
    }
    let own = std::env::current_exe().map_err(|e| Error::io("cannot find", "this command", e))?;
    let mut again = std::process::Command::new(&own);
    Err(Error::io(
        "cannot start",
        &own,
        again.args(std::env::args_os().skip(1)).env_remove("LD_PRELOAD").exec(),
    ))
}

/// The driver's version: NVML's word, or the kernel module's.
fn version() -> Option<String> {
    let module = || std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    Nvml::load().and_then(|nvml| nvml.driver()).or_else(|| in_text(&module()?))
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue …`.
fn in_text(text: &str) -> Option<String> {
    let is_version = |w: &&str| w.contains('.') && w.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_string)
}

/// What is printed, and the least that was found for devices of each name.
fn summary(all: &[(String, Measured)], driver: Option<&str>) -> (String, BTreeMap<String, u64>) {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for (name, measured) in all {
        if let Measured::Bytes { bytes, .. } = measured {
            let least = found.entry(name.clone()).or_insert(*bytes);
            *least = (*bytes).min(*least);
        }
    }
    let by = driver.map_or_else(|| "driver not known".to_string(), |d| format!("driver {d}"));
    let each: Vec<String> = found.iter().map(|(name, b)| format!("{} MiB on {name}", mib(*b))).collect();
    let mut text = match each.is_empty() {
        true => "strandline: NOT MEASURED: how much memory a CUDA context takes\n".to_string(),
        false => format!("strandline: a CUDA context takes {} ({by})\n", each.join(", ")),
    };
    for (device, (name, measured)) in all.iter().enumerate() {
        let line = match measured {
            Measured::Bytes { bytes, trials } => {
                format!("{} MiB, the least of {trials} processes that did nothing else", mib(*bytes))
            }
            Measured::Busy => {
                "not measured: other processes allocate or free there just now; try again when it is idle"
                    .into()
            }
            Measured::Failed(why) => format!("not measured: {why}"),
        };
        text.push_str(&format!("  GPU {device}  {name}: {line}\n"));
    }
    if !each.is_empty() {
        text.push_str(
            "  what   this much GPU memory is in use before a job allocates any. A running job uses more that no allocator shows:\n         \
             the code of kernels (loaded when first used), cuBLAS, NCCL; reports show the part of it that was seen\n",
        );
        if driver.is_none() {
            text.push_str("  kept   nowhere: without NVML or /proc/driver/nvidia/version the driver's version is not known\n");
        }
    }
    (text, found)
}

/// What is known of this machine's devices, for who asks whether all is well.
pub(crate) fn known(nvml: &Nvml) -> String {
    let names = (0..nvml.count()).filter_map(|i| nvml.name(nvml.by_index(i)?));
    let names: std::collections::BTreeSet<String> = names.collect();
    let driver = nvml.driver().unwrap_or_default();
    let told = |name: &String| {
        kept::find(name, &driver).map(|k| {
            format!("CUDA takes {} MiB of {name} (measured {})", k.bytes.div_ceil(1 << 20), k.measured)
        })
    };
    let all: Option<Vec<String>> = names.iter().map(told).collect();
    let unknown = "not measured: strandline doctor --context measures how much memory CUDA itself takes; reports then show it";
    all.filter(|all| !all.is_empty()).map_or_else(|| unknown.into(), |all| all.join(" · "))
}

/// The line of a sidecar that says what a device is: the report looks up by it what a context takes there.
pub(crate) fn line(ordinal: usize, name: &str, driver: &str) -> String {
    let known = kept::find(name, driver);
    let (bytes, measured) = (known.as_ref().map(|k| k.bytes), known.as_ref().map(|k| k.measured.as_str()));
    let value = serde_json::json!({
        "device": ordinal, "name": name, "driver": driver, "context": bytes, "context_measured": measured,
    });
    format!("{value}\n")
}

/// What contexts take on the devices of a recording, as far as it was measured when it was made, or is known here by now.
pub(crate) fn of_recording(recording: &Path) -> BTreeMap<DeviceId, Context> {
    let text = crate::recording::sidecar_begin(recording);
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let known = lines.filter_map(|line| {
        let text = |key: &str| line.get(key)?.as_str();
        let device = DeviceId(u8::try_from(line.get("device")?.as_u64()?).ok()?);
        let (name, driver) = (text("name")?, text("driver")?);
        let told = line.get("context").and_then(|b| b.as_u64()).zip(text("context_measured"));
        let told = told.map(|(bytes, measured)| (bytes, measured.to_string()));
        let (bytes, measured) = told.or_else(|| kept::find(name, driver).map(|k| (k.bytes, k.measured)))?;
        Some((device, Context { bytes: Bytes(bytes), driver: driver.to_string(), measured }))
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_module_tells_its_version() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version: 12.2";
        assert_eq!(in_text(open).as_deref(), Some("580.95.05"));
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n";
        assert_eq!(in_text(closed).as_deref(), Some("535.183.01"));
        assert_eq!(in_text("what?"), None);
    }

    #[test]
    fn the_figure_comes_first_and_what_was_not_measured_is_said() {
        let h = |bytes: u64| ("NVIDIA H200".to_string(), Measured::Bytes { bytes, trials: 3 });
        let (text, found) = summary(&[h(527 << 20), h(525 << 20)], Some("580.95.05"));
        assert!(
            text.starts_with("strandline: a CUDA context takes 525 MiB on NVIDIA H200 (driver 580.95.05)\n"),
            "{text}"
        );
        assert_eq!(found["NVIDIA H200"], 525 << 20);
        let (text, found) = summary(&[("A".into(), Measured::Busy)], Some("1.0"));
        assert!(
            text.starts_with("strandline: NOT MEASURED: ")
                && text.contains("when it is idle")
                && found.is_empty(),
            "{text}"
        );
        assert!(summary(&[h(1)], None).0.contains("kept   nowhere"), "without a driver's name");
    }
}
