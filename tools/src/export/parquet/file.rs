//! A Parquet file of flat columns, each of which may be null, written a group of rows at a time: what is in memory is one group, and the index of those before.

use super::chunk::{Coded, Encoder};
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnDescPtr, ColumnPath, Type as Schema, TypePtr};
use serde_json::Value;
use std::io::{self, Write};
use std::sync::Arc;
use strandline::report::export::tables::{self, Column, Kind, Table};

/// Rows in a group.
const GROUP: usize = 1 << 17;
/// zstd level.
const LEVEL: i32 = 3;

/// What the rows of a table are like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Whatever it is: each column has a dictionary as long as that is short.
    Any,
    /// Events of a job, which does the same in each step. A page is a group's whole column, so that what comes again some steps later is in the
    /// same page; times and steps are differences. Of texts no least and greatest is kept: each group has all of them. All but the differences
    /// is encoded here ([`Encoder`]).
    Events,
}

impl Shape {
    fn apply(self, to: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        if self == Shape::Any {
            return to;
        }
        let to = to.set_data_page_row_count_limit(GROUP).set_data_page_size_limit(16 * GROUP);
        DIFFERENCES.into_iter().map(ColumnPath::from).fold(to, |to, column| {
            to.set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED)
        })
    }
}

/// Columns of events that are differences.
const DIFFERENCES: [&str; 2] = ["time", "step"];
/// The levels of a column without nulls.
static ALL: [i16; GROUP] = [1; GROUP];

/// Values of a column in the group that is being filled, those that are there.
enum Values {
    Int(Vec<i64>),
    Float(Vec<f64>),
    Text(Vec<ByteArray>),
    Bool(Vec<bool>),
    /// As [`Encoder`] has it.
    Coded(Coded),
}

/// A column of the group that is being filled.
pub(super) struct Filling {
    kind: Kind,
    values: Values,
    /// For each row 1 where there is a value, 0 for null; none of a column that has a value in each row.
    levels: Vec<i16>,
}

impl Filling {
    fn new((name, kind): &Column, shape: Shape) -> Filling {
        let is_events = shape == Shape::Events;
        let values = match kind {
            _ if is_events && !DIFFERENCES.contains(name) => Values::Coded(Coded::default()),
            Kind::Int | Kind::Time => Values::Int(Vec::new()),
            Kind::Float => Values::Float(Vec::new()),
            Kind::Text => Values::Text(Vec::new()),
            Kind::Bool => Values::Bool(Vec::new()),
        };
        Filling { kind: *kind, values, levels: Vec::new() }
    }

    /// Adds whole numbers, of times microseconds since 1970, to a column that never is null.
    pub(super) fn all(&mut self, rows: impl Iterator<Item = i64>) {
        if let Values::Int(all) = &mut self.values {
            all.extend(rows);
        }
    }

    /// Adds whole numbers.
    pub(super) fn some(&mut self, rows: impl Iterator<Item = Option<i64>>) {
        if let Values::Int(all) = &mut self.values {
            let levels = &mut self.levels;
            all.extend(rows.inspect(|row| levels.push(row.is_some().into())).flatten());
        }
    }

    /// Adds whole numbers that come again and again.
    pub(super) fn repeated(&mut self, rows: impl Iterator<Item = Option<i64>>) {
        self.coded(rows.map(|row| row.map(|n| (n.cast_unsigned(), n))), |to, n| to.extend(n.to_le_bytes()));
    }

    /// Adds texts, each with a number that stands for it within the column.
    pub(super) fn texts<T>(
        &mut self,
        rows: impl Iterator<Item = Option<(u64, T)>>,
        text: impl Fn(T) -> String,
    ) {
        self.coded(rows, |to, of| {
            let text = text(of);
            to.extend((text.len() as u32).to_le_bytes());
            to.extend(text.as_bytes());
        });
    }

    fn coded<T>(&mut self, rows: impl Iterator<Item = Option<(u64, T)>>, put: impl Fn(&mut Vec<u8>, T)) {
        if let Values::Coded(all) = &mut self.values {
            for row in rows {
                self.levels.push(row.is_some().into());
                if let Some((key, of)) = row {
                    all.push(key, |to| put(to, of));
                }
            }
        }
    }

    /// Adds a value; what is of another kind is null.
    fn push(&mut self, value: &Value) {
        let there = match (&mut self.values, self.kind) {
            // All readers have microseconds.
            (Values::Int(all), Kind::Time) => value.as_u64().map(|n| all.push((n / 1000).cast_signed())),
            (Values::Int(all), _) => value.as_i64().map(|n| all.push(n)),
            (Values::Float(all), _) => value.as_f64().map(|n| all.push(n)),
            (Values::Text(all), _) => value.as_str().map(|text| all.push(text.as_bytes().to_vec().into())),
            (Values::Bool(all), _) => value.as_bool().map(|bit| all.push(bit)),
            (Values::Coded(_), _) => None,
        };
        self.levels.push(there.is_some().into());
    }

    /// Writes it as the next column of `rows` rows, and begins the next group.
    fn write<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        encoder: &mut Encoder,
        column: ColumnDescPtr,
        rows: usize,
    ) -> Result<(), ParquetError> {
        let levels = if self.levels.is_empty() { &ALL[..rows] } else { &self.levels };
        match &mut self.values {
            Values::Coded(all) => encoder.write(group, column, levels, all)?,
            values => library(values, levels, group)?,
        }
        self.levels.clear();
        Ok(())
    }
}

/// Writes a column as the library does.
fn library<W: Write + Send>(
    values: &mut Values,
    levels: &[i16],
    group: &mut SerializedRowGroupWriter<'_, W>,
) -> Result<(), ParquetError> {
    let Some(mut to) = group.next_column()? else { return Ok(()) };
    match values {
        Values::Int(all) => batch::<Int64Type>(&mut to, all, levels)?,
        Values::Float(all) => batch::<DoubleType>(&mut to, all, levels)?,
        Values::Text(all) => batch::<ByteArrayType>(&mut to, all, levels)?,
        Values::Bool(all) => batch::<BoolType>(&mut to, all, levels)?,
        Values::Coded(_) => {}
    }
    to.close()
}

fn batch<T: DataType>(
    to: &mut SerializedColumnWriter<'_>,
    values: &mut Vec<T::T>,
    levels: &[i16],
) -> Result<(), ParquetError> {
    to.typed::<T>().write_batch(values, Some(levels), None)?;
    values.clear();
    Ok(())
}

/// A file that is being written.
pub(super) struct File<W: Write + Send> {
    out: SerializedFileWriter<W>,
    columns: &'static [Column],
    filling: Vec<Filling>,
    encoder: Encoder,
    rows: usize,
    total: u64,
}

impl<W: Write + Send> File<W> {
    /// Begins one of a table; its metadata say which, and have the version of all tables.
    ///
    /// # Errors
    /// What `out` says.
    pub(super) fn new(out: W, table: &Table, shape: Shape) -> io::Result<File<W>> {
        let fact = |key: &str, value: &str| KeyValue::new(key.to_owned(), value.to_owned());
        let facts = vec![fact("strandline.schema", tables::SCHEMA), fact("strandline.table", table.name)];
        let properties = shape.apply(WriterProperties::builder());
        let properties = properties
            .set_created_by(format!("strandline version {}", strandline::VERSION))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL).map_err(io_error)?))
            // The least and the greatest value of each column in each group: enough for files of some groups.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_key_value_metadata(Some(facts))
            .build();
        let schema = schema(table).map_err(io_error)?;
        Ok(File {
            out: SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(io_error)?,
            columns: table.columns,
            filling: table.columns.iter().map(|column| Filling::new(column, shape)).collect(),
            encoder: Encoder::new(LEVEL).map_err(io_error)?,
            rows: 0,
            total: 0,
        })
    }

    /// Adds a row: an object with a value for each column. What is not there, or of another kind, is null.
    ///
    /// # Errors
    /// What the sink says.
    pub(super) fn push(&mut self, row: &Value) -> io::Result<()> {
        let columns = self.columns;
        self.extend(1, |filling| {
            columns.iter().zip(filling).for_each(|((name, _), filling)| filling.push(&row[*name]));
        })
    }

    /// How many rows the group still takes.
    pub(super) fn room(&self) -> usize {
        GROUP - self.rows
    }

    /// Adds rows, of which there is [`room`](Self::room): `fill` adds one value for each to each column.
    ///
    /// # Errors
    /// What the sink says.
    pub(super) fn extend(&mut self, rows: usize, fill: impl FnOnce(&mut [Filling])) -> io::Result<()> {
        fill(&mut self.filling);
        self.rows += rows;
        self.total += rows as u64;
        if self.rows == GROUP { self.group() } else { Ok(()) }
    }

    /// Rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.total
    }

    /// Ends the file, and gives the sink back.
    ///
    /// # Errors
    /// What the sink says.
    pub(super) fn end(mut self) -> io::Result<W> {
        if self.rows > 0 {
            self.group()?;
        }
        self.out.into_inner().map_err(io_error)
    }

    /// Writes the rows so far as a group.
    fn group(&mut self) -> io::Result<()> {
        let columns = self.out.schema_descr().columns().to_vec();
        let mut group = self.out.next_row_group().map_err(io_error)?;
        for (filling, column) in self.filling.iter_mut().zip(columns) {
            filling.write(&mut group, &mut self.encoder, column, self.rows).map_err(io_error)?;
        }
        self.rows = 0;
        group.close().map(drop).map_err(io_error)
    }
}

fn schema(table: &Table) -> Result<TypePtr, ParquetError> {
    let column = |(name, kind): &Column| {
        let (physical, logical) = match kind {
            Kind::Int => (Type::INT64, None),
            Kind::Float => (Type::DOUBLE, None),
            Kind::Bool => (Type::BOOLEAN, None),
            Kind::Text => (Type::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Time => (Type::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
        };
        let column = Schema::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        column.with_logical_type(logical).build().map(Arc::new)
    };
    let fields = table.columns.iter().map(column).collect::<Result<_, _>>()?;
    Schema::group_type_builder("schema").with_fields(fields).build().map(Arc::new)
}

/// What the system said where the sink failed, else what the library says.
fn io_error(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    /// Numbers that seldom come again.
    fn mixed(n: u64) -> u64 {
        (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
    }

    /// In each column nulls and values, alone and in runs of several lengths, of few and of many different values, in two groups.
    #[test]
    fn what_is_encoded_here_is_read_by_the_library() {
        let rows = GROUP as u64 + 1000;
        let run = |n: u64| mixed(n / (1 + mixed(n >> 10) % 40));
        let number = |n: u64| (run(n) % 5 != 0).then(|| mixed(n).cast_signed());
        let text = |n: u64| (run(n) % 3 != 0).then(|| run(n) % (1 + n / 50));
        let few = |n: u64| Some((run(n) % 3).cast_signed());
        let mut file = File::new(Vec::new(), &tables::EVENTS, Shape::Events).expect("a file");
        for n in 0..rows {
            file.extend(1, |columns| {
                let [
                    pid,
                    time,
                    step,
                    thread,
                    kind,
                    device,
                    handle,
                    address,
                    bytes,
                    rounded,
                    phase,
                    stack,
                    name,
                ] = columns
                else {
                    panic!("thirteen columns");
                };
                pid.repeated([Some(7)].into_iter());
                time.all([n.cast_signed()].into_iter());
                step.some([Some(n.cast_signed() / 100)].into_iter());
                [thread, device].into_iter().for_each(|c| c.repeated([few(n)].into_iter()));
                for column in [kind, handle, phase] {
                    column.texts([text(n).map(|t| (t, t))].into_iter(), |t| t.to_string());
                }
                name.texts([None::<(u64, u64)>].into_iter(), |t| t.to_string());
                [address, bytes, rounded].into_iter().for_each(|c| c.repeated([number(n)].into_iter()));
                stack.repeated([None].into_iter());
            })
            .expect("memory does not fail");
        }
        let file = bytes::Bytes::from(file.end().expect("memory does not fail"));
        let reader = SerializedFileReader::new(file).expect("a Parquet file");
        assert_eq!(reader.metadata().num_row_groups(), 2);
        let mut read = 0;
        for (n, row) in (0u64..).zip(reader.get_row_iter(None).expect("rows")) {
            let row = row.expect("a row");
            assert_eq!(row.get_long(0).ok(), Some(7), "row {n}");
            assert_eq!(row.get_timestamp_micros(1).ok(), Some(n.cast_signed()), "row {n}");
            for column in [3, 5] {
                assert_eq!(row.get_long(column).ok(), few(n), "row {n}");
            }
            for column in [4, 6, 10] {
                assert_eq!(row.get_string(column).ok().cloned(), text(n).map(|t| t.to_string()), "row {n}");
            }
            for column in [7, 8, 9] {
                assert_eq!(row.get_long(column).ok(), number(n), "row {n}");
            }
            assert!(row.get_long(11).is_err() && row.get_string(12).is_err(), "row {n}");
            read += 1;
        }
        assert_eq!(read, rows);
    }
}
