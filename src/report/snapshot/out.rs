//! The one snapshot in its two languages.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::json::Json;
use super::pickle::{Memo, Pickler};
use super::words::Word;
use crate::event::{PoolId, StackId};

/// The language of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// What PyTorch writes and every reader reads.
    #[default]
    Pickle,
    /// What newer memory_viz and other programs read.
    Json,
}

/// Where a snapshot is written to.
pub(super) struct Out<W: Write> {
    to: To<W>,
    pub(super) shared: Shared,
}

/// What was written before and can be named again.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) frames: FxHashMap<u32, Memo>,
    pub(super) stacks: FxHashMap<StackId, Memo>,
    pub(super) pools: FxHashMap<PoolId, Memo>,
}

enum To<W: Write> {
    Pickle(Pickler<W>),
    Json(Json<W>),
}

/// The same call of whichever it is.
macro_rules! either {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self.to {
            To::Pickle(ref mut out) => out.$method($($argument),*),
            To::Json(ref mut out) => out.$method($($argument),*),
        }
    };
}

impl<W: Write> Out<W> {
    pub(super) fn new(out: W, language: Language) -> Out<W> {
        let to = match language {
            Language::Pickle => To::Pickle(Pickler::new(out)),
            Language::Json => To::Json(Json::new(out)),
        };
        Out { to, shared: Shared::default() }
    }

    pub(super) fn finish(self) -> io::Result<W> {
        match self.to {
            To::Pickle(out) => out.finish(),
            To::Json(out) => out.finish(),
        }
    }

    /// Opens a list. Containers are opened and closed; what is written between is their content.
    pub(super) fn list(&mut self) -> io::Result<()> {
        either!(self.container(false, false)).map(drop)
    }

    /// Opens a list that can be written again.
    pub(super) fn shared_list(&mut self) -> io::Result<Memo> {
        either!(self.container(false, true))
    }

    /// Opens a dict, which takes key, value, key, value.
    pub(super) fn dict(&mut self) -> io::Result<()> {
        either!(self.container(true, false)).map(drop)
    }

    /// Opens a dict that can be written again.
    pub(super) fn shared_dict(&mut self) -> io::Result<Memo> {
        either!(self.container(true, true))
    }

    pub(super) fn close(&mut self) -> io::Result<()> {
        either!(self.close())
    }

    #[inline]
    pub(super) fn again(&mut self, memo: Memo) -> io::Result<()> {
        either!(self.again(memo))
    }

    pub(super) fn text(&mut self, s: &str) -> io::Result<()> {
        either!(self.text(s))
    }

    /// The key of a dict; what is called of the result writes its value.
    pub(super) fn key(&mut self, key: &str) -> io::Result<&mut Out<W>> {
        self.text(key)?;
        Ok(self)
    }

    /// A text of the entries; what is called of the result writes the value, where it is a key.
    #[inline]
    pub(super) fn word(&mut self, w: Word) -> io::Result<&mut Out<W>> {
        either!(self.word(w))?;
        Ok(self)
    }

    #[inline]
    pub(super) fn unsigned(&mut self, v: u64) -> io::Result<()> {
        either!(self.unsigned(v))
    }

    pub(super) fn shared_text(&mut self, s: &str) -> io::Result<Memo> {
        either!(self.shared_text(s))
    }

    pub(super) fn int(&mut self, v: impl Into<i128>) -> io::Result<()> {
        either!(self.int(v))
    }

    pub(super) fn bool(&mut self, v: bool) -> io::Result<()> {
        either!(self.bool(v))
    }

    pub(super) fn float(&mut self, v: f64) -> io::Result<()> {
        either!(self.float(v))
    }

    pub(super) fn pair(&mut self, a: u64, b: u64) -> io::Result<Memo> {
        either!(self.pair(a, b))
    }
}
