//! The callbacks for transformers' Trainer, Lightning and accelerate, with the real libraries: what they add to the trainer's own log, the
//! steps that they mark, and that the training is otherwise the same. Most of it is asserted by the trainings themselves, in
//! `tests/python/trainers`, which run bare, not recorded, and recorded, in one process.

mod support;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use strandline::event::Body;
use support::{Folder, Job, Ran, Recording, cache, command, packages, python, root};

/// 240 MB when they are installed, without torch, which the simulated device's Python has, and what only a network needs.
const TRAINERS: &[&str] = &[
    "--no-deps",
    "absl-py==2.5.1",
    "accelerate==1.15.0",
    "annotated-doc==0.0.7",
    "annotated-types==0.8.0",
    "anyio==4.16.0",
    "click==8.5.1",
    "grpcio==1.85.1",
    "h11==0.16.0",
    "httpcore2==2.16.2",
    "httpx2==2.16.2",
    "huggingface_hub==2.4.0",
    "idna==3.20",
    "lightning-utilities==0.15.3",
    "lightning==2.6.6",
    "packaging==26.3",
    "protobuf==7.36.2",
    "psutil==7.2.2",
    "pydantic==2.14.3",
    "pydantic_core==2.50.4",
    "pytorch-lightning==2.6.6",
    "PyYAML==6.0.3",
    "regex==2026.11.15",
    "safetensors==0.8.0",
    "shellingham==1.5.4",
    "tensorboard==2.21.0",
    "tokenizers==0.23.3",
    "torchmetrics==1.9.0",
    "tqdm==4.70.1",
    "transformers==5.23.0",
    "truststore==0.10.5",
    "typer==0.29.2",
    "typing-inspection==0.4.5",
];

const PEFT: &[&str] = &["--no-deps", "peft==0.21.2"];

/// What TRL needs beside [`TRAINERS`] and [`PEFT`].
const TRL: &[&str] = &[
    "--no-deps",
    "datasets==5.2.0",
    "dill==0.4.1",
    "fsspec==2026.9.0",
    "jinja2==3.1.6",
    "multiprocess==0.70.19",
    "pandas==3.1.1",
    "pyarrow==26.0.1",
    "python-dateutil==4.0.0",
    "pytz==2026.6",
    "six==1.17.0",
    "trl==1.16.0",
    "xxhash==4.1.0",
];

/// Runs Python with these words, of which `NAME.py` is a script of `tests/python/trainers`, and with folders of more packages; `None` where its
/// libraries cannot be had.
#[track_caller]
fn run(folder: &Folder, words: &[&str], more: &[PathBuf]) -> Option<Ran> {
    run_program(folder, python(), &[&["-u"], words].concat(), more)
}

/// The same of any program.
#[track_caller]
fn run_program(folder: &Folder, program: &Path, words: &[&str], more: &[PathBuf]) -> Option<Ran> {
    let installed = packages::if_they_can_be_had("trainers-1", TRAINERS)?;
    let scripts = root().join("tests/python/trainers");
    let path = [&[root().join("tools/python"), installed, scripts.clone()], more].concat();
    let whole = |word: &&str| if word.ends_with(".py") { scripts.join(word) } else { PathBuf::from(word) };
    let job = Job::program(folder, program).args(words.iter().map(whole));
    let job = job.env("PYTHONPATH", std::env::join_paths(path).expect("a search path")).env("LD_PRELOAD", "");
    let job = job.env("PYTHONDONTWRITEBYTECODE", "1").env("XDG_CACHE_HOME", cache());
    // All that asks for a network is told that there is none.
    let job = job.env("HF_HUB_OFFLINE", "1").env("HF_HOME", folder.path()).env("STRANDLINE_BIN", command());
    Some(job.env("STRANDLINE_SIM_TOTAL", "1GiB").run().succeeded())
}

/// The numbers of the steps that a library's trainings marked.
#[track_caller]
fn trained(library: &str) -> Option<Vec<u64>> {
    let folder = Folder::new(library);
    let ran = run(&folder, &[&format!("with_{library}.py")], &[])?;
    assert!(ran.stdout().ends_with("\"done\"\n"), "{}", ran.stdout());
    if library != "accelerate" {
        let said = support::strandline(&["dump".as_ref(), ran.recording().as_os_str()]);
        let has = |what: &str| said.lines().any(|l| l.ends_with(what));
        assert!(has("name=\"epoch 2\"") && has("name=eval"), "epochs are marks, evaluation is a phase");
    }
    Some(steps(ran.recording()))
}

fn steps(recording: PathBuf) -> Vec<u64> {
    let recording = Recording::read(&recording).whole();
    let number = |body: &Body| if let Body::ManualStep(n) = body { Some(*n) } else { None };
    recording.events.iter().filter_map(|e| number(&e.body)).collect()
}

/// First the training that is recorded, of 48 batches, two of which are a step; then one that is ended before the device is full, and
/// goes on for four steps from the checkpoint that it saved.
#[track_caller]
fn are_global_steps(steps: &[u64]) {
    let whole: Vec<u64> = (1..=24).collect();
    assert_eq!(steps[..24], whole);
    let (stopped, resumed) = steps[24..].split_at(steps.len() - 24 - 4);
    let end = stopped.len() as u64;
    assert_eq!(stopped, (1..=end).collect::<Vec<_>>());
    assert_eq!(resumed, (end + 1..=end + 4).collect::<Vec<_>>());
}

#[test]
fn transformers_logs_figures_marks_its_steps_and_trains_as_before() {
    trained("transformers").iter().for_each(|steps| are_global_steps(steps));
}

#[test]
fn lightning_logs_figures_marks_its_steps_and_trains_as_before() {
    trained("lightning").iter().for_each(|steps| are_global_steps(steps));
}

#[test]
fn accelerate_logs_figures_marks_its_steps_and_trains_as_before() {
    trained("accelerate").iter().for_each(|steps| are_global_steps(steps));
}

/// What is said of `alike.py` under `strandline run`: the verdict, and of its one finding the kind, how sure it is, the line and the rate.
fn judged(library: &str, callback: &[&str], more: &[PathBuf]) -> Option<Value> {
    let folder = Folder::new(&format!("alike-{library}"));
    let python = python().to_str().expect("UTF-8").to_owned();
    let words = [&["run", "--quiet", "-o", "out", "--", &python, "alike.py", library], callback].concat();
    run_program(&folder, command(), &words, more)?;
    let report = support::report(&folder.files(".strand").pop().expect("a recording"));
    let p = &report.process;
    let [finding] = &p["findings"].as_array().expect("findings")[..] else { panic!("{p:#}") };
    // Without the callback the last step ends with the process, if at all.
    assert!(p["steps"].as_u64().is_some_and(|n| (19..=20).contains(&n)), "{}", p["steps"]);
    let source = if callback.is_empty() { "optimizer" } else { "manual" };
    assert_eq!(p["step_source"], source, "{p:#}");
    let line = &finding["sites"][0]["your_line"];
    Some(json!([
        report.run["verdict"],
        finding["kind"],
        finding["certainty"],
        line["file"],
        line["line"],
        finding["bytes_per_step"],
        finding["grain"],
    ]))
}

/// The callback marks the steps that are seen without it.
#[track_caller]
fn are_judged_alike(library: &str, more: &[PathBuf]) {
    let Some(plain) = judged(library, &[], more) else { return };
    assert_eq!(Some(&plain), judged(library, &["callback"], more).as_ref());
    assert_eq!((&plain[0], &plain[5]), (&json!("growing"), &json!(2 << 20)), "{plain}");
    assert!(plain[3].as_str().is_some_and(|file| file.ends_with("trainers/common.py")), "{plain}");
}

#[test]
fn a_trainer_with_an_adapter_of_peft_is_judged_alike_with_the_callback_and_without() {
    let Some(peft) = packages::if_they_can_be_had("peft-1", PEFT) else { return };
    are_judged_alike("transformers", &[peft]);
}

/// `cargo test -p strandline --test trainers -- --ignored`
#[test]
#[ignore = "installs TRL and what it reads data with, 280 MB"]
fn trl_is_judged_alike_with_the_callback_and_without() {
    let Some(peft) = packages::if_they_can_be_had("peft-1", PEFT) else { return };
    let Some(trl) = packages::if_they_can_be_had("trl-1", TRL) else { return };
    are_judged_alike("trl", &[peft, trl]);
}

#[test]
fn lightning_is_judged_alike_with_the_callback_and_without() {
    are_judged_alike("lightning", &[]);
}

#[test]
fn two_ranks_end_at_the_same_step_where_one_of_them_leaks() {
    let folder = Folder::new("ranks");
    let words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "two_ranks.py"];
    let Some(ran) = run(&folder, &words, &[]) else { return };
    let said = ran.stdout();
    let ended: Vec<&str> = said.lines().filter(|l| l.starts_with("stopped after ")).collect();
    assert!(ended.len() == 2 && ended[0] == ended[1] && ended[0] != "stopped after 200 steps", "{said}");
    assert!(folder.join("last").exists(), "it saved");
}

#[test]
fn the_examples_of_the_document_run() {
    let folder = Folder::new("trainers-examples");
    let document = root().join("docs/trainers.md").display().to_string();
    let Some(ran) = run(&folder, &["examples.py", &document], &[]) else { return };
    assert!(ran.stdout().ends_with("\"done\"\n"), "{}", ran.stdout());
}

/// By itself and through accelerate's trackers; W&B writes to a file, MLflow to a folder. The packages are 190 MB, so it is asked for:
/// `cargo test -p strandline --test trainers -- --ignored`.
#[test]
#[ignore = "installs W&B and MLflow, 190 MB"]
fn loggers_are_given_figures_the_verdict_the_page_and_a_snapshot() {
    let wanted = ["wandb==0.31.0", "mlflow-skinny==3.17.2"];
    let Some(loggers) = packages::if_they_can_be_had("loggers-1", &wanted) else { return };
    let folder = Folder::new("loggers");
    let Some(ran) = run(&folder, &["with_loggers.py"], &[loggers]) else { return };
    assert!(ran.stdout().ends_with("\"done\"\n"), "{}", ran.stdout());
}

/// Nothing imports a trainer until its callback is asked for, and then it is said what is missing.
#[test]
fn a_callback_without_its_library_says_what_to_install() {
    let source = "
import sys
import strandline
import strandline.accelerate
assert not {'torch', 'transformers', 'lightning', 'accelerate'} & set(sys.modules), sorted(sys.modules)
for name in ('transformers', 'lightning'):
    try:
        __import__(f'strandline.{name}')
        raise SystemExit(f'{name} is there')
    except ImportError as e:
        assert str(e).startswith(f'strandline.{name} needs {name}, ') and str(e).endswith(f': pip install {name}'), e
";
    let folder = Folder::new("trainers-none");
    // -S: without the packages that are installed there.
    let job = Job::program(&folder, python()).args(["-S", "-c", source]).env("LD_PRELOAD", "");
    job.env("PYTHONPATH", root().join("tools/python")).run().succeeded();
}
