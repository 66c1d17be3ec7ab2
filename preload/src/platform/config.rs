//! What the environment asks for. Read once, when the process is armed; only `STRANDLINE_DISABLE` is read earlier.

use super::environment;
use std::ffi::{CStr, OsString};
use std::path::PathBuf;
use std::time::Duration;
use strandline_core::format::env;

/// When the question who holds a leak may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Within the budget.
    Budget,
    /// Whatever it takes, at most one in so long a time: for tests.
    Every(Duration),
}

/// Which frames an allocation is recorded with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stacks {
    /// None.
    None,
    /// Python frames.
    #[default]
    Python,
    /// Native frames.
    Native,
    /// Both.
    Both,
}

impl Stacks {
    /// Python frames are wanted.
    pub(crate) fn python(self) -> bool {
        matches!(self, Stacks::Python | Stacks::Both)
    }

    /// Native frames are wanted.
    pub(crate) fn native(self) -> bool {
        matches!(self, Stacks::Native | Stacks::Both)
    }
}

/// How steps are recognised, as far as that is decided inside the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Steps {
    /// Hooks are installed on torch's optimizers.
    #[default]
    Auto,
    /// None are: the user calls `strandline_step`, or the analyser counts otherwise. Holds what was asked for.
    None(String),
    /// None are, and a step ends whenever so much time has passed.
    Every(Duration),
}

/// The environment, understood.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// `STRANDLINE_OUT`.
    pub(crate) out: Option<PathBuf>,
    /// Directory that the tail is to lie in.
    pub(crate) tail: Option<PathBuf>,
    /// Abstract address of who keeps tails open.
    pub(crate) tail_socket: Option<OsString>,
    /// `STRANDLINE_STACKS`.
    pub(crate) stacks: Stacks,
    /// `STRANDLINE_STEPS`.
    pub(crate) steps: Steps,
    /// Bound of the recording's size in bytes.
    pub(crate) max_size: u64,
    /// Nothing on stderr but failures.
    pub(crate) quiet: bool,
    /// Some `STRANDLINE_ALERT_*` is set.
    pub(crate) alerts: bool,
    /// Somebody watches already.
    pub(crate) watched: bool,
    /// What holds the blocks of a leak may be looked for, at this pace.
    pub(crate) probe: Option<Pace>,
    /// And of every growth, not only of what may be a leak.
    pub(crate) probe_all: bool,
    /// `STRANDLINE_CHECKOUT`.
    pub(crate) checkout: Option<String>,
    /// The command, to start a watcher with.
    pub(crate) bin: Option<PathBuf>,
    /// Whole lines to say: what was not understood.
    pub(crate) remarks: Vec<String>,
}

/// Size of a recording where nothing else is asked for.
pub(crate) const MAX_SIZE: u64 = 256 << 20;

/// Whether the shim is switched off. Called from the constructor, so nothing but `getenv`.
pub(crate) fn disabled() -> bool {
    const NAME: &CStr = c"STRANDLINE_DISABLE";
    // SAFETY: called while the process is still single-threaded, before `main`; the result is only looked at here.
    unsafe {
        let value = libc::getenv(NAME.as_ptr());
        !value.is_null() && CStr::from_ptr(value).to_bytes() == b"1"
    }
}

impl Config {
    /// Reads the environment.
    pub(crate) fn read() -> Config {
        let all = environment::variables().into_iter();
        Config::from_variables(all.filter_map(|(k, v)| Some((k.into_string().ok()?, v))))
    }

    fn from_variables(all: impl Iterator<Item = (String, OsString)>) -> Config {
        let mut c = Config { max_size: MAX_SIZE, probe: Some(Pace::Budget), ..Config::default() };
        for (name, value) in all.filter(|(k, _)| k.starts_with("STRANDLINE_")) {
            let text = value.to_string_lossy();
            let set = !text.is_empty();
            match name.as_str() {
                env::OUT if set => c.out = Some(PathBuf::from(&value)),
                env::TAIL if set => c.tail = Some(PathBuf::from(&value)),
                env::TAIL_SOCKET if set => c.tail_socket = Some(value),
                env::QUIET => c.quiet = text == "1",
                env::WATCHED => c.watched = text == "1",
                env::CHECKOUT if set => c.checkout = Some(text.into_owned()),
                env::BIN if set => c.bin = Some(PathBuf::from(&value)),
                env::ALERT_GROWTH | env::ALERT_OOM_WITHIN | env::ALERT_AFTER | env::ALERT_ON if set => {
                    c.alerts = true
                }
                env::PROBE if set => c.read_probe(&text),
                env::STACKS if set => c.read_stacks(&text),
                env::STEPS if set => c.read_steps(&text),
                env::MAX_SIZE if set => c.read_size(&text),
                _ if env::ALL.contains(&name.as_str()) || name.starts_with(env::SIMULATOR_PREFIX) => {}
                _ => c.remarks.push(match nearest(&name) {
                    Some(n) => format!("{name} is not a variable of strandline; did you mean {n}?"),
                    None => format!("{name} is not a variable of strandline; it is ignored"),
                }),
            }
        }
        c
    }

    fn read_stacks(&mut self, text: &str) {
        self.stacks = match text {
            "none" => Stacks::None,
            "python" => Stacks::Python,
            "native" => Stacks::Native,
            "both" => Stacks::Both,
            _ => {
                self.remarks
                    .push(format!("{}={text} is not understood; recording Python stacks", env::STACKS));
                Stacks::Python
            }
        };
    }

    fn read_probe(&mut self, text: &str) {
        // `on:SECONDS`, for tests: at most one probe in so many seconds.
        let often = text.strip_prefix("on:").and_then(|s| s.parse().ok()).filter(|s| (0.0..=1e6).contains(s));
        (self.probe, self.probe_all) = match text {
            "leaks" => (Some(Pace::Budget), false),
            "on" => (Some(Pace::Budget), true),
            _ => (often.map(Duration::from_secs_f64).map(Pace::Every), often.is_some()),
        };
        if self.probe.is_none() && text != "off" {
            self.remarks
                .push(format!("{}={text} is not understood; holders are not searched for", env::PROBE));
        }
    }

    fn read_steps(&mut self, text: &str) {
        let seconds = |text: &str| text.parse().ok().filter(|s| (0.01..=86_400.0).contains(s));
        self.steps = match (text.split_once(':').unwrap_or((text, "")), text) {
            (("every", n), _) if seconds(n).is_some() => {
                Steps::Every(Duration::from_secs_f64(seconds(n).unwrap_or(1.0)))
            }
            (("nvtx", _), _) | (_, "manual") => Steps::None(text.to_string()),
            (_, "auto") => Steps::Auto,
            _ => {
                self.remarks
                    .push(format!("{}={text} is not understood; counting steps automatically", env::STEPS));
                Steps::Auto
            }
        };
    }

    fn read_size(&mut self, text: &str) {
        match size(text) {
            Some(bytes) => self.max_size = bytes,
            None => self
                .remarks
                .push(format!("{}={text} is not a size, such as 1GiB; using 256MiB", env::MAX_SIZE)),
        }
    }
}

/// Reads `256MiB`, `1GiB`, `500000`.
pub(crate) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" | "kb" => 10,
        "m" | "mib" | "mb" => 20,
        "g" | "gib" | "gb" => 30,
        "t" | "tib" | "tb" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The variable that a misspelt one was probably meant to be: at most two edits away.
fn nearest(name: &str) -> Option<&'static str> {
    let best = env::ALL.iter().map(|n| (distance(name.as_bytes(), n.as_bytes()), *n)).min()?;
    (best.0 <= 2).then_some(best.1)
}

/// Levenshtein distance.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b) {
            let new = (diagonal + usize::from(x != y)).min(*cell + 1).min(left + 1);
            diagonal = std::mem::replace(cell, new);
            left = new;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Config {
        Config::from_variables(pairs.iter().map(|(k, v)| (k.to_string(), v.into())))
    }

    #[test]
    fn a_misspelt_variable_is_named_with_what_it_was_meant_to_be() {
        let c = from(&[("STRANDLINE_STAKS", "python"), ("STRANDLINE_SIM_DEVICES", "2"), ("PATH", "/bin")]);
        assert_eq!(
            c.remarks,
            ["STRANDLINE_STAKS is not a variable of strandline; did you mean STRANDLINE_STACKS?"]
        );
        assert!(from(&[("STRANDLINE_WHATEVER_ELSE", "1")]).remarks[0].ends_with("it is ignored"));
    }

    #[test]
    fn values_are_understood_or_named() {
        let c = from(&[
            ("STRANDLINE_STACKS", "none"),
            ("STRANDLINE_STEPS", "manual"),
            ("STRANDLINE_MAX_SIZE", "2GiB"),
        ]);
        assert_eq!((c.stacks, c.steps, c.max_size), (Stacks::None, Steps::None("manual".into()), 2 << 30));
        assert!(c.remarks.is_empty());
        assert_eq!(
            from(&[("STRANDLINE_STEPS", "every:0.5")]).steps,
            Steps::Every(Duration::from_millis(500))
        );
        for wrong in ["every:", "every:0", "every:nan", "every:1e9", "every:soon"] {
            let c = from(&[("STRANDLINE_STEPS", wrong)]);
            assert_eq!((c.steps, c.remarks.len()), (Steps::Auto, 1), "{wrong}");
        }
        let c = from(&[
            ("STRANDLINE_STACKS", "nope"),
            ("STRANDLINE_STEPS", "often"),
            ("STRANDLINE_MAX_SIZE", "big"),
        ]);
        assert_eq!((c.stacks, c.steps, c.max_size), (Stacks::Python, Steps::Auto, MAX_SIZE));
        assert_eq!(c.remarks.len(), 3);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("256MiB"), Some(256 << 20));
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("99999999999999TiB"), None);
        assert_eq!(size("MiB"), None);
    }
}
