//! How bad: by time until the device is full, not by bytes.

/// Severity, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Worth a line: it will not fill the device in any run of ordinary length.
    Info,
    /// The device will be full within 10,000 steps.
    Warning,
    /// The device will be full within 200 steps, or within a day and 10,000 steps.
    Alert,
}

impl Severity {
    /// The stable name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Alert => "alert",
        }
    }
}
