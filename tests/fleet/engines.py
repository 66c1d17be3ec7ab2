"""Runs every query of docs/fleet.md by Spark (local mode) and on what Ray Data has read, and compares the answers with DuckDB's.

    engines.py DOCS TABLES

Needs Java 17 for Spark. Prints a line for each query and engine, and exits with 1 if an answer differs. Ray Data has no SQL: it reads each table, DuckDB answers
from those rows.
"""

import decimal
import json
import pathlib
import re
import sys

import duckdb
import pyspark
import ray
from pyspark.sql import SparkSession

docs, tables = pathlib.Path(sys.argv[1]).read_text(), pathlib.Path(sys.argv[2])
names = sorted(p.name for p in tables.iterdir())
queries = re.findall(r"^### (.+?)\n+```sql\n(.+?)```", docs, re.M | re.S)
# Every value of the events, which no query of the documents reads.
EVENTS = """SELECT kind, handle, phase, name, COUNT(*), COUNT(step), MAX(step), MIN(time), MAX(time), SUM(pid), SUM(thread), SUM(device),
    SUM(address % 1000003), SUM(bytes), SUM(rounded_bytes), COUNT(stack), SUM(stack)
FROM events GROUP BY kind, handle, phase, name
ORDER BY kind NULLS FIRST, handle NULLS FIRST, phase NULLS FIRST, name NULLS FIRST"""
if "events" in names:
    queries.append(("all events", EVENTS))


def plain(value):
    if isinstance(value, decimal.Decimal):
        return int(value)
    return value.replace(tzinfo=None).isoformat() if hasattr(value, "isoformat") else value


def rows(all):
    return [json.dumps([plain(v) for v in row]) for row in all]


duck = duckdb.connect()
duck.execute("SET TimeZone = 'UTC'")
for name in names:
    types = "'job': VARCHAR" if name == "jobs" else "'job': VARCHAR, 'rank': BIGINT"
    duck.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{tables}/{name}/**/*.parquet', hive_partitioning = true, hive_types = {{{types}}})")
expected = [rows(duck.execute(sql).fetchall()) for _, sql in queries]

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
builder = builder.config("spark.sql.sources.partitionColumnTypeInference.enabled", "false").config("spark.sql.shuffle.partitions", "2")
spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
for name in names:
    frame = spark.read.parquet(str(tables / name))
    if "rank" in frame.columns:
        frame = frame.withColumn("rank", frame["rank"].cast("bigint"))
    frame.createOrReplaceTempView(name)
answers = {f"Spark {pyspark.__version__}": [rows(tuple(r) for r in spark.sql(sql).collect()) for _, sql in queries]}
spark.stop()

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=1 << 29)
read = duckdb.connect()
read.execute("SET TimeZone = 'UTC'")
for name in names:
    found = ray.data.read_parquet(str(tables / name)).to_pandas()
    columns = duck.execute(f"DESCRIBE {name}").fetchall()
    # A data set without rows has no columns.
    # A rank that no launcher set is a text there.
    value = lambda c: f'TRY_CAST("rank" AS {c[1]})' if c[0] == "rank" else f'"{c[0]}"::{c[1]}'
    cast = ", ".join(f'{value(c) if c[0] in found else f"NULL::{c[1]}"} AS "{c[0]}"' for c in columns)
    found["strandline_row"] = 0
    read.register("found", found)
    read.execute(f"CREATE TABLE {name} AS SELECT {cast} FROM found")
    read.unregister("found")
answers[f"Ray Data {ray.__version__}"] = [rows(read.execute(sql).fetchall()) for _, sql in queries]
ray.shutdown()

wrong = 0
for engine, of_engine in answers.items():
    for (title, _), want, got in zip(queries, expected, of_engine):
        same = want == got
        wrong += not same
        print(f"{engine}: {title}: {len(got)} rows, {'as DuckDB' if same else f'DIFFERENT: {got[:3]} where DuckDB has {want[:3]}'}")
sys.exit(1 if wrong else 0)
