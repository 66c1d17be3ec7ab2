//! Steps of real training loops: as many as the script has made, by the source that it deserves.
//!
//! The scripts (`tests/python/steps.py`, `patterns.py`, `unequal.py`) count for themselves; `strandline report` must agree, and with torch
//! about the peak.

mod support;

use serde_json::Value;
use std::path::Path;
use support::{Folder, Job, Report, report};

/// A case: what the script says, and what the report says.
struct Ran {
    script: Value,
    report: Report,
}

impl Ran {
    /// Runs a case. Whatever it is about: the recording is whole, and its peak is torch's.
    #[track_caller]
    fn case(case: &str) -> Ran {
        let folder = Folder::new(case);
        let ran = Job::python(&folder, "tests/python/steps.py", &[case]).run_imported().succeeded();
        Ran::of(case, &ran.stdout(), &ran.recording())
    }

    /// What a case printed, and its recording.
    #[track_caller]
    fn of(case: &str, said: &str, recording: &Path) -> Ran {
        let script: Value = serde_json::from_str(said.trim()).unwrap_or_else(|e| panic!("{e}: {said}"));
        let report = report(recording).whole();
        assert_eq!(
            report.process["devices"][0]["peak_allocated_bytes"], script["peak"],
            "{case}: torch's peak"
        );
        Ran { script, report }
    }

    /// Steps by their source.
    #[track_caller]
    fn steps(&self, source: &str) {
        let p = &self.report.process;
        assert_eq!(
            (&p["step_source"], &p["steps"]),
            (&source.into(), &self.script["steps"]),
            "{}",
            self.script
        );
        let rows = p["devices"][0]["per_step"].as_array().expect("rows");
        let numbers: Vec<u64> = rows.iter().filter_map(|r| r["step"].as_u64()).collect();
        let all = 1..=self.script["steps"].as_u64().expect("a number");
        assert_eq!(numbers, all.collect::<Vec<u64>>(), "a row for each step");
    }
}

#[track_caller]
fn counts(case: &str, source: &str) -> Ran {
    let ran = Ran::case(case);
    ran.steps(source);
    ran
}

#[test]
fn an_ordinary_loop() {
    counts("plain", "optimizer");
}

#[test]
fn optimizers_inside_backward() {
    let ran = counts("in_backward", "optimizer");
    assert_eq!(ran.script["hooks"], 36, "an optimizer for each of 12 parameters ran in each of 3 steps");
}

#[test]
fn two_optimizers_in_one_step() {
    counts("two_in_one_step", "optimizer");
}

#[test]
fn optimizers_that_take_turns() {
    counts("gan", "optimizer");
    counts("gan_with_five_critics", "optimizer");
}

/// The source is looked into from the script's first line on, so nothing stands around it.
#[test]
fn one_line_that_trains_models_by_turns() {
    let case = "heads_by_name";
    let folder = Folder::new(case);
    let ran = Job::python(&folder, "tests/python/steps.py", &[case]).run().succeeded();
    Ran::of(case, &ran.stdout(), &ran.recording()).steps("optimizer");
}

#[test]
fn steps_that_a_scaler_skips() {
    let ran = counts("scaler", "optimizer");
    assert_eq!((&ran.script["ran"], &ran.script["skipped"]), (&14.into(), &6.into()), "torch did skip them");
}

#[test]
fn steps_that_the_loop_skips_itself() {
    counts("skipped_by_hand", "optimizer");
}

#[test]
fn one_optimizer_that_runs_for_each_sub_group() {
    counts("zero", "optimizer");
    counts("zero_that_allocates", "optimizer");
}

#[test]
fn sixteen_microbatches_a_step() {
    let ran = counts("accumulation", "optimizer");
    assert_eq!(ran.report.process["microbatches"], ran.script["microbatches"]);
}

#[test]
fn a_backward_on_the_main_thread() {
    counts("main_thread_backward", "optimizer");
}

#[test]
fn a_worker_thread_that_trains_while_main_waits() {
    counts("worker", "optimizer");
}

#[test]
fn threads_that_train_each_a_model_of_its_own() {
    counts("threads_that_train", "optimizer");
}

#[test]
fn a_loader_that_allocates_beside() {
    counts("beside_a_loader", "optimizer");
}

#[test]
fn evaluation_between_steps() {
    counts("evaluation", "optimizer");
}

#[test]
fn a_backward_of_a_backward() {
    counts("double_backward", "optimizer");
}

#[test]
fn a_backward_within_a_backward() {
    let ran = counts("nested_backward", "optimizer");
    assert_eq!(ran.report.process["microbatches"], 6, "reentrant backwards are parts of one");
}

#[test]
fn an_optimizer_that_calls_backward() {
    let ran = counts("lbfgs", "optimizer");
    assert!(ran.script["evaluations"].as_u64() > ran.script["steps"].as_u64(), "{}", ran.script);
}

#[test]
fn state_made_before_the_first_gradient() {
    counts("warmed_up", "optimizer");
}

#[test]
fn a_captured_backward_with_an_optimizer_of_its_own() {
    counts("graphed", "optimizer");
}

#[test]
fn no_optimizer() {
    counts("no_optimizer", "backward");
}

#[test]
fn neither_optimizer_nor_backward() {
    let ran = Ran::case("neither");
    let p = &ran.report.process;
    assert_eq!((&p["step_source"], &p["steps"]), (&"iteration".into(), &ran.script["iterations"]), "{p:#}");
}

#[test]
fn steps_that_the_job_marks() {
    counts("manual", "manual");
}

#[test]
fn a_compiled_model() {
    counts("compiled", "optimizer");
}

/// All cases of a script that forks for each.
fn counts_each(script: &str, at_least: usize) {
    let folder = Folder::new(script);
    let path = format!("tests/python/{script}.py");
    let said = Job::python::<&str>(&folder, &path, &[]).run_imported().succeeded().stdout();
    assert!(said.lines().count() >= at_least, "{said}");
    for line in said.lines() {
        let script: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let case = script["case"].as_str().expect("a name");
        Ran::of(case, line, &folder.join(&format!("{case}.strand"))).steps("optimizer");
    }
}

#[test]
fn patterns_of_optimizers() {
    counts_each("patterns", 35);
}

#[test]
fn optimizers_that_do_not_run_in_each_iteration() {
    counts_each("unequal", 29);
}
