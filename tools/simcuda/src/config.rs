//! The environment variables.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `STRANDLINE_SIM_DEVICES` | devices in the machine, 0 to 16 | 1 |
//! | `STRANDLINE_SIM_TOTAL` | capacity of each (`24GiB`, `512MiB`, bytes) | 24GiB |
//! | `STRANDLINE_SIM_OTHER` | how much of each is held by other processes | 0 |
//! | `STRANDLINE_SIM_CONTEXT` | what a process's context takes of a device before its first allocation there | 0 |
//! | `STRANDLINE_SIM_CARD` | a folder by which processes share their devices: what one holds, others see as used | none |
//! | `STRANDLINE_SIM_CLOCK` | `real`, or `manual`: time moves only when told or waited for | real |
//! | `STRANDLINE_SIM_OP_NS` | how long one operation occupies its stream, ns | 0; 1000 with the manual clock |
//! | `STRANDLINE_SIM_CC` | compute capability | 8.0 |
//! | `STRANDLINE_SIM_TRACE` | a file (or `-`: stderr) that gets a line for every call | none |
//! | `STRANDLINE_SIM_STUB` | a function that is not simulated: `quiet`: says nothing, `abort`: ends the process | says its name once |
//! | `CUDA_VISIBLE_DEVICES` | as with CUDA: which devices, in which order; empty or -1: none | all |

use std::env;

/// Most devices that a simulated machine has.
pub const MAX_DEVICES: usize = 16;

const GIB: u64 = 1 << 30;

/// What the environment asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Devices in the machine, visible or not.
    pub devices: usize,
    /// Which of them this process sees, in its order.
    pub visible: Vec<usize>,
    /// Capacity of each device in bytes.
    pub total: u64,
    /// Bytes of each device that other processes hold.
    pub other: u64,
    /// Bytes that a context takes.
    pub context: u64,
    /// Where processes that share the devices say what they hold.
    pub card: Option<String>,
    /// Whether the clock stands still.
    pub manual: bool,
    /// Nanoseconds that one operation occupies its stream.
    pub op_ns: u64,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Where to trace.
    pub trace: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            devices: 1,
            visible: vec![0],
            total: 24 * GIB,
            other: 0,
            context: 0,
            card: None,
            manual: false,
            op_ns: 0,
            capability: (8, 0),
            trace: None,
        }
    }
}

impl Config {
    /// Reads the process's environment. What cannot be read is said on stderr and takes its default.
    pub fn from_env() -> Self {
        Self::read(|name| env::var(name).ok())
    }

    /// Reads settings by name.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let standard = Config::default();
        let devices = parse(&variable, "STRANDLINE_SIM_DEVICES", standard.devices, |text| text.parse().ok());
        let devices = devices.min(MAX_DEVICES);
        let visible = match variable("CUDA_VISIBLE_DEVICES") {
            Some(list) => visible(&list, devices),
            None => (0..devices).collect(),
        };
        let manual = parse(&variable, "STRANDLINE_SIM_CLOCK", false, |text| match text {
            "manual" => Some(true),
            "real" => Some(false),
            _ => None,
        });
        Config {
            devices,
            visible,
            total: parse(&variable, "STRANDLINE_SIM_TOTAL", standard.total, size),
            other: parse(&variable, "STRANDLINE_SIM_OTHER", standard.other, size),
            context: parse(&variable, "STRANDLINE_SIM_CONTEXT", standard.context, size),
            card: variable("STRANDLINE_SIM_CARD").filter(|path| !path.is_empty()),
            manual,
            op_ns: parse(&variable, "STRANDLINE_SIM_OP_NS", if manual { 1_000 } else { 0 }, |text| {
                text.parse().ok()
            }),
            capability: parse(&variable, "STRANDLINE_SIM_CC", standard.capability, |text| {
                let (major, minor) = text.split_once('.')?;
                Some((major.parse().ok()?, minor.parse().ok()?))
            }),
            trace: variable("STRANDLINE_SIM_TRACE").filter(|path| !path.is_empty()),
        }
    }
}

fn parse<T>(
    variable: &impl Fn(&str) -> Option<String>,
    name: &str,
    standard: T,
    read: impl Fn(&str) -> Option<T>,
) -> T {
    let Some(text) = variable(name).filter(|text| !text.is_empty()) else { return standard };
    read(text.trim()).unwrap_or_else(|| {
        eprintln!("strandline-sim: {name}={text} is not understood; its default is used");
        standard
    })
}

/// A number of bytes with an optional unit: `24GiB`, `1.5g`, `4096`.
pub fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => GIB,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let bytes = number.parse::<f64>().ok()? * scale as f64;
    (bytes.is_finite() && bytes < u64::MAX as f64).then_some(bytes as u64)
}

/// CUDA's rule: the list ends at the first entry that names no device or names one twice.
fn visible(list: &str, devices: usize) -> Vec<usize> {
    let mut seen = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let index = match entry.strip_prefix("GPU-") {
            Some(uuid) => (0..devices).find(|&d| crate::device::uuid_text(d).starts_with(uuid)),
            None => entry.parse().ok().filter(|&index: &usize| index < devices),
        };
        match index {
            Some(index) if !seen.contains(&index) => seen.push(index),
            Some(_) => return Vec::new(),
            None => break,
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(settings: &[(&str, &str)]) -> Config {
        Config::read(|name| settings.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string()))
    }

    #[test]
    fn sizes_take_units() {
        assert_eq!(size("24GiB"), Some(24 << 30));
        assert_eq!(size("1.5g"), Some(3 << 29));
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("12 MiB"), Some(12 << 20));
        assert_eq!(size("many"), None);
        assert_eq!(size("99999999999T"), None);
    }

    #[test]
    fn visible_devices_follow_cudas_rule() {
        let visible =
            |list: &str| with(&[("STRANDLINE_SIM_DEVICES", "4"), ("CUDA_VISIBLE_DEVICES", list)]).visible;
        assert_eq!(visible("2,0"), [2, 0]);
        assert_eq!(visible("1,9,2"), [1]);
        assert_eq!(visible("1,-1,2"), [1]);
        assert_eq!(visible(""), []);
        assert_eq!(visible("-1"), []);
        assert_eq!(visible("1,1"), []);
        assert_eq!(with(&[("STRANDLINE_SIM_DEVICES", "2")]).visible, [0, 1]);
    }

    #[test]
    fn the_manual_clock_brings_a_cost_for_operations() {
        assert_eq!(with(&[]).op_ns, 0);
        assert_eq!(with(&[("STRANDLINE_SIM_CLOCK", "manual")]).op_ns, 1_000);
        assert_eq!(with(&[("STRANDLINE_SIM_CLOCK", "manual"), ("STRANDLINE_SIM_OP_NS", "7")]).op_ns, 7);
    }
}
