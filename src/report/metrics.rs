//! Figures for monitoring: Prometheus' text exposition, and the same as OTLP metrics.
//!
//! Cardinality is bounded: of streams and sites only the largest of each process are told.

use super::model::{Facts, Process, used};
use crate::event::add;
use crate::replay::{Device, Replay, Site, SiteKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Streams of a process that are told.
const STREAMS: usize = 8;
/// Sites of a process that are told.
const SITES: usize = 10;

/// What one figure is about.
type Labels = Vec<(&'static str, String)>;

/// A metric: its name, what it is, and its figures.
#[derive(Clone, Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    figures: Vec<(Labels, f64)>,
}

impl Family {
    /// As Prometheus names them; anything else is a gauge.
    fn is_counter(&self) -> bool {
        self.name.ends_with("_total")
    }

    fn unit(&self) -> &'static str {
        if self.name.contains("_bytes") { "By" } else { "" }
    }
}

/// Figures of some processes as of now.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    families: Vec<Family>,
}

impl Metrics {
    /// Adds a process, and how many alerts were told of it. Processes are told apart by `rank` and `pid`; `process` is
    /// both in words.
    pub fn add(&mut self, p: &Process<'_>, alerts: u64) {
        let facts = Facts::of(p.replay);
        let number = |key: &str| facts.number(key).map(|n| n.to_string()).unwrap_or_default();
        let own: Labels = vec![("rank", number("rank")), ("pid", number("pid")), ("process", facts.who())];
        let r = p.replay;
        self.put("strandline_steps_total", "Steps that have ended", &own, r.steps().into());
        self.put("strandline_events_total", "Events recorded", &own, r.events() as f64);
        let lost = "Events lost while recording";
        self.put("strandline_events_lost_total", lost, &own, r.lost() as f64);
        self.put("strandline_alerts_total", "Alerts raised", &own, alerts as f64);
        for d in used(p) {
            let at = with(&own, [("device", d.id.0.to_string())]);
            let mut bytes = |name, help, b: u64| self.put(name, help, &at, b as f64);
            bytes("strandline_allocated_bytes", "Allocated by PyTorch", d.allocated.0);
            bytes("strandline_reserved_bytes", "Reserved by PyTorch", d.reserved.0);
            bytes("strandline_pending_bytes", "Freed, but a stream may still use it", d.pending.0);
            bytes("strandline_peak_allocated_bytes", "Most ever allocated", d.peak_allocated.bytes.0);
            bytes("strandline_peak_reserved_bytes", "Most ever reserved", d.peak_reserved.bytes.0);
            if let Some(c) = d.capacity {
                bytes("strandline_capacity_bytes", "Memory of the device", c.total.0);
            }
        }
        self.live(r, &own);
        for f in p.findings.iter().filter(|f| f.grows()) {
            let site = f.sites.first().and_then(|s| r.site(s.site)).map(place).unwrap_or_default();
            let stream = f.stream.map(|s| s.id.0.to_string()).unwrap_or_default();
            let labels = with(
                &own,
                [
                    ("device", f.device.0.to_string()),
                    ("stream", stream),
                    ("kind", f.kind.name().into()),
                    ("certainty", f.certainty.name().into()),
                    ("severity", f.severity.name().into()),
                    ("site", site),
                ],
            );
            self.put("strandline_leak_bytes", "Memory left behind by a leak", &labels, f.bytes_now as f64);
            let rate = f.current_bytes_per_step;
            self.put("strandline_leak_bytes_per_step", "Growth per step", &labels, rate);
            if let Some(n) = f.steps_to_oom.map(|s| s.mid).filter(|n| *n != u64::MAX) {
                let help = "Steps until the device is full";
                self.put("strandline_leak_steps_to_full", help, &labels, n as f64);
            }
        }
    }

    /// Live bytes of the largest streams and sites.
    fn live(&mut self, r: &Replay, own: &Labels) {
        let of_streams = |d: &Device| {
            r.live_of_streams(d.id).into_iter().map(|(s, p)| ((d.id.0, s.0), p.bytes)).collect::<Vec<_>>()
        };
        let streams: BTreeMap<(u8, u32), u64> = r.devices().flat_map(of_streams).collect();
        let mut sites: BTreeMap<(u8, String), u64> = BTreeMap::new();
        for c in r.cohorts().iter().filter(|c| c.live.bytes > 0) {
            let key = &c.key;
            let site = r.site(key.site).map(place).unwrap_or_default();
            add(sites.entry((key.device.0, site)).or_default(), c.live.bytes);
        }
        for ((device, stream), bytes) in largest(streams, STREAMS) {
            let labels = with(own, [("device", device.to_string()), ("stream", stream.to_string())]);
            let help = "Bytes in live blocks of a stream (only the largest streams)";
            self.put("strandline_stream_live_bytes", help, &labels, bytes as f64);
        }
        for ((device, site), bytes) in largest(sites, SITES) {
            let labels = with(own, [("device", device.to_string()), ("site", site)]);
            let help = "Bytes in live blocks of a source line (only the largest lines)";
            self.put("strandline_site_live_bytes", help, &labels, bytes as f64);
        }
    }

    fn put(&mut self, name: &'static str, help: &'static str, labels: &Labels, value: f64) {
        let figure = (labels.clone(), value);
        match self.families.iter_mut().find(|f| f.name == name) {
            Some(family) => family.figures.push(figure),
            None => self.families.push(Family { name, help, figures: vec![figure] }),
        }
    }

    /// The text that Prometheus scrapes, version 0.0.4.
    pub fn prometheus(&self) -> String {
        let mut out = String::new();
        for f in &self.families {
            let kind = if f.is_counter() { "counter" } else { "gauge" };
            let _ = write!(out, "# HELP {} {}\n# TYPE {} {kind}\n", f.name, f.help, f.name);
            for (labels, value) in &f.figures {
                let all: Vec<String> =
                    labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escaped(v))).collect();
                let _ = writeln!(out, "{}{{{}}} {value}", f.name, all.join(","));
            }
        }
        out
    }

    /// The body of an OTLP export request, as JSON. `now`: nanoseconds of the Unix epoch; `began`: when counting began;
    /// `resource`: what the figures are about.
    pub fn otlp(&self, began: u64, now: u64, resource: &[(String, String)]) -> Value {
        let text = |k: &str, v: &str| json!({ "key": k, "value": { "stringValue": v } });
        let metrics: Vec<Value> = self
            .families
            .iter()
            .map(|f| {
                let points: Vec<Value> = f
                    .figures
                    .iter()
                    .map(|(labels, value)| {
                        json!({
                            "attributes": labels.iter().map(|(k, v)| text(k, v)).collect::<Vec<_>>(),
                            "startTimeUnixNano": began.to_string(),
                            "timeUnixNano": now.to_string(),
                            "asDouble": value,
                        })
                    })
                    .collect();
                let data = match f.is_counter() {
                    false => ("gauge", json!({ "dataPoints": points })),
                    // 2: cumulative.
                    true => (
                        "sum",
                        json!({ "dataPoints": points, "aggregationTemporality": 2, "isMonotonic": true }),
                    ),
                };
                json!({ "name": f.name, "description": f.help, "unit": f.unit(), data.0: data.1 })
            })
            .collect();
        json!({ "resourceMetrics": [{
            "resource": { "attributes": resource.iter().map(|(k, v)| text(k, v)).collect::<Vec<_>>() },
            "scopeMetrics": [{
                "scope": { "name": "strandline", "version": crate::VERSION },
                "metrics": metrics,
            }],
        }] })
    }
}

fn with<const N: usize>(own: &Labels, more: [(&'static str, String); N]) -> Labels {
    own.iter().cloned().chain(more).collect()
}

fn largest<K: Ord>(all: BTreeMap<K, u64>, most: usize) -> Vec<(K, u64)> {
    let mut all: Vec<(K, u64)> = all.into_iter().collect();
    all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    all.truncate(most);
    all
}

/// `trl/models/activation_offloading.py:430`, with the last folders only: what tells lines apart, and no home of anybody.
pub fn place(site: &Site) -> String {
    if site.kind == SiteKind::Unknown {
        return "native".into();
    }
    let backward = if site.kind == SiteKind::Backward { "backward of " } else { "" };
    format!("{backward}{}:{}", last_folders(&site.frame.file), site.frame.line)
}

/// A file with the last two folders that it lies in. A script that was given by a relative path has the way to it in its name.
pub fn last_folders(file: &str) -> String {
    let mut parts = Vec::new();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.split_off(parts.len().saturating_sub(3)).join("/")
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_script_is_no_part_of_its_name() {
        assert_eq!(last_folders("/home/u/job/trl/models/a.py"), "trl/models/a.py");
        assert_eq!(last_folders("../../jobs/./train.py"), "jobs/train.py");
        assert_eq!(last_folders("/a/b/../c/train.py"), "a/c/train.py");
        assert_eq!(last_folders("train.py"), "train.py");
    }
}
