//! A Parquet file of flat columns, each of which may be null, written a group of rows at a time: what is in memory is one group, and the index of those before.

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type as Schema, TypePtr};
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
    /// same page; addresses and sizes are plain, since the bytes of a dictionary's numbers do not come again; times, and what seldom changes,
    /// are differences. Of texts no least and greatest is kept: each group has all of them.
    Events,
}

impl Shape {
    fn apply(self, to: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        if self == Shape::Any {
            return to;
        }
        let column = |name: &str| ColumnPath::from(name);
        let to = to.set_data_page_row_count_limit(GROUP).set_data_page_size_limit(16 * GROUP);
        let differences = ["pid", "time", "step", "thread", "device"];
        let to = ["address", "bytes", "rounded_bytes", "stack"]
            .into_iter()
            .chain(differences)
            .fold(to, |to, name| to.set_column_dictionary_enabled(column(name), false));
        let to = differences
            .into_iter()
            .fold(to, |to, name| to.set_column_encoding(column(name), Encoding::DELTA_BINARY_PACKED));
        ["kind", "handle", "phase", "name"]
            .into_iter()
            .fold(to, |to, name| to.set_column_statistics_enabled(column(name), EnabledStatistics::None))
    }
}

/// Values of a column in the group that is being filled, those that are there.
enum Values {
    Int(Vec<i64>),
    Float(Vec<f64>),
    Text(Vec<ByteArray>),
    Bool(Vec<bool>),
}

/// A column of the group that is being filled.
pub(super) struct Filling {
    kind: Kind,
    values: Values,
    /// For each row 1 where there is a value, 0 for null.
    levels: Vec<i16>,
}

impl Filling {
    fn new(kind: Kind) -> Filling {
        let values = match kind {
            Kind::Int | Kind::Time => Values::Int(Vec::new()),
            Kind::Float => Values::Float(Vec::new()),
            Kind::Text => Values::Text(Vec::new()),
            Kind::Bool => Values::Bool(Vec::new()),
        };
        Filling { kind, values, levels: Vec::new() }
    }

    /// Adds a whole number: of times microseconds since 1970.
    pub(super) fn int(&mut self, value: Option<i64>) {
        if let (Values::Int(all), Some(value)) = (&mut self.values, value) {
            all.push(value);
        }
        self.levels.push(value.is_some().into());
    }

    /// Adds a text.
    pub(super) fn text(&mut self, value: Option<ByteArray>) {
        let is_there = value.is_some();
        if let (Values::Text(all), Some(value)) = (&mut self.values, value) {
            all.push(value);
        }
        self.levels.push(is_there.into());
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
        };
        self.levels.push(there.is_some().into());
    }

    /// Writes it, and begins the next group.
    fn write(&mut self, mut to: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match &mut self.values {
            Values::Int(all) => batch::<Int64Type>(&mut to, all, &self.levels)?,
            Values::Float(all) => batch::<DoubleType>(&mut to, all, &self.levels)?,
            Values::Text(all) => batch::<ByteArrayType>(&mut to, all, &self.levels)?,
            Values::Bool(all) => batch::<BoolType>(&mut to, all, &self.levels)?,
        }
        self.levels.clear();
        to.close()
    }
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
            filling: table.columns.iter().map(|(_, kind)| Filling::new(*kind)).collect(),
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
        self.row(|filling| {
            columns.iter().zip(filling).for_each(|((name, _), filling)| filling.push(&row[*name]));
        })
    }

    /// Adds a row: `fill` adds one value to each column.
    ///
    /// # Errors
    /// What the sink says.
    pub(super) fn row(&mut self, fill: impl FnOnce(&mut [Filling])) -> io::Result<()> {
        fill(&mut self.filling);
        self.rows += 1;
        self.total += 1;
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
        let mut group = self.out.next_row_group().map_err(io_error)?;
        columns(&mut group, &mut self.filling).map_err(io_error)?;
        self.rows = 0;
        group.close().map(drop).map_err(io_error)
    }
}

fn columns<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    filling: &mut [Filling],
) -> Result<(), ParquetError> {
    for column in filling {
        if let Some(to) = group.next_column()? {
            column.write(to)?;
        }
    }
    Ok(())
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
