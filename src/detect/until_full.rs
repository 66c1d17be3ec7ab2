//! When a device will be full: the figures alone. How they come about is in `forecast.rs`.

/// When the device will be full, in the finding's grain from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepsToOom {
    /// At the highest rate seen lately.
    pub low: u64,
    /// At the current rate.
    pub mid: u64,
    /// At the lowest rate that is still in keeping with what was seen; `u64::MAX` where growth dies away
    /// before the device is full.
    pub high: u64,
}

/// When the device will be full, in seconds from now on at the pace of the last steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondsToOom {
    /// The earliest.
    pub low: u64,
    /// The most likely.
    pub mid: u64,
    /// The latest; `u64::MAX` where growth dies away before the device is full.
    pub high: u64,
}

impl SecondsToOom {
    /// What so many marks take at `pace` seconds each.
    pub(super) fn of(marks: &StepsToOom, pace: f64) -> SecondsToOom {
        let of = |n: u64| match n {
            u64::MAX => u64::MAX,
            n => (n as f64 * pace).round().min(u64::MAX as f64) as u64,
        };
        SecondsToOom { low: of(marks.low), mid: of(marks.mid), high: of(marks.high) }
    }
}
