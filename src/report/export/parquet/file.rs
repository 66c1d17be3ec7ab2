//! A Parquet file of flat columns, each of which may be null: plain values in pages compressed by zstd, a group of rows at a time. Rows are
//! not kept: what is in memory is one group.
//!
//! Written by hand, as the profile for pprof is: the format's own library and its arrays are a minute of every clean build, and this is what a
//! table of numbers and texts needs of them. `tests/fleet.rs` has DuckDB and Polars read it.

use super::thrift::{Struct, varint};
use serde_json::Value;
use std::io::{self, Write};

/// What a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers: `INT64`.
    Int,
    /// `DOUBLE`.
    Float,
    /// Text in UTF-8.
    Text,
    /// `BOOLEAN`.
    Bool,
    /// Nanoseconds since 1970: a `TIMESTAMP` in UTC, in microseconds, which all readers have.
    Time,
}

impl Kind {
    /// The number of Parquet's physical type.
    fn physical(self) -> i32 {
        match self {
            Kind::Bool => 0,
            Kind::Int | Kind::Time => 2,
            Kind::Float => 5,
            Kind::Text => 6,
        }
    }

    fn schema(self, name: &str) -> Struct {
        const OPTIONAL: i32 = 1;
        let of = Struct::default().i32(1, self.physical()).i32(3, OPTIONAL).text(4, name);
        match self {
            // Both ways in which files say it, the older one and the newer one.
            Kind::Text => of.i32(6, 0).inner(10, Struct::default().inner(1, Struct::default())),
            // TIMESTAMP_MICROS. The newer form says as well that it is UTC, which the older one implies.
            Kind::Time => of.i32(6, 10),
            Kind::Int | Kind::Float | Kind::Bool => of,
        }
    }
}

/// Rows in a group.
const GROUP: usize = 1 << 16;
/// zstd level.
const LEVEL: i32 = 3;
const ZSTD: i32 = 6;
const PLAIN: i32 = 0;
const RLE: i32 = 3;
const MAGIC: &[u8] = b"PAR1";

/// Values of a column in the group that is being filled.
#[derive(Debug, Default)]
struct Values {
    /// Runs of values that are there (1) or null (0).
    runs: Vec<(u64, u8)>,
    plain: Vec<u8>,
    /// Of booleans, how many there are.
    bits: usize,
}

impl Values {
    fn push(&mut self, kind: Kind, value: &Value) {
        let is_there = match (kind, value) {
            (Kind::Int, v) => v.as_i64().map(|n| self.plain.extend(n.to_le_bytes())),
            (Kind::Time, v) => v.as_u64().map(|n| self.plain.extend((n / 1000).to_le_bytes())),
            (Kind::Float, v) => v.as_f64().map(|n| self.plain.extend(n.to_le_bytes())),
            (Kind::Text, Value::String(text)) => {
                self.plain.extend((text.len() as u32).to_le_bytes());
                self.plain.extend(text.as_bytes());
                Some(())
            }
            (Kind::Bool, Value::Bool(bit)) => {
                if self.bits.is_multiple_of(8) {
                    self.plain.push(0);
                }
                if let Some(last) = self.plain.last_mut() {
                    *last |= u8::from(*bit) << (self.bits % 8);
                }
                self.bits += 1;
                Some(())
            }
            (Kind::Text | Kind::Bool, _) => None,
        };
        let level = u8::from(is_there.is_some());
        match self.runs.last_mut() {
            Some((count, of)) if *of == level => *count += 1,
            _ => self.runs.push((1, level)),
        }
    }

    /// The page: definition levels with their length, then the values.
    fn page(&self) -> Vec<u8> {
        let mut levels = Vec::new();
        for (count, level) in &self.runs {
            varint(&mut levels, count << 1);
            levels.push(*level);
        }
        let mut page = (levels.len() as u32).to_le_bytes().to_vec();
        page.extend(levels);
        page.extend_from_slice(&self.plain);
        page
    }
}

/// A column: its name and what it has.
pub type Column = (&'static str, Kind);

/// A file that is being written.
#[derive(Debug)]
pub struct File<W> {
    out: W,
    at: u64,
    columns: &'static [Column],
    values: Vec<Values>,
    rows: usize,
    groups: Vec<Struct>,
    total: u64,
}

impl<W: Write> File<W> {
    /// Begins one.
    ///
    /// # Errors
    /// What `out` says.
    pub fn new(mut out: W, columns: &'static [Column]) -> io::Result<File<W>> {
        out.write_all(MAGIC)?;
        let values = columns.iter().map(|_| Values::default()).collect();
        Ok(File { out, at: MAGIC.len() as u64, columns, values, rows: 0, groups: Vec::new(), total: 0 })
    }

    /// Adds a row: an object with a value for each column. What is not there, or of another kind, is null.
    ///
    /// # Errors
    /// What the sink says.
    pub fn push(&mut self, row: &Value) -> io::Result<()> {
        for ((name, kind), values) in self.columns.iter().zip(&mut self.values) {
            values.push(*kind, &row[*name]);
        }
        self.rows += 1;
        if self.rows == GROUP { self.group() } else { Ok(()) }
    }

    /// Ends the file, with what is said of it, and gives the sink back.
    ///
    /// # Errors
    /// What the sink says.
    pub fn end(mut self, facts: &[(&str, &str)]) -> io::Result<W> {
        if self.rows > 0 {
            self.group()?;
        }
        let root = Struct::default().text(4, "schema").i32(5, self.columns.len() as i32);
        let schema = std::iter::once(root).chain(self.columns.iter().map(|(name, kind)| kind.schema(name)));
        let fact = |(key, value): &(&str, &str)| Struct::default().text(1, key).text(2, value);
        let footer = Struct::default()
            .i32(1, 2)
            .list(2, schema.collect())
            .i64(3, self.total as i64)
            .list(4, self.groups)
            .list(5, facts.iter().map(fact).collect())
            .text(6, &format!("strandline version {}", crate::VERSION))
            .end();
        self.out.write_all(&footer)?;
        self.out.write_all(&(footer.len() as u32).to_le_bytes())?;
        self.out.write_all(MAGIC)?;
        Ok(self.out)
    }

    /// Writes the rows so far as a group.
    fn group(&mut self) -> io::Result<()> {
        let (mut chunks, mut size, begin) = (Vec::new(), 0, self.at);
        for ((name, kind), values) in self.columns.iter().zip(&mut self.values) {
            let page = std::mem::take(values).page();
            let squeezed = zstd::bulk::compress(&page, LEVEL)?;
            let of_page = Struct::default().i32(1, self.rows as i32).i32(2, PLAIN).i32(3, RLE).i32(4, RLE);
            let header = Struct::default()
                .i32(1, 0)
                .i32(2, page.len() as i32)
                .i32(3, squeezed.len() as i32)
                .inner(5, of_page)
                .end();
            self.out.write_all(&header)?;
            self.out.write_all(&squeezed)?;
            let (raw, packed) = (header.len() + page.len(), header.len() + squeezed.len());
            let meta = Struct::default()
                .i32(1, kind.physical())
                .numbers(2, &[PLAIN, RLE])
                .texts(3, &[name])
                .i32(4, ZSTD)
                .i64(5, self.rows as i64)
                .i64(6, raw as i64)
                .i64(7, packed as i64)
                .i64(9, self.at as i64);
            chunks.push(Struct::default().i64(2, self.at as i64).inner(3, meta));
            self.at += packed as u64;
            size += raw;
        }
        let group = Struct::default().list(1, chunks).i64(2, size as i64).i64(3, self.rows as i64);
        self.groups.push(group.i64(5, begin as i64));
        self.total += self.rows as u64;
        self.rows = 0;
        Ok(())
    }
}
