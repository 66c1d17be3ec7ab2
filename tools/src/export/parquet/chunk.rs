//! Encodes a column of a row group with a dictionary. The library writes the pages, but its own encoder hashes the text of each row, allocates its
//! buffers for each column, and packs indices into as few bits as possible: a pattern that repeats some steps later then has other bytes, which zstd
//! cannot find again. Here each index has whole bytes, and the caller gives the number by which a value is looked up.

use parquet::basic::{Compression, Encoding, Type, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use rustc_hash::FxHashMap;
use std::io::Write;
use strandline::format::wire::put;
use zstd::bulk::Compressor;

/// Values of the rows so far, each once, and which of them each row has.
#[derive(Default)]
pub(super) struct Coded {
    codes: Vec<u32>,
    by_key: FxHashMap<u64, u32>,
    /// What the last row had: the next one often has the same.
    last: Option<(u64, u32)>,
    /// The values, as Parquet writes them plainly.
    dictionary: Vec<u8>,
}

impl Coded {
    /// Adds a row's value: `key` stands for it, `put` appends it plainly.
    pub(super) fn push(&mut self, key: u64, put: impl FnOnce(&mut Vec<u8>)) {
        let code = match self.last {
            Some((last, code)) if last == key => code,
            _ => {
                let next = self.by_key.len() as u32;
                *self.by_key.entry(key).or_insert_with(|| {
                    put(&mut self.dictionary);
                    next
                })
            }
        };
        self.last = Some((key, code));
        self.codes.push(code);
    }

    fn clear(&mut self) {
        self.codes.clear();
        self.by_key.clear();
        self.last = None;
        self.dictionary.clear();
    }
}

/// What encodes columns, with buffers that are kept.
pub(super) struct Encoder {
    zstd: Compressor<'static>,
    compression: Compression,
    page: Vec<u8>,
    compressed: Vec<u8>,
}

impl Encoder {
    /// # Errors
    /// There is no memory.
    pub(super) fn new(level: i32) -> Result<Encoder, ParquetError> {
        Ok(Encoder {
            zstd: Compressor::new(level)?,
            compression: Compression::ZSTD(ZstdLevel::try_new(level)?),
            page: Vec::new(),
            compressed: Vec::new(),
        })
    }

    /// Writes the next column of a group, and empties it. `levels`: for each row 1 where there is a value, 0 for null.
    ///
    /// # Errors
    /// What the sink says.
    pub(super) fn write<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        column: ColumnDescPtr,
        levels: &[i16],
        values: &mut Coded,
    ) -> Result<(), ParquetError> {
        let mut to = TrackedWrite::new(Vec::new());
        let mut pages = SerializedPageWriter::new(&mut to);
        let is_number = column.physical_type() == Type::INT64;
        let mut chunk = ColumnChunkMetaData::builder(column)
            .set_compression(self.compression)
            .set_num_values(levels.len() as i64);
        let (there, different) = (values.codes.len(), values.by_key.len() as u32);
        if is_number {
            let (numbers, _) = values.dictionary.as_chunks();
            let numbers = || numbers.iter().map(|n| i64::from_le_bytes(*n));
            let nulls = Some((levels.len() - there) as u64);
            chunk =
                chunk.set_statistics(Statistics::int64(numbers().min(), numbers().max(), None, nulls, false));
        }
        let (mut size, mut compressed, mut encodings) = (0, 0, vec![Encoding::PLAIN, Encoding::RLE]);
        self.page.clear();
        if different > 0 {
            encodings.push(Encoding::RLE_DICTIONARY);
            self.page.extend(&values.dictionary);
            let (num_values, encoding) = (different, Encoding::PLAIN);
            let (page, length) = self.compress()?;
            let page = Page::DictionaryPage { buf: page, num_values, encoding, is_sorted: false };
            let written = pages.write_page(CompressedPage::new(page, length))?;
            size += written.uncompressed_size;
            compressed += written.compressed_size;
            chunk = chunk.set_dictionary_page_offset(Some(written.offset as i64));
        }
        self.page.extend([0; 4]);
        if there == levels.len() {
            run(&mut self.page, there, 1, 1);
        } else {
            hybrid(&mut self.page, levels, 1, |level| u64::from(level.unsigned_abs()));
        }
        let length = (self.page.len() - 4) as u32;
        self.page[..4].copy_from_slice(&length.to_le_bytes());
        if there > 0 {
            let width = (u32::BITS - different.saturating_sub(1).leading_zeros()).next_multiple_of(8);
            self.page.push(width as u8);
            hybrid(&mut self.page, &values.codes, width, u64::from);
        }
        values.clear();
        let (page, length) = self.compress()?;
        let page = Page::DataPage {
            buf: page,
            num_values: levels.len() as u32,
            encoding: *encodings.get(2).unwrap_or(&Encoding::PLAIN),
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let written = pages.write_page(CompressedPage::new(page, length))?;
        size += written.uncompressed_size;
        compressed += written.compressed_size;
        let chunk = chunk
            .set_encodings(encodings)
            .set_data_page_offset(written.offset as i64)
            .set_total_uncompressed_size(size as i64)
            .set_total_compressed_size(compressed as i64);
        let close = ColumnCloseResult {
            bytes_written: compressed as u64,
            rows_written: levels.len() as u64,
            metadata: chunk.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        let bytes = bytes::Bytes::from(to.into_inner()?);
        group.append_column(&bytes, close)
    }

    /// The page, compressed, and its length before. The page is then empty.
    fn compress(&mut self) -> Result<(bytes::Bytes, usize), ParquetError> {
        let length = self.page.len();
        self.compressed.clear();
        self.compressed.reserve(zstd::zstd_safe::compress_bound(length));
        self.zstd.compress_to_buffer(&self.page, &mut self.compressed)?;
        self.page.clear();
        Ok((bytes::Bytes::copy_from_slice(&self.compressed), length))
    }
}

/// Numbers of `width` bits, as Parquet's hybrid of runs and packed bits has them.
fn hybrid<T: Copy + Eq>(to: &mut Vec<u8>, values: &[T], width: u32, number: impl Fn(T) -> u64) {
    // What is not yet written begins at `from`; the run of equal values at `at`.
    let (mut from, mut at) = (0, 0);
    while let Some(first) = values.get(at) {
        let length = values[at..].iter().take_while(|value| *value == first).count();
        // Packed values come in eights: what is lacking is taken from the run.
        let lacking = (at - from).wrapping_neg() % 8;
        if length >= lacking + 8 {
            packed(to, &values[from..at + lacking], width, &number);
            run(to, length - lacking, width, number(*first));
            from = at + length;
        }
        at += length;
    }
    packed(to, &values[from..], width, &number);
}

/// A value that comes `length` times.
fn run(to: &mut Vec<u8>, length: usize, width: u32, value: u64) {
    put(to, (length as u64) << 1);
    to.extend(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
}

/// Values one after the other, the first in the lowest bits, with zeros to a multiple of eight.
fn packed<T: Copy>(to: &mut Vec<u8>, values: &[T], width: u32, number: impl Fn(T) -> u64) {
    if values.is_empty() {
        return;
    }
    let eights = values.len().div_ceil(8);
    put(to, (eights as u64) << 1 | 1);
    let (mut bits, mut held) = (0, 0);
    for value in values.iter().map(|value| number(*value)).chain(std::iter::repeat(0)).take(8 * eights) {
        bits |= value << held;
        held += width;
        while held >= 8 {
            to.push(bits as u8);
            bits >>= 8;
            held -= 8;
        }
    }
}
