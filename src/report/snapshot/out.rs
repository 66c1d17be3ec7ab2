//! The one snapshot in its two languages.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::field::{Field, Memo};
use super::json::Json;
use super::pickle::Pickler;
use super::words::Word;
use crate::event::{Names, PoolId, StackId};

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
    Pickle(Box<Pickler<W>>),
    Json(Json<W>),
}

/// Methods that both languages have.
macro_rules! of_both {
    ($($(#[$about:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl<W: Write> Out<W> { $(
            $(#[$about])*
            pub(super) fn $name(&mut self, $($argument: $type),*) -> io::Result<$result> {
                match &mut self.to {
                    To::Pickle(out) => out.$name($($argument),*),
                    To::Json(out) => out.$name($($argument),*),
                }
            }
        )* }
    };
}

of_both! {
    /// Opens a list or a dict: what is written until it is closed is its content. A dict takes key, value, key, value.
    fn container(dict: bool, shared: bool) -> Memo;
    fn close() -> ();
    #[inline]
    fn again(memo: Memo) -> ();
    fn text(s: &str) -> ();
    #[inline]
    fn put_word(w: Word) -> ();
    #[inline]
    fn unsigned(v: u64) -> ();
    fn shared_text(s: &str) -> Memo;
    fn int(v: impl Into<i128>) -> ();
    fn bool(v: bool) -> ();
    fn float(v: f64) -> ();
    fn pair(a: u64, b: u64) -> Memo;
}

impl<W: Write> Out<W> {
    pub(super) fn new(out: W, language: Language) -> Out<W> {
        let to = match language {
            Language::Pickle => To::Pickle(Box::new(Pickler::new(out))),
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

    /// Opens a list.
    pub(super) fn list(&mut self) -> io::Result<()> {
        self.container(false, false).map(drop)
    }

    /// Opens a list that can be written again.
    pub(super) fn shared_list(&mut self) -> io::Result<Memo> {
        self.container(false, true)
    }

    /// Opens a dict.
    pub(super) fn dict(&mut self) -> io::Result<()> {
        self.container(true, false).map(drop)
    }

    /// Opens a dict that can be written again.
    pub(super) fn shared_dict(&mut self) -> io::Result<Memo> {
        self.container(true, true)
    }

    /// A text as the value of an entry: by its number where it has been written.
    pub(super) fn text_field<'t>(&self, s: &'t str) -> Field<'t> {
        let To::Pickle(out) = &self.to else { return Field::Text(s) };
        out.texts.get(s).map_or(Field::Text(s), |&m| Field::Again(m))
    }

    /// A dict of a million. What is returned names the text of it that is [`Field::New`].
    pub(super) fn record(&mut self, names: &Names, fields: &[(Word, Field<'_>)]) -> io::Result<Option<Memo>> {
        if let To::Pickle(out) = &mut self.to
            && out.is_row(fields)
        {
            return out.row(fields);
        }
        let mut new = None;
        self.dict()?;
        for &(key, value) in fields.iter().filter(|(_, value)| !matches!(value, Field::Absent)) {
            self.put_word(key)?;
            match value {
                Field::Word(w) => self.put_word(w)?,
                Field::Number(n) => self.unsigned(n)?,
                Field::Signed(n) => self.int(n)?,
                Field::Again(m) => self.again(m)?,
                Field::New(s) => new = Some(self.shared_text(s)?),
                Field::Text(s) => self.text(s)?,
                Field::Pool(p) => self.pool(p)?,
                Field::Stack(id) => self.stack(names, id)?,
                Field::Absent => {}
            }
        }
        self.close()?;
        Ok(new)
    }

    /// The key of a dict; what is called of the result writes its value.
    pub(super) fn key(&mut self, key: &str) -> io::Result<&mut Out<W>> {
        self.text(key)?;
        Ok(self)
    }
}
