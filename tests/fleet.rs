//! Many ranks of one job: real recordings of six ranks, grown to a fleet by `tests/fleet/grow.py`. Which ranks differ is named, what is
//! missing is said, and what all have is said once. Also what Kubernetes and Prometheus are given (`docs/deploy`, `docs/grafana`).

#[path = "surroundings/packages.rs"]
mod debian;
#[path = "fleet/events.rs"]
mod events;
#[path = "fleet/ship.rs"]
mod ship;
#[path = "fleet/store.rs"]
mod store;
mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use support::{Folder, command, python, root, strandline};

/// Ranks as `tests/fleet/job.py` makes them, by number.
const MODES: [&str; 6] = ["even", "wide", "leaks", "reserves", "lags", "fails"];

/// The recordings of six real ranks.
fn real() -> &'static Path {
    static REAL: OnceLock<(Folder, PathBuf)> = OnceLock::new();
    &REAL
        .get_or_init(|| {
            let folder = Folder::new("fleet-real");
            let mut run = Command::new(command());
            run.args(["run", "--quiet", "-o", "real", "--"]).arg(python());
            run.arg(root().join("tests/fleet/job.py")).args(MODES).current_dir(folder.path());
            run.env("XDG_CACHE_HOME", support::cache()).env("STRANDLINE_SIM_TOTAL", "24GiB");
            let output = run.output().expect("the command starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let path = folder.join("real");
            (folder, path)
        })
        .1
}

/// A fleet of so many ranks.
fn grown(name: &str, words: &[&str]) -> (Folder, String) {
    let folder = Folder::new(name);
    let out = folder.join("fleet");
    let mut grow = Command::new(python());
    grow.arg(root().join("tests/fleet/grow.py")).arg(real()).arg(&out).args(words);
    assert!(grow.status().expect("Python starts").success(), "{words:?}");
    (folder, out.to_str().expect("UTF-8").to_owned())
}

fn json(fleet: &str) -> Value {
    serde_json::from_str(&strandline(&["report", fleet, "--format", "json"])).expect("JSON")
}

/// What a report says of ranks that differ: rank, in what, since which step.
fn differ(report: &Value) -> Vec<(u64, String, Option<u64>)> {
    let one = |d: &Value| {
        let measure = d["measure"].as_str().expect("a measure").to_owned();
        (d["rank"].as_u64().expect("a rank"), measure, d["since_step"].as_u64())
    };
    report["ranks"]["differ"].as_array().expect("a list").iter().map(one).collect()
}

#[test]
fn three_ranks_that_differ_are_named_among_sixty_four() {
    let bad = ["--bad", "17=2", "--bad", "30=3", "--bad", "40=4"];
    let rest = ["--ranks", "64", "--missing", "62", "--missing", "63", "--restarted", "5"];
    let (folder, fleet) = grown("fleet", &[&rest[..], &bad[..]].concat());
    let report = json(&fleet);
    assert_eq!(report["processes"].as_array().map(Vec::len), Some(63), "a rank of 62 has two recordings");
    assert_eq!(report["verdict"], "growing");
    let worst = report["worst_process"].as_u64().expect("an index") as usize;
    assert_eq!(report["processes"][worst]["rank"], 17);
    let ranks = &report["ranks"];
    assert_eq!(ranks["world_size"], 64);
    assert_eq!(ranks["missing"], serde_json::json!([62, 63]));
    assert_eq!((&ranks["restarts"], &ranks["running"]), (&1.into(), &0.into()));
    let mut found = differ(&report);
    found.sort();
    let what: Vec<(u64, &str)> = found.iter().map(|(rank, what, _)| (*rank, what.as_str())).collect();
    let expected = [(17, "allocated_bytes"), (30, "reserved_bytes"), (40, "peak_bytes"), (40, "steps")];
    assert_eq!(what, expected, "{found:?}");
    // The rank that lags has double batches from step 9 on.
    let since = found.iter().find(|f| f.1 == "peak_bytes").and_then(|f| f.2);
    assert_eq!(since, Some(9), "{found:?}");
    let text = strandline(&["report", &fleet]);
    for line in [
        "GROWING in 1 of 63 processes, rank 17: memory grows",
        "differ from the other ranks",
        "rank 30 on node-003: ",
    ] {
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(line), "{line}: {text}");
    }
    assert!(text.contains("62 of 64 ranks have a recording here; there is none for rank 62 to 63"), "{text}");
    assert!(text.contains("1 rank was restarted"), "{text}");
    let page = folder.join("page.html");
    strandline(&["report", &format!("--html={}", page.display()), &fleet]);
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.len() < 3 << 20, "{} bytes", page.len());
    assert!(page.contains("rank 30 on node-003: "), "the page says it, too");
}

#[test]
fn what_all_ranks_have_is_said_once_and_healthy_ranks_do_not_differ() {
    let all: Vec<String> = (0..24).flat_map(|rank| ["--bad".into(), format!("{rank}=2")]).collect();
    let words: Vec<&str> = ["--ranks", "24"].into_iter().chain(all.iter().map(String::as_str)).collect();
    let (_leaks, fleet) = grown("fleet-leaks", &words);
    let text = strandline(&["report", &fleet]);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains("This is true of all 24 processes."), "{text}");
    assert_eq!(text.matches("    allocated  ").count(), 1, "{text}");
    assert_eq!(differ(&json(&fleet)), []);
    let (_even, fleet) = grown("fleet-even", &["--ranks", "24"]);
    let report = json(&fleet);
    assert_eq!((&report["verdict"], differ(&report)), (&"clean".into(), Vec::new()));
}

/// Nodes whose clocks are minutes apart, ahead or behind: nothing that is said of a job depends on it.
#[test]
fn clocks_of_nodes_that_are_minutes_apart_change_nothing() {
    let bad = ["--bad", "9=2", "--bad", "17=3", "--bad", "25=4", "--restarted", "17", "--missing", "30"];
    let said = |name: &str, seconds: &str| {
        let apart = format!("--apart={seconds}");
        let (_folder, fleet) = grown(name, &[&["--ranks", "32", &apart][..], &bad].concat());
        let last = std::fs::read(format!("{fleet}/node-003-r24.strand")).expect("a recording");
        (json(&fleet), last, strandline(&["report", &fleet]))
    };
    let (report, last, text) = said("fleet-together", "0");
    assert_eq!(
        differ(&report).iter().map(|d| d.0).collect::<std::collections::BTreeSet<_>>().len(),
        3,
        "{report:#}"
    );
    assert!(text.contains("1 rank was restarted"), "{text}");
    for seconds in ["420", "-420"] {
        let (other, then, other_text) = said("fleet-apart", seconds);
        assert_ne!(last, then, "the clock of the last node differs");
        assert_eq!(report, other, "{seconds} s apart");
        // What follows names the folder.
        let without_place = |text: &str| text.split("\n  next ").next().map(str::to_owned);
        assert_eq!(without_place(&text), without_place(&other_text), "{seconds} s apart");
    }
}

/// Two ranks that train until there is a file `go`.
const RUNS: &str = r#"
import os, time, torch
for rank in (4, 5):
    if os.fork() == 0:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="6")
        model = torch.nn.Linear(64, 64).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        step, end = 0, time.monotonic() + 300
        while step < 20 or not os.path.exists("go") and time.monotonic() < end:
            model(torch.randn(8, 64, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step == 15:
                open(f"ready-{rank}", "w").close()
            time.sleep(0.02)
        raise SystemExit
for _ in range(2):
    assert os.wait()[1] == 0
"#;

/// A folder of ranks is read while some of them still run.
#[test]
fn ranks_whose_recordings_still_grow_are_counted_until_they_end() {
    let (folder, ended) = grown("fleet-running", &["--ranks", "6", "--missing", "4", "--missing", "5"]);
    let job = folder.join("job");
    let fleet = job.to_str().expect("UTF-8");
    let mut run = Command::new(command());
    run.args(["run", "--quiet", "-o", fleet, "--"]).arg(python()).args(["-c", RUNS]);
    run.current_dir(folder.path()).env("XDG_CACHE_HOME", support::cache());
    let mut running = run.spawn().expect("the command starts");
    while ![4, 5].iter().all(|rank| folder.join(&format!("ready-{rank}")).exists()) {
        assert!(running.try_wait().expect("it can be asked").is_none(), "the job ended early");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for entry in std::fs::read_dir(ended).expect("recordings").flatten() {
        std::fs::copy(entry.path(), folder.join("job").join(entry.file_name())).expect("copied");
    }
    let of = |rank: u64, report: &Value| {
        let all = report["processes"].as_array().expect("processes").iter();
        all.filter(|p| p["rank"] == rank).map(|p| p["ended"].clone()).collect::<Vec<_>>()
    };
    let report = json(fleet);
    assert_eq!(
        (&report["ranks"]["running"], &report["ranks"]["missing"]),
        (&2.into(), &serde_json::json!([])),
        "{report:#}"
    );
    assert_eq!([of(4, &report), of(5, &report)], [["running"], ["running"]]);
    let text = strandline(&["report", fleet]);
    assert!(text.contains("2 recordings are still growing"), "{text}");
    std::fs::write(folder.join("go"), "").expect("a file");
    assert!(running.wait().expect("it ends").success());
    let report = json(fleet);
    assert_eq!(report["ranks"]["running"], 0, "{report:#}");
    assert_eq!([of(4, &report), of(5, &report)], [["exit"], ["exit"]]);
    let text = strandline(&["report", fleet]);
    assert!(!text.contains("still growing"), "{text}");
}

/// Manifests of docs/deploy by Kubernetes' own schemas, their command lines by the command; rules of docs/grafana by promtool.
#[test]
fn manifests_and_rules_are_valid() {
    let wanted = ["kubernetes-validate==1.37.0", "cloudcoil-models-prometheus-operator==0.80.1.0"];
    let Some(schemas) = support::packages::of_the_index("kubernetes-validate-2", &wanted) else { return };
    let mut check = Command::new(python());
    check.arg(root().join("tests/metrics/manifests.py")).arg(command()).env("PYTHONPATH", schemas);
    if let Some(promtool) = debian::file("prometheus", "usr/bin/promtool") {
        check.arg("--promtool").arg(promtool);
    }
    let output = check.output().expect("Python starts");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{}{}", said[0], said[1]);
    assert!(!said[0].contains("not checked"), "{}", said[0]);
}

/// `cargo test --release -p strandline --test fleet -- --ignored --nocapture thousand`: the figures of docs/measurements.md.
#[test]
#[ignore = "a minute of a release build"]
fn a_thousand_ranks_are_one_report() {
    let bad = ["--ranks", "1024", "--bad", "17=2", "--bad", "300=3", "--bad", "700=4"];
    let (folder, fleet) = grown("fleet-1024", &bad);
    let page = format!("--html={}", folder.join("page.html").display());
    for form in [&["--format", "text"][..], &["--format", "json"], &[page.as_str()]] {
        let (seconds, processors, mib) = events::measured(&[&["report", &fleet][..], form].concat());
        println!("{form:?}: {mib} MiB, {seconds:.1} s, {processors:.1} s of processors");
        assert!(mib <= 500, "{form:?}: {mib} MiB");
    }
    let report = json(&fleet);
    let events: u64 =
        report["processes"].as_array().expect("processes").iter().filter_map(|p| p["events"].as_u64()).sum();
    println!(
        "{events} events; the page has {} bytes",
        folder.join("page.html").metadata().expect("a page").len()
    );
    let ranks: std::collections::BTreeSet<u64> = differ(&report).iter().map(|d| d.0).collect();
    assert_eq!(ranks.into_iter().collect::<Vec<_>>(), [17, 300, 700]);
}

/// DuckDB and Polars, and what they say of tables: every query of docs/fleet.md, and all rows.
fn queried(tables: &Path) -> Option<Value> {
    let readers = support::packages::of_the_index(
        "fleet-duckdb-2.0.1-polars-2.1.0",
        &["duckdb==2.0.1", "polars==2.1.0"],
    )?;
    let mut python = Command::new(python());
    python.arg(root().join("tests/fleet/queries.py")).arg(root().join("docs/fleet.md")).arg(tables);
    let output = python.env("PYTHONPATH", readers).output().expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// The rows of a table as objects.
fn rows(said: &Value, table: &str) -> Vec<Value> {
    let table = &said["tables"][table];
    let columns: Vec<&str> =
        table["columns"].as_array().expect("columns").iter().filter_map(Value::as_str).collect();
    let object = |row: &Value| -> Value {
        let values = row.as_array().expect("a row").iter().cloned();
        columns.iter().map(|c| (*c).to_owned()).zip(values).collect::<serde_json::Map<_, _>>().into()
    };
    table["rows"].as_array().expect("rows").iter().map(object).collect()
}

#[test]
fn events_of_a_long_job_are_in_several_files_of_which_none_outlives_its_export() {
    let (folder, fleet) = grown("fleet-parts", &["--ranks", "2"]);
    let tables = folder.join("tables");
    let place = tables.to_str().expect("UTF-8");
    let words = ["export", "--format", "parquet", "--job", "long", "-o", place, &fleet];
    let export = |more: &[&str]| {
        strandline(&[&words[..], more].concat());
        let names: Vec<String> =
            store::files(&tables).into_keys().filter(|f| f.starts_with("events/")).collect();
        (names.len(), names.iter().filter(|f| f.ends_with("-1.parquet")).count())
    };
    let events = || queried(&tables).map(|told| told["tables"]["events"].clone());
    assert_eq!(export(&["--events"]), (2, 0));
    let one = events();
    let (parts, further) = export(&["--events", "--rows-per-file", "1000"]);
    assert!(parts > 6 && further == 2, "{parts} files, {further} second ones");
    assert_eq!(one, events());
    assert_eq!(export(&["--events"]), (2, 0));
    export(&["--events", "--rows-per-file", "1000"]);
    assert_eq!(export(&[]), (0, 0));
}

#[test]
fn tables_are_what_the_report_says_to_the_byte() {
    let (folder, fleet) = grown("fleet-tables", &["--ranks", "8", "--bad", "3=2"]);
    let tables = folder.join("tables");
    let place = tables.to_str().expect("UTF-8");
    strandline(&[
        "export", "--format", "parquet", "--events", "-o", place, "--job", "a b=c/07", "--commit", "abc",
        &fleet,
    ]);
    let Some(said) = queried(&tables) else { return };
    let report = json(&fleet);
    assert_eq!(said["schema"], "1");
    let [job] = &rows(&said, "jobs")[..] else { panic!("one job") };
    assert_eq!(
        (&job["job"], &job["commit"], &job["processes"]),
        (&"a b=c/07".into(), &"abc".into(), &8.into())
    );
    assert_eq!(
        (&job["verdict"], &job["reason"], &job["worst_rank"]),
        (&report["verdict"], &report["reason"], &3.into())
    );
    let of = |table: &str, rank: &Value| -> Vec<Value> {
        rows(&said, table).into_iter().filter(|r| &r["rank"] == rank).collect()
    };
    for p in report["processes"].as_array().expect("processes") {
        let (rank, device) = (&p["rank"], &p["devices"][0]);
        let [row] = &of("processes", rank)[..] else { panic!("one row") };
        for key in
            ["pid", "host", "verdict", "reason", "steps", "events", "events_lost", "ended", "killed_by_host"]
        {
            assert_eq!(row[key], p[key], "{key}");
        }
        for key in [
            "capacity_bytes",
            "peak_allocated_bytes",
            "peak_reserved_bytes",
            "peak_step",
            "end_allocated_bytes",
        ] {
            assert_eq!(row[key], device[key], "{key}");
        }
        assert_eq!(row["step_time_fraction"], p["cost"]["step_time_fraction"]);
        let events = said["tables"]["events"]["counted"].as_array().expect("counts");
        let events = events.iter().find(|e| &e["rank"] == rank).expect("events of each rank");
        assert_eq!(events["count"], p["events"]);
        let allocs: u64 = of("sites", rank).iter().filter_map(|s| s["allocs"].as_u64()).sum();
        assert_eq!((events["allocs"].as_u64(), allocs > 1000), (Some(allocs), true));
        assert!(
            events["steps"].as_u64() >= p["steps"].as_u64() && events["kinds"].as_u64() > Some(5),
            "{events}"
        );
        let stacks = of("stacks", rank);
        assert!(
            stacks
                .iter()
                .any(|s| s["depth"] == 0 && s["file"].as_str().is_some_and(|f| f.ends_with("job.py")))
        );
        let mut steps = of("steps", rank);
        steps.sort_by_key(|s| s["step"].as_u64());
        let keys = ["step", "allocated_bytes", "reserved_bytes", "pending_bytes", "peak_bytes"];
        let only = |s: &Value| keys.map(|k| s[k].as_u64());
        let told = device["per_step"].as_array().expect("steps");
        assert_eq!(steps.iter().map(only).collect::<Vec<_>>(), told.iter().map(only).collect::<Vec<_>>());
        let findings = of("findings", rank);
        assert_eq!(findings.len(), p["findings"].as_array().map_or(0, Vec::len));
        for (row, f) in findings.iter().zip(p["findings"].as_array().into_iter().flatten()) {
            for key in ["kind", "certainty", "first_step", "bytes_now", "explain"] {
                assert_eq!(row[key], f[key], "{key}");
            }
            // A column of fractions; JSON writes a whole one without its point.
            assert_eq!(row["bytes_per_step"].as_f64(), f["bytes_per_step"].as_f64());
            assert_eq!(row["line"], f["sites"][0]["frames"][0]["line"]);
        }
    }
    let docs = std::fs::read_to_string(root().join("docs/fleet.md")).expect("the page");
    for (name, table) in said["tables"].as_object().expect("tables") {
        for column in table["columns"].as_array().expect("columns").iter().filter_map(Value::as_str) {
            assert!(docs.contains(&format!("`{column}`")), "docs/fleet.md says nothing of {name}.{column}");
        }
    }
    let refused = Command::new(command()).args(["export", "--format", "parquet", &fleet]).output();
    assert_eq!(refused.expect("the command starts").status.code(), Some(2), "tables need a folder");
}

/// A fleet of fourteen jobs of four ranks: in every seventh job one rank leaks, and one asks for too much.
#[test]
fn duckdb_and_polars_answer_the_queries_of_the_page_alike() {
    let (folder, fleet) =
        grown("fleet-jobs", &["--jobs", "14", "--ranks", "4", "--bad", "2=2", "--bad", "3=5"]);
    let tables = folder.join("tables");
    let place = tables.to_str().expect("UTF-8");
    for job in 0..14 {
        let commit = if job < 7 { "c0" } else { "c1" };
        let recordings = format!("{fleet}/job-{job:04}");
        strandline(&["export", "--format", "parquet", "-o", place, "--commit", commit, &recordings]);
    }
    let Some(said) = queried(&tables) else { return };
    let queries = said["queries"].as_array().expect("queries");
    assert!(queries.len() >= 10, "{queries:?}");
    for q in queries {
        assert_eq!(q["duckdb"], q["polars"], "{}", q["title"]);
        assert!(q["duckdb"].as_array().is_some_and(|rows| !rows.is_empty()), "{q}");
    }
    let first = |title: &str| -> Vec<Value> {
        let q = queries.iter().find(|q| q["title"] == title).unwrap_or_else(|| panic!("{title}"));
        q["duckdb"].as_array().expect("rows")[0].as_array().expect("a row").clone()
    };
    let grows = first("Who grows?");
    assert_eq!((&grows[0], &grows[1]), (&"job-0000".into(), &2.into()));
    assert_eq!(first("Which commit began it?")[0], "c0");
    let failures = first("Why did memory run out?");
    assert_eq!((&failures[1], &failures[2], &failures[3]), (&2.into(), &2.into(), &(1u64 << 40).into()));
    assert!(first("Who keeps what leaks?")[0].as_str().is_some_and(|f| f.ends_with("job.py")));
    let offender = first("Which lines grow again and again?");
    assert!(
        offender[0].as_str().is_some_and(|f| f.ends_with("job.py")) && offender.last() == Some(&2.into()),
        "{offender:?}"
    );
}

/// `cargo test --release -p strandline --test fleet -- --ignored --nocapture engines`: needs Java 17 and
/// some 900 MB of packages.
#[test]
#[ignore = "Spark and Ray Data: some minutes and 900 MB of packages"]
fn spark_and_ray_data_answer_the_queries_as_duckdb_does() {
    let (folder, fleet) = grown("fleet-engines", &["--jobs", "1000", "--ranks", "1", "--bad", "0=2"]);
    let tables = folder.join("tables");
    let place = tables.to_str().expect("UTF-8");
    for job in 0..1000 {
        let commit = format!("c{}", job / 100);
        let recordings = format!("{fleet}/job-{job:04}");
        strandline(&["export", "--format", "parquet", "-o", place, "--commit", &commit, &recordings]);
    }
    let wanted = ["pyspark==4.3.0", "ray[data]==2.60.0", "pandas", "duckdb==2.0.1"];
    let Some(packages) = support::packages::of_the_index("fleet-engines-1", &wanted) else { return };
    let mut python = Command::new(python());
    python.arg(root().join("tests/fleet/engines.py")).arg(root().join("docs/fleet.md")).arg(tables);
    let output = python.env("PYTHONPATH", packages).output().expect("Python starts");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
