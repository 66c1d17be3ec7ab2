//! Tables in Parquet, for DuckDB, Polars, Spark and whatever reads a fleet.

mod file;
mod tables;
mod thrift;

pub use file::{Column, File, Kind};
pub use tables::{JOBS, OF_PROCESS, SCHEMA, Table, job, rows};
