//! The one snapshot in its two languages.

use std::io::{self, Write};

use super::json::Json;
use super::pickle::{Memo, Pickler};
use super::words::Word;

/// The language of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// What PyTorch writes and every reader reads.
    #[default]
    Pickle,
    /// What newer memory_viz and other programs read.
    Json,
}

/// Where a snapshot is written to. The methods are those of [`Pickler`].
pub(super) enum Out<W: Write> {
    Pickle(Pickler<W>),
    Json(Json<W>),
}

impl<W: Write> Out<W> {
    pub(super) fn new(out: W, language: Language) -> Out<W> {
        match language {
            Language::Pickle => Out::Pickle(Pickler::new(out)),
            Language::Json => Out::Json(Json::new(out)),
        }
    }

    pub(super) fn finish(self) -> io::Result<W> {
        match self {
            Out::Pickle(p) => p.finish(),
            Out::Json(j) => j.finish(),
        }
    }

    pub(super) fn list(&mut self) -> io::Result<()> {
        match self {
            Out::Pickle(p) => p.list(),
            Out::Json(j) => j.container(false, false).map(drop),
        }
    }

    pub(super) fn shared_list(&mut self) -> io::Result<Memo> {
        match self {
            Out::Pickle(p) => p.shared_list(),
            Out::Json(j) => j.container(false, true),
        }
    }

    pub(super) fn dict(&mut self) -> io::Result<()> {
        match self {
            Out::Pickle(p) => p.dict(),
            Out::Json(j) => j.container(true, false).map(drop),
        }
    }

    pub(super) fn shared_dict(&mut self) -> io::Result<Memo> {
        match self {
            Out::Pickle(p) => p.shared_dict(),
            Out::Json(j) => j.container(true, true),
        }
    }

    pub(super) fn close(&mut self) -> io::Result<()> {
        match self {
            Out::Pickle(p) => p.close(),
            Out::Json(j) => j.close(),
        }
    }

    #[inline]
    pub(super) fn again(&mut self, memo: Memo) -> io::Result<()> {
        match self {
            Out::Pickle(p) => p.again(memo),
            Out::Json(j) => j.again(memo),
        }
    }

    pub(super) fn text(&mut self, s: &str) -> io::Result<()> {
        match self {
            Out::Pickle(p) => p.text(s),
            Out::Json(j) => j.text(s),
        }
    }

    #[inline]
    pub(super) fn word(&mut self, w: Word) -> io::Result<()> {
        match self {
            Out::Pickle(p) => p.word(w),
            Out::Json(j) => j.text(w.text()),
        }
    }

    #[inline]
    pub(super) fn unsigned(&mut self, v: u64) -> io::Result<()> {
        match self {
            Out::Pickle(p) => p.unsigned(v),
            Out::Json(j) => j.plain(v),
        }
    }

    pub(super) fn shared_text(&mut self, s: &str) -> io::Result<Memo> {
        match self {
            Out::Pickle(p) => p.shared_text(s),
            Out::Json(j) => j.shared_text(s),
        }
    }

    pub(super) fn int(&mut self, v: impl Into<i128>) -> io::Result<()> {
        match self {
            Out::Pickle(p) => p.int(v),
            Out::Json(j) => j.plain(v.into()),
        }
    }

    pub(super) fn bool(&mut self, v: bool) -> io::Result<()> {
        match self {
            Out::Pickle(p) => p.bool(v),
            Out::Json(j) => j.plain(v),
        }
    }

    /// Must be finite: JSON has no other.
    pub(super) fn float(&mut self, v: f64) -> io::Result<()> {
        match self {
            Out::Pickle(p) => p.float(v),
            Out::Json(j) => j.plain(if v.is_finite() { v } else { 0.0 }),
        }
    }

    pub(super) fn pair(&mut self, a: u64, b: u64) -> io::Result<Memo> {
        match self {
            Out::Pickle(p) => p.pair(a, b),
            Out::Json(j) => j.pair(a, b),
        }
    }
}
