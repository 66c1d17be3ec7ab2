"""Runs every query of docs/fleet.md on exported tables, by DuckDB and by Polars, and prints what they said.

    queries.py DOCS TABLES

The result is JSON: for each query its title, its columns, and the rows of each reader; and of each table its columns and the rows as DuckDB has them. Of
events, of which there are many, the rows are numbers: for each rank how many there are, and of which kinds.
"""

import json
import pathlib
import re
import sys

import duckdb
import polars

docs, tables = pathlib.Path(sys.argv[1]).read_text(), pathlib.Path(sys.argv[2])
names = sorted(p.name for p in tables.iterdir())
duck, polar = duckdb.connect(), polars.SQLContext()
duck.execute("SET threads = 2")
# Jobs may have names that look like numbers or dates.
for name in names:
    files = str(tables / name / "**/*.parquet")
    source = f"read_parquet('{files}', hive_partitioning = true, hive_types = {{'job': VARCHAR, 'rank': BIGINT}})"
    if name == "jobs":
        source = f"read_parquet('{files}', hive_partitioning = true, hive_types = {{'job': VARCHAR}})"
    duck.execute(f"CREATE VIEW {name} AS SELECT * FROM {source}")
    hive = {"job": polars.String} | ({} if name == "jobs" else {"rank": polars.Int64})
    polar.register(name, polars.scan_parquet(files, hive_partitioning=True, hive_schema=hive))


def plain(rows):
    return [[str(v) if hasattr(v, "isoformat") else v for v in row] for row in rows]


queries = []
for title, sql in re.findall(r"^### (.+?)\n+```sql\n(.+?)```", docs, re.M | re.S):
    got = duck.execute(sql)
    columns = [c[0] for c in got.description]
    said = polar.execute(sql, eager=True)
    assert said.columns == columns, (title, said.columns, columns)
    queries.append({"title": title, "columns": columns, "duckdb": plain(got.fetchall()), "polars": plain(said.rows())})
whole = {}
for name in names:
    got = duck.execute(f"SELECT * FROM {name}")
    columns = [c[0] for c in got.description]
    rows = plain(got.fetchall())
    quoted = ", ".join(f'"{c}"' for c in columns)
    said = polar.execute(f"SELECT {quoted} FROM {name}", eager=True)
    assert sorted(map(repr, plain(said.rows()))) == sorted(map(repr, rows)), name
    if name == "events":
        count = "SELECT rank, COUNT(*) AS count, COUNT(DISTINCT kind) AS kinds, MAX(step) AS steps, SUM(CASE WHEN kind = 'alloc' THEN 1 ELSE 0 END)::BIGINT AS allocs FROM events GROUP BY rank ORDER BY rank"
        rows = plain(duck.execute(count).fetchall())
        columns_of_count = [c[0] for c in duck.description]
        whole[name] = {"columns": columns, "counted": [dict(zip(columns_of_count, row)) for row in rows]}
        continue
    whole[name] = {"columns": columns, "rows": rows}
version = duck.execute(f"SELECT value::VARCHAR FROM parquet_kv_metadata('{tables}/jobs/**/*.parquet') WHERE key::VARCHAR = 'strandline.schema'").fetchall()
print(json.dumps({"queries": queries, "tables": whole, "schema": version[0][0]}))
