//! `--metrics`: what monitoring systems want to know, at an address, in a file, or pushed. One exporter for all processes that
//! are watched; nothing listens or is sent unless asked for.

mod push;
mod serve;

use crate::background::spawn;
use crate::{files, say};
use crossbeam_channel::{Receiver, Sender};
use std::io::{self, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};
use strandline::report::metrics::Metrics;

/// How often figures are made.
const EVERY: Duration = Duration::from_secs(1);
/// How long the last figures may take to get out.
const LAST: Duration = Duration::from_secs(5);

/// Where figures go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    /// Served at this address, under `/metrics`.
    Listen(String),
    /// A file that is replaced whole, as node_exporter's textfile collector reads it.
    File(PathBuf),
    /// Pushed to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names.
    Otlp(push::Collector),
}

impl FromStr for Sink {
    type Err = String;

    fn from_str(text: &str) -> Result<Sink, String> {
        if let Some(path) = text.strip_prefix("file:") {
            return match path {
                "" => Err("there is no path after file:".to_string()),
                path => Ok(Sink::File(path.into())),
            };
        }
        if text == "otlp" {
            return push::Collector::from_environment().map(Sink::Otlp);
        }
        let port = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        match port {
            Some((host, _)) if !host.is_empty() => Ok(Sink::Listen(text.to_string())),
            _ => Err(format!("\"{text}\" is not HOST:PORT (such as 127.0.0.1:9477), file:PATH or otlp")),
        }
    }
}

impl Sink {
    /// What was asked for, and the collector that OpenTelemetry's own variables ask for: an endpoint alone is no wish (the job
    /// may have it for its own traces), an endpoint and `OTEL_METRICS_EXPORTER=otlp` is one.
    pub(crate) fn with_environment(asked: &[Sink]) -> Vec<Sink> {
        let mut all = asked.to_vec();
        if push::is_requested() && !all.iter().any(|s| matches!(s, Sink::Otlp(_))) {
            match push::Collector::from_environment() {
                Ok(collector) => all.push(Sink::Otlp(collector)),
                // Variables of the job's own are no mistake of the command.
                Err(why) => say::line(format!("metrics are not pushed: {why}")),
            }
        }
        all
    }
}

/// Hands figures on, on a thread of its own.
pub(crate) struct Exporter {
    send: Sender<Metrics>,
    /// Disconnected once its thread has ended.
    busy: Receiver<()>,
    last: Option<Instant>,
}

impl Exporter {
    /// Starts it; what cannot be had is told, and nothing else depends on it.
    pub(crate) fn start(sink: &Sink) -> Option<Exporter> {
        let (send, figures) = crossbeam_channel::bounded(1);
        let (holds, busy) = crossbeam_channel::bounded::<()>(0);
        let work: Box<dyn FnOnce() + Send> = match sink.clone() {
            Sink::File(path) => Box::new(move || keep_file(&path, &figures)),
            Sink::Otlp(collector) => Box::new(move || collector.push(&figures)),
            Sink::Listen(address) => match TcpListener::bind(&address).and_then(|l| Ok((l.local_addr()?, l)))
            {
                Ok((at, listener)) => {
                    say::line(format!("metrics at http://{at}/metrics"));
                    Box::new(move || serve::serve(listener, &figures))
                }
                Err(e) => {
                    say::line(format!("no metrics: cannot listen on {address}: {e}"));
                    return None;
                }
            },
        };
        let work = move || {
            work();
            drop(holds);
        };
        say::failure(spawn("sl-metrics", work), "no metrics").map(|_| Exporter { send, busy, last: None })
    }

    /// New figures are due.
    pub(crate) fn is_due(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= EVERY)
    }

    /// Hands them on. Where the ones before are still under way these are left out, but for the last ones of a job: they get
    /// a while.
    pub(crate) fn tell(&mut self, figures: Metrics, last: bool) {
        self.last = Some(Instant::now());
        let _ = match last {
            true => self.send.send_timeout(figures, LAST).is_ok(),
            false => self.send.try_send(figures).is_ok(),
        };
    }

    /// What is under way gets a while.
    pub(crate) fn finish(self) {
        drop(self.send);
        let _ = self.busy.recv_timeout(LAST);
    }
}

fn keep_file(path: &Path, figures: &Receiver<Metrics>) {
    let mut failed = false;
    for figures in figures {
        let written = replace(path, &figures.prometheus());
        if let (Err(e), false) = (&written, failed) {
            say::line(format!("metrics cannot be written: {}: {e}", say::path(path)));
        }
        failed = written.is_err();
    }
}

/// Whoever reads it finds the old ones or the new ones, never a part; and that is another user, such as node_exporter's.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut file = files::create(path)?;
    file.make_world_readable()?;
    file.write_all(text.as_bytes())?;
    file.keep()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinks_are_read_or_refused() {
        assert_eq!("127.0.0.1:9477".parse(), Ok(Sink::Listen("127.0.0.1:9477".into())));
        assert_eq!("file:/x/a.prom".parse(), Ok(Sink::File("/x/a.prom".into())));
        for bad in ["9477", ":9477", "host:port", "file:", ""] {
            assert!(bad.parse::<Sink>().is_err(), "{bad}");
        }
    }
}
