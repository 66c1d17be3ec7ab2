//! Figures pushed to an OpenTelemetry collector, OTLP over HTTP as JSON, with OpenTelemetry's own variables.

use crate::post::post;
use crate::say;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use strandline::report::metrics::Metrics;

/// Where to push, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collector {
    url: String,
    headers: Vec<(String, String)>,
    every: Duration,
}

impl Collector {
    /// As the environment says.
    ///
    /// # Errors
    /// It names none.
    pub(super) fn from_environment() -> Result<Collector, String> {
        Collector::from(|name| std::env::var(name).ok().filter(|v| !v.trim().is_empty()))
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Result<Collector, String> {
        let url = get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT").or_else(|| {
            let base = get("OTEL_EXPORTER_OTLP_ENDPOINT")?;
            Some(format!("{}/v1/metrics", base.trim_end_matches('/')))
        });
        let url = url.ok_or(
            "OTEL_EXPORTER_OTLP_ENDPOINT is not set; it names the collector, such as http://localhost:4318",
        )?;
        let headers = get("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
        let pair =
            |entry: &str| entry.split_once('=').map(|(k, v)| (k.trim().to_string(), v.trim().to_string()));
        let every = get("OTEL_METRIC_EXPORT_INTERVAL").and_then(|ms| ms.parse().ok()).unwrap_or(60_000);
        let every = Duration::from_millis(every).max(Duration::from_secs(1));
        Ok(Collector { url, headers: headers.split(',').filter_map(pair).collect(), every })
    }

    /// Pushes the latest figures now and then, and the last ones at the end.
    pub(super) fn push(&self, figures: &Receiver<Metrics>) {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let began = unix_nanos();
        let mut latest = None;
        let mut due = Instant::now() + self.every;
        let mut failed = false;
        loop {
            let over = match figures.recv_deadline(due) {
                Ok(new) => {
                    latest = Some(new);
                    continue;
                }
                Err(e) => e == RecvTimeoutError::Disconnected,
            };
            due = Instant::now() + self.every;
            if let Some(latest) = latest.take() {
                let sent = post(&self.url, &self.headers, &latest.otlp(began, unix_nanos(), host.trim()));
                if let (Err(e), false) = (&sent, failed) {
                    say::line(format!("metrics cannot be pushed: {}", e.why));
                }
                failed = sent.is_err();
            }
            if over {
                return;
            }
        }
    }
}

fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opentelemetrys_own_variables_are_read() {
        let from = |pairs: &[(&str, &str)]| {
            Collector::from(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string()))
        };
        assert!(from(&[]).unwrap_err().contains("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let c = from(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b, c=d"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "5000"),
        ])
        .unwrap();
        assert_eq!((c.url.as_str(), c.every), ("http://c:4318/v1/metrics", Duration::from_secs(5)));
        assert_eq!(c.headers, [("a".into(), "b".into()), ("c".into(), "d".into())]);
    }
}
