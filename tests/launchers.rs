//! `strandline run` before a launcher: the job that it starts is recorded, each rank in a file of its own.
//!
//! docs/launchers.md has a row for each of these, and for what is run by tests/launchers/by_hand.sh or by nothing.

mod support;

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use support::{
    Folder, cache, command, libraries, packages, python, python_with_transformers, root, strandline,
};

/// What came of a command line under `strandline run`, on so many simulated devices.
struct Launched {
    stderr: String,
    report: Value,
}

const JOB: &str = "tests/python/launched.py";

fn launch(folder: &Folder, words: &[&str], variables: &[(&str, &str)]) -> Launched {
    let mut run = Command::new(command());
    run.args(["run", "-o", "out", "--"]).args(words).current_dir(folder.path());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        run.env_remove(name);
    }
    let programs = python().parent().expect("a folder").display().to_string();
    run.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap_or_default()))
        .env("XDG_CACHE_HOME", cache())
        .env("STRANDLINE_TAIL", folder.path())
        .env("STRANDLINE_SIM_DEVICES", "2")
        .env_remove("LD_PRELOAD")
        .envs(variables.iter().copied());
    let output = run.stdin(Stdio::null()).output().expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {:?}\n{stderr}", output.status);
    let out = folder.join("out");
    let words = ["report".as_ref(), out.as_os_str(), "--format".as_ref(), "json".as_ref()];
    let report = serde_json::from_str(&strandline(&words)).expect("JSON");
    Launched { stderr, report }
}

/// One process, whole, with the steps of the job.
#[track_caller]
fn one(words: &[&str]) {
    one_with(words, &[]);
}

#[track_caller]
fn one_with(words: &[&str], variables: &[(&str, &str)]) {
    let folder = Folder::new("launcher");
    let launched = launch(&folder, words, variables);
    let processes = launched.report["processes"].as_array().expect("processes");
    assert_eq!(processes.len(), 1, "{words:?}\n{}", launched.stderr);
    let p = &processes[0];
    let told = (&p["steps"], &p["coverage"]["level"], &p["accounting_drift_bytes"]);
    assert_eq!(told, (&json!(8), &json!("blocks"), &json!(0)), "{words:?}");
}

fn job() -> String {
    root().join(JOB).display().to_string()
}

#[test]
fn python_and_what_passes_its_environment_on() {
    let job = job();
    let script = format!("nohup nice timeout 500 env A=1 python -m cProfile -o /dev/null {job}");
    one(&["sh", "-c", &script]);
}

/// As vLLM starts its engine and its workers: forked where nothing has used CUDA yet, else spawned.
#[test]
fn a_process_that_is_spawned_or_forked() {
    for method in ["spawn", "fork", "forkserver"] {
        one(&["python", &job(), method]);
    }
}

#[test]
fn torchrun_has_a_recording_for_each_rank() {
    let folder = Folder::new("torchrun");
    let job = job();
    let words = ["torchrun", "--standalone", "--nproc-per-node", "2", &job];
    // The machine's two devices the other way round.
    let launched = launch(&folder, &words, &[("CUDA_VISIBLE_DEVICES", "1,0"), ("OMP_NUM_THREADS", "1")]);
    let mut files: Vec<String> = folder
        .files(".strand")
        .iter()
        .map(|p| p.file_name().expect("a name").to_string_lossy().into())
        .collect();
    files.sort();
    assert!(
        files.len() == 2 && files[0].ends_with("-r0.strand") && files[1].ends_with("-r1.strand"),
        "{files:?}"
    );
    let processes = launched.report["processes"].as_array().expect("processes");
    for (rank, p) in processes.iter().enumerate() {
        let told = (&p["rank"], &p["steps"], &p["accounting_drift_bytes"]);
        assert_eq!(told, (&json!(rank), &json!(8), &json!(0)), "{p}");
        let devices: Vec<&Value> =
            p["devices"].as_array().expect("devices").iter().map(|d| &d["index"]).collect();
        assert!(devices.contains(&&json!(rank)), "{devices:?}");
    }
    for (rank, machine) in [(0, 1), (1, 0)] {
        let file = folder
            .files(".strand")
            .into_iter()
            .find(|p| p.to_string_lossy().ends_with(&format!("r{rank}.strand")));
        let text = strandline(&["report".as_ref(), file.expect("its recording").as_os_str()]);
        assert!(text.contains(&format!("GPU {rank} (GPU {machine} of the machine)")), "{text}");
    }
}

#[test]
fn accelerate_launch() {
    let python = python_with_transformers().to_string_lossy();
    one(&[&python, "-m", "accelerate.commands.launch", "--num_processes", "1", &job()]);
}

/// Launchers of the package index, installed once beside the tests' Python: their folder.
fn of_the_index() -> Option<PathBuf> {
    const PACKAGES: [&str; 5] = [
        "nbclient==0.11.0",
        "ipykernel==7.4.0",
        "uv==0.13.9",
        "hydra-core==1.3.8",
        "hydra-submitit-launcher==1.2.0",
    ];
    packages::of_the_index("launchers-1", &PACKAGES)
}

#[test]
fn notebooks_uv_and_hydra() {
    let Some(installed) = of_the_index() else { return };
    let folder = Folder::new("installed");
    // Alone: what lies beside it has names of packages.
    std::fs::create_dir(folder.join("lib")).expect("a folder");
    std::fs::copy(root().join(JOB), folder.join("lib/launched.py")).expect("a copy");
    let here = root().join("tests/launchers");
    let text = |path: PathBuf| path.display().to_string();
    let search = [installed.clone(), folder.join("lib"), root().join("tools/python")].map(text).join(":");
    let (state, sweep) =
        (text(folder.join("state")), format!("hydra.sweep.dir={}", text(folder.join("sweep"))));
    let variables = [
        ("PYTHONPATH", search.as_str()),
        ("JUPYTER_PLATFORM_DIRS", "1"),
        ("JUPYTER_RUNTIME_DIR", &state),
        ("JUPYTER_DATA_DIR", &state),
        ("IPYTHONDIR", &state),
        ("UV_CACHE_DIR", &state),
    ];
    let (execute, uv) = (text(installed.join("bin/jupyter-execute")), text(installed.join("bin/uv")));
    let (notebook, late) = (text(here.join("train.ipynb")), text(here.join("late.ipynb")));
    let (hydra, job, python) = (text(here.join("hydra_job.py")), job(), text(python().into()));
    one_with(&["python", &execute, &notebook], &variables);
    one_with(&[&uv, "run", "--no-project", "--offline", "--python", &python, &job], &variables);
    one_with(&["python", &hydra, &format!("hydra.run.dir={}", text(folder.join("run")))], &variables);
    one_with(&["python", &hydra, "--multirun", &sweep, "+seed=1"], &variables);
    let submitit = ["hydra/launcher=submitit_local", "hydra.launcher.gpus_per_node=1"];
    one_with(&["python", &hydra, "--multirun", submitit[0], submitit[1], &sweep, "+seed=1"], &variables);

    // A notebook whose second cell asks for it.
    let mut run = Command::new(&python);
    run.args([&execute, &late]).envs(variables).env("STRANDLINE_BIN", command());
    run.env("STRANDLINE_OUT", folder.join("late")).env("STRANDLINE_TAIL", folder.path());
    run.env("XDG_CACHE_HOME", cache()).env_remove("LD_PRELOAD").stdin(Stdio::null());
    let output = run.output().expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [recording] = folder.files(".strand").try_into().expect("one recording");
    assert_eq!(support::report(&recording).whole().process["steps"], 8);
}

#[test]
fn steps_that_are_nvtx_ranges() {
    let folder = Folder::new("nvtx");
    let mut run = Command::new(command());
    run.args(["run", "-q", "-o", "out", "--steps", "nvtx:request", "--"]).arg(python());
    run.arg(root().join("tests/python/nvtx.py")).current_dir(folder.path());
    run.env("XDG_CACHE_HOME", cache()).env("STRANDLINE_TAIL", folder.path()).env_remove("LD_PRELOAD");
    assert!(run.stdin(Stdio::null()).output().expect("the command starts").status.success());
    let out = folder.join("out");
    let words = ["report".as_ref(), out.as_os_str(), "--format".as_ref(), "json".as_ref()];
    let report: Value = serde_json::from_str(&strandline(&words)).expect("JSON");
    let p = &report["processes"][0];
    assert_eq!((&p["steps"], &p["step_source"]), (&json!(20), &json!("manual")), "{p}");
    assert_eq!(p["findings"][0]["bytes_per_step"], json!(8 << 20), "{p}");
}

/// A program without steps: seconds are its steps, whatever it does meanwhile.
#[test]
fn steps_that_are_seconds() {
    let folder = Folder::new("every");
    let job = root().join("tests/python/nvtx.py").display().to_string();
    let mut run = Command::new(command());
    run.args(["run", "-q", "-o", "out", "--steps", "every:0.05", "--"]).arg(python()).args([&job, "0.1"]);
    run.current_dir(folder.path()).env("XDG_CACHE_HOME", cache()).env("STRANDLINE_TAIL", folder.path());
    assert!(run.env_remove("LD_PRELOAD").stdin(Stdio::null()).output().expect("it starts").status.success());
    let out = folder.join("out");
    let words = ["report".as_ref(), out.as_os_str(), "--format".as_ref(), "json".as_ref()];
    let report: Value = serde_json::from_str(&strandline(&words)).expect("JSON");
    let p = &report["processes"][0];
    // Twenty rounds with a pause of 0.1 s each; a busy machine may sleep through ticks, and makes more of them in all.
    assert!(p["steps"].as_u64().is_some_and(|n| n >= 12) && p["step_source"] == "manual", "{p}");
    assert_eq!(p["findings"][0]["kind"], "step-growth", "{p}");
}

/// The command as it finds a simulated driver, on a card that processes share, with a cache of its own.
fn on_a_card(folder: &Folder) -> Command {
    let card = folder.join("card");
    std::fs::create_dir_all(&card).expect("a folder");
    let mut command = Command::new(command());
    command.current_dir(folder.path()).env("XDG_CACHE_HOME", folder.path()).stdin(Stdio::null());
    command.env("STRANDLINE_TAIL", folder.path()).env_remove("LD_PRELOAD");
    command.env("LD_LIBRARY_PATH", libraries().join("../../nvidia/cu13/lib"));
    command.env("STRANDLINE_SIM_CARD", &card).env("STRANDLINE_SIM_CONTEXT", "526MiB");
    command
}

#[test]
fn a_context_is_measured_once_and_told_apart_in_reports() {
    let folder = Folder::new("context");
    let job = root().join("tests/python/nvtx.py").display().to_string();
    let words = ["run", "-q", "-o", "out", "--steps", "every:0.05", "--"];
    let run = |command: &mut Command| command.output().expect("the command starts");
    let device = |output: &std::process::Output| -> Value {
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["processes"][0]["devices"][0].clone()
    };
    let recorded = run(on_a_card(&folder).args(words).arg(python()).args([&job, "0.1"]));
    assert!(recorded.status.success(), "{recorded:?}");
    let before = device(&run(on_a_card(&folder).args(["report", "out", "--format", "json"])));
    assert_eq!((&before["context"], &before["attributed_bytes"]), (&Value::Null, &Value::Null));

    let measured = run(on_a_card(&folder).env("STRANDLINE_SIM_DEVICES", "2").args(["doctor", "--context"]));
    let said = String::from_utf8_lossy(&measured.stdout);
    let first = "strandline: a CUDA context takes 526 MiB on Simulated device 0, 526 MiB on Simulated device 1 \
                 (driver 580.00)\n";
    assert!(measured.status.success() && said.starts_with(first), "{measured:?}");

    // A recording that was made before knows it as well; and not only the table, but what is attributed, is what the job held.
    let after = device(&run(on_a_card(&folder).args(["report", "out", "--format", "json"])));
    let context = 526u64 << 20;
    assert_eq!(
        (&after["context"]["bytes"], &after["anatomy"]["context"]),
        (&json!(context), &json!(context))
    );
    let reserved = after["end_reserved_bytes"].as_u64().expect("a number");
    assert_eq!(after["attributed_bytes"], json!(reserved + context));
    let peak = after["peak_reserved_bytes"].as_u64().expect("a number");
    let held: Vec<u64> = std::fs::read_dir(folder.join("card"))
        .expect("the card")
        .filter_map(|e| std::fs::read_to_string(e.ok()?.path()).ok()?.parse().ok())
        .collect();
    assert!(held.contains(&(peak + context)), "{held:?}, {peak}");
    let text = run(on_a_card(&folder).args(["report", "out"])).stdout;
    assert!(String::from_utf8_lossy(&text).contains("CUDA context"), "{text:?}");

    // Made on a machine that knows, it is known elsewhere.
    std::fs::remove_dir_all(folder.join("out")).expect("a folder");
    assert!(run(on_a_card(&folder).args(words).arg(python()).args([&job, "0.1"])).status.success());
    let elsewhere = folder.join("elsewhere");
    let report =
        run(on_a_card(&folder).env("XDG_CACHE_HOME", &elsewhere).args(["report", "out", "--format", "json"]));
    assert_eq!(device(&report)["context"]["bytes"], json!(context));
}

#[test]
fn what_is_not_known_of_a_context_is_not_made_up() {
    let folder = Folder::new("no-context");
    // A second process changes nothing that the first one sees: so it measures nothing.
    let busy = on_a_card(&folder).env_remove("STRANDLINE_SIM_CARD").args(["doctor", "--context"]).output();
    let busy = busy.expect("the command starts");
    let said = String::from_utf8_lossy(&busy.stdout);
    assert!(busy.status.code() == Some(1) && said.starts_with("strandline: NOT MEASURED"), "{busy:?}");
    let none = on_a_card(&folder).env("CUDA_VISIBLE_DEVICES", "").args(["doctor", "--context"]).output();
    let none = none.expect("the command starts");
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    assert!(String::from_utf8_lossy(&none.stderr).contains("CUDA_VISIBLE_DEVICES"), "{none:?}");
    assert!(!folder.join("strandline/contexts.json").exists());
}

#[test]
fn where_it_cannot_reach_it_says_what_to_type_instead() {
    let folder = Folder::new("elsewhere");
    let mut run = Command::new(command());
    let output = run
        .args(["run", "env", "-i", "/bin/true"])
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", cache())
        .env_remove("LD_PRELOAD")
        .output()
        .expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let why = "env -i removes the environment variables";
    let typed = "env -i \"$(command -v strandline)\" run /bin/true";
    assert!(
        stderr.contains(&format!("strandline: {why}, so nothing will be recorded; type instead: {typed}\n")),
        "{stderr}"
    );
    assert!(stderr.contains(&format!("NOTHING RECORDED: {why}\n  next  {typed}\n")), "{stderr}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn what_env_prints_is_what_run_sets() {
    let folder = Folder::new("env");
    let job = job();
    let script = format!(
        "eval \"$(\"$1\" env -o '{}/out')\"; STRANDLINE_QUIET=1 exec python {job}",
        folder.path().display()
    );
    let programs = python().parent().expect("a folder").display().to_string();
    let mut sh = Command::new("sh");
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        sh.env_remove(name);
    }
    let status = sh
        .args(["-c", &script, "sh"])
        .arg(command())
        .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap_or_default()))
        .env("XDG_CACHE_HOME", cache())
        .env("STRANDLINE_TAIL", folder.path())
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .status()
        .expect("sh starts");
    assert!(status.success());
    let [recording] = folder.files(".strand").try_into().expect("one recording");
    assert_eq!(support::report(&recording).whole().process["steps"], 8);
}
