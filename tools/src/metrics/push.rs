//! Figures pushed to an OpenTelemetry collector, OTLP over HTTP as JSON, with OpenTelemetry's own variables.

use crate::clock::unix_ns;
use crate::post::post;
use crate::{files, say};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use percent_encoding::percent_decode_str;
use std::time::{Duration, Instant};
use strandline::report::metrics::Metrics;

/// Where to push, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collector {
    url: String,
    headers: Vec<(String, String)>,
    every: Duration,
    /// What the figures are about, as the environment says.
    resource: Vec<(String, String)>,
}

/// Whether the environment asks every program for metrics over OTLP.
pub(super) fn is_requested() -> bool {
    wished(|name| std::env::var(name).ok().filter(|v| !v.trim().is_empty()))
}

fn wished(get: impl Fn(&str) -> Option<String>) -> bool {
    let exporters = get("OTEL_METRICS_EXPORTER").unwrap_or_default();
    let is_off = get("OTEL_SDK_DISABLED").is_some_and(|v| v.trim().eq_ignore_ascii_case("true"));
    let is_set = |name| get(name).is_some();
    exporters.split(',').any(|e| e.trim() == "otlp")
        && !is_off
        && (is_set("OTEL_EXPORTER_OTLP_ENDPOINT") || is_set("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"))
}

/// `a=b,c=d%20e`: how OpenTelemetry's variables hold lists. What has no `=` is left out.
fn pairs(text: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8_lossy().into_owned();
    let pair = |entry: &str| {
        let (key, value) = entry.split_once('=')?;
        Some((decoded(key), decoded(value)))
    };
    text.split(',').filter_map(pair).collect()
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
        let of_metrics = |name: &str| {
            get(&format!("OTEL_EXPORTER_OTLP_METRICS_{name}"))
                .or_else(|| get(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let url = get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT").or_else(|| {
            let base = get("OTEL_EXPORTER_OTLP_ENDPOINT")?;
            Some(format!("{}/v1/metrics", base.trim_end_matches('/')))
        });
        let url = url.ok_or(
            "OTEL_EXPORTER_OTLP_ENDPOINT is not set; it names the collector, such as http://localhost:4318",
        )?;
        if of_metrics("PROTOCOL").is_some_and(|p| p.trim() == "grpc") {
            return Err("OTEL_EXPORTER_OTLP_PROTOCOL is grpc, and strandline speaks http/json; name the collector's HTTP port in \
                        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, such as http://localhost:4318/v1/metrics, and http/json in \
                        OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"
                .into());
        }
        let every = get("OTEL_METRIC_EXPORT_INTERVAL").and_then(|ms| ms.parse().ok()).unwrap_or(60_000);
        let every = Duration::from_millis(every).max(Duration::from_secs(1));
        let mut resource = pairs(&get("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        if let Some(name) = get("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".into(), name));
        }
        Ok(Collector { url, headers: pairs(&of_metrics("HEADERS").unwrap_or_default()), every, resource })
    }

    /// Pushes the latest figures now and then, and the last ones at the end.
    pub(super) fn push(&self, figures: &Receiver<Metrics>) {
        let host = files::host();
        let mut resource = self.resource.clone();
        for (key, value) in [("service.name", "strandline"), ("host.name", &host)] {
            if !resource.iter().any(|(k, _)| k == key) {
                resource.push((key.into(), value.into()));
            }
        }
        let began = unix_ns();
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
                let sent = post(&self.url, &self.headers, &latest.otlp(began, unix_ns(), &resource));
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
        let grpc =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
        assert!(from(&grpc).unwrap_err().contains("speaks http/json"));
        let own = [
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:4318/x"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "k=100%25%zz"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=no,team=a%20b"),
            ("OTEL_SERVICE_NAME", "train"),
        ];
        let c = from(&own).unwrap();
        assert_eq!((c.url.as_str(), c.headers), ("http://c:4318/x", vec![("k".into(), "100%%zz".into())]));
        assert_eq!(c.resource, [("team".into(), "a b".into()), ("service.name".into(), "train".into())]);
    }

    #[test]
    fn an_endpoint_alone_is_no_wish() {
        let wished = |pairs: &[(&str, &str)]| {
            wished(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string()))
        };
        let (endpoint, otlp) =
            (("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ("OTEL_METRICS_EXPORTER", "console,otlp"));
        assert!(wished(&[endpoint, otlp]));
        assert!(!wished(&[endpoint]) && !wished(&[otlp]));
        assert!(!wished(&[endpoint, ("OTEL_METRICS_EXPORTER", "none")]));
        assert!(!wished(&[endpoint, otlp, ("OTEL_SDK_DISABLED", "true")]));
    }
}
