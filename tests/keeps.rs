//! Jobs of a few seconds that keep tensors: who holds them is asked in time, and the statement that keeps them is named. Each case of the scripts
//! keeps them in another way; a bound that the holder has, or that it is emptied, is told. `tests/leakbench/holders_table.py` runs all of them.

#[path = "keeps/mod.rs"]
mod more;
mod support;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use support::imported::in_one_run;
use support::{Folder, command, python, python_with_transformers, root};

const SCRIPTS: [&str; 5] = [
    "tests/python/keeps.py",
    "tests/python/kept_more.py",
    "tests/python/kept_by_graphs.py",
    "tests/python/kept_by_others.py",
    "tests/python/kept_by_trainers.py",
];

/// The script that has a case, and its text.
fn script(case: &str) -> (&'static str, String) {
    let text = |script| (script, std::fs::read_to_string(root().join(script)).expect("the script"));
    let mut all = SCRIPTS.map(text).into_iter();
    all.find(|(_, text)| text.contains(&format!("def {case}("))).expect("a case of a script")
}

/// The report of each case, in their order. Each is a job of its own, two at a time, forked from one process that has imported PyTorch.
#[track_caller]
fn reports(folder: &Folder, cases: &[&str]) -> Vec<Value> {
    reports_of(python(), folder, cases)
}

#[track_caller]
fn reports_of(python: &Path, folder: &Folder, cases: &[&str]) -> Vec<Value> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let reports: Vec<OnceLock<Value>> = cases.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
            let (did, recording) = in_one_run(python, &root().join(script(case).0), case, folder.path());
            let said = String::from_utf8_lossy(&did.stdout);
            if !did.status.success() || !said.contains(&format!("done {case}")) {
                let why = format!("{case}: {} {said}{}", did.status, String::from_utf8_lossy(&did.stderr));
                failed.lock().expect("no panic").push(why);
            } else {
                let at = cases.iter().position(|c| c == case).expect("one of them");
                let _ = reports[at].set(report(&recording));
            }
            let _ = std::fs::remove_file(recording);
        }
    };
    std::thread::scope(|s| [s.spawn(work), s.spawn(work)].map(|w| w.join().expect("no panic")));
    let failed = failed.into_inner().expect("no panic");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    reports.into_iter().filter_map(OnceLock::into_inner).collect()
}

fn report(recordings: &Path) -> Value {
    let mut report = Command::new(command());
    report.arg("report").arg(recordings).args(["--format", "json"]);
    let output = report.output().expect("the command starts");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// What grows most, of what stands.
fn largest(report: &Value) -> &Value {
    let findings = report["processes"][0]["findings"].as_array().expect("findings");
    let stands = |f: &&Value| {
        let kind = f["kind"].as_str().unwrap_or_default();
        ["step-growth", "live-after-stream-exit", "cycle-garbage"].contains(&kind)
    };
    let most = findings.iter().filter(stands).max_by_key(|f| f["bytes_now"].as_u64());
    most.unwrap_or_else(|| panic!("nothing grows: {report:#}"))
}

/// The line that a case marks as the one that keeps.
fn marked(case: &str) -> u64 {
    let line = script(case).1.lines().position(|l| l.ends_with(&format!("# KEEPS {case}")));
    line.unwrap_or_else(|| panic!("{case} has no mark")) as u64 + 1
}

/// The holder's name, and what the report says of it.
fn holder(finding: &Value) -> (&str, &Value) {
    let first = &finding["held_by"]["details"][0];
    (first["name"].as_str().unwrap_or("nobody"), first)
}

/// What a library has beside, as a set of data in memory, does not hide who keeps: nothing is searched for among all objects.
#[test]
fn who_keeps_is_found_among_all_that_a_trainer_has() {
    let folder = Folder::new("trainers");
    let cases = [
        ("list_of_a_callback", "Norms.norms"),
        ("features_of_a_layer", "__main__.features"),
        ("outputs_of_a_model", "outs, a local of outputs_of_a_model"),
    ];
    let reports = reports_of(python_with_transformers(), &folder, &cases.map(|(case, _)| case));
    let mut missed = Vec::new();
    for ((case, name), report) in cases.iter().zip(&reports) {
        let (finding, probe) = (largest(report), &report["processes"][0]["cost"]["probe"]);
        let (line, marked) = (finding["kept_at"]["line"].as_u64(), marked(case));
        assert!(line.is_none_or(|l| l == marked), "{case}: {:#}", finding["kept_at"]);
        if !holder(finding).0.starts_with(name) || line.is_none() || probe["objects"] != 0 {
            missed.push(format!("{case}: {:#} {probe:#}", finding["held_by"]));
        }
    }
    assert!(missed.len() <= 1, "one may be missed where the machine is busy: {missed:#?}");
}

/// Each case with what its holder's name begins with, and whether the statement is named as well.
fn all_kept(cases: &[(&str, &str)]) {
    let folder = Folder::new("keeps");
    let (mut wrong, mut count) = (Vec::new(), 0);
    let reports = reports(&folder, &cases.iter().map(|(case, _)| *case).collect::<Vec<_>>());
    for ((case, name), report) in cases.iter().zip(&reports) {
        let finding = largest(report);
        let (found, _) = holder(finding);
        let (line, marked) = (finding["kept_at"]["line"].as_u64(), marked(case));
        // A wrong line is worse than none.
        assert!(line.is_none_or(|l| l == marked), "{case}: {:#}", finding["kept_at"]);
        count += u32::from(found.starts_with(name) && line == Some(marked));
        if !found.starts_with(name) || line.is_none() {
            wrong.push(format!("{case}: held by {} kept at {line:?}", finding["held_by"]));
        }
    }
    // One may be missed where the machine is so busy that a job of three seconds got no turn.
    assert!(count as usize + 1 >= cases.len(), "{wrong:#?}");
}

#[test]
fn containers_of_every_scope_and_the_statement_that_fills_them() {
    all_kept(&[
        ("of_a_module", "__main__.hist"),
        ("of_a_loop_without_steps", "__main__.hist"),
        ("of_a_server", "tasks, a local of of_a_server.<locals>.serve"),
        ("of_groups", "__main__.groups"),
        ("of_a_dataclass", "Log.outputs"),
        ("of_a_class", "Registry.seen"),
        ("of_a_slot", "Slotted.bank"),
        ("of_a_closure", "acts, a closure of recorder.<locals>.hook"),
        ("of_a_default", "cache, a default of encode"),
    ]);
}

#[test]
fn a_name_that_is_rebound_in_every_step() {
    all_kept(&[
        ("of_a_sum", "__main__.total"),
        ("of_a_state", "h, a local of of_a_state"),
        ("of_an_attribute_that_is_rebound", "Recurrent.state"),
    ]);
}

#[test]
fn storages_exceptions_queues_caches_generators_and_modules() {
    all_kept(&[
        ("of_storages", "kept, a local of of_storages"),
        ("of_exceptions", "errors, a local of of_exceptions"),
        ("of_a_queue", "q, a local of of_a_queue"),
        ("of_a_cache", "__main__.embedded"),
        ("of_generators", "running, a local of of_generators"),
        ("of_an_argument", "mine, a local of of_an_argument"),
    ]);
}

#[test]
fn the_state_that_is_carried_on_and_not_a_loss_that_is_made_of_it() {
    all_kept(&[
        ("hidden_state_of_two", "state, a local of hidden_state_of_two"),
        ("loss_beside_its_state", "h, a local of loss_beside_its_state"),
        ("sums_by_name", "sums, a local of sums_by_name"),
        ("average_meter", "AverageMeter.sum"),
        ("state_of_two_methods", "Stepper.state"),
    ]);
}

#[test]
fn containers_that_are_made_anew_in_every_step() {
    all_kept(&[
        ("tuple_that_grows", "kept, a local of tuple_that_grows"),
        ("list_that_is_remade", "kept, a local of list_that_is_remade"),
        ("linked_list", "head, a local of linked_list"),
        ("tuple_of_a_closure", "kept, a closure of recorded.<locals>.record"),
    ]);
}

#[test]
fn what_python_and_torch_wrap_is_named_by_whoever_has_it() {
    all_kept(&[
        ("of_modules", "adapters, a local of of_modules"),
        ("context_stack", "stack, a local of context_stack"),
        ("cycled", "batches, a local of cycled"),
        ("thread_local", "__main__.store"),
        ("weak_keys", "memory, a local of weak_keys"),
        ("nested_dataclasses", "Episode.states"),
        ("list_of_a_module", "Encoder.outputs"),
        ("callbacks", "waiting, a local of callbacks"),
        ("closure_of_a_hook", ""),
        ("attributes_by_name", "store, a local of attributes_by_name"),
    ]);
}

#[test]
fn attributes_of_tensors_and_what_pythons_library_keeps() {
    all_kept(&[
        ("of_a_parameter", "Parameter.history"),
        ("sparse_tensors", "graphs, a local of sparse_tensors"),
        ("of_a_tensor", "Tensor.parts"),
        ("chain_map", "layers, a local of chain_map"),
        ("finalizers", "finalize._registry"),
        ("log_records", "MemoryHandler.buffer"),
        ("handler_of_its_own", "Records.records"),
        ("by_globals", "__main__.by_name"),
        ("class_made_of_a_user_list", "bank, a local of class_made_of_a_user_list"),
        ("branch_that_lags", ""),
        ("array_of_objects", "memory, a local of array_of_objects"),
    ]);
}

#[test]
fn calls_at_exit_contexts_chained_maps_and_causes() {
    all_kept(&[
        ("class_called_deque", "kept, a local of class_called_deque"),
        ("calls_at_exit", "atexit.register"),
        ("context_variable_that_is_remade", "current, a context variable"),
        ("list_of_a_context_variable", "current, a context variable"),
        ("contexts", "kept, a local of contexts"),
        ("maps_that_are_chained", "layers, a local of maps_that_are_chained"),
        ("tracebacks_and_causes", "errors, a local of tracebacks_and_causes"),
        ("ever_more_bounded_deques", "queues, a local of ever_more_bounded_deques"),
    ]);
}

/// The container of modules that gets more of them, with its count at every look, and not the modules of the whole model.
#[test]
fn containers_of_modules_and_a_tuple_that_a_method_builds() {
    let folder = Folder::new("modules");
    let cases = [
        ("adapters_of_a_model", "Adapted.adapters", "ModuleDict", "del self.adapters[name]"),
        ("prompts_of_a_model", "Adapted.prompts", "ParameterList", "make a new nn.ParameterList"),
        ("tuple_of_a_class", "", "", "keep only its newest entries"),
    ];
    let mut missed = Vec::new();
    for ((case, name, kind, helps), report) in
        cases.into_iter().zip(reports(&folder, &cases.map(|(case, ..)| case)))
    {
        let finding = largest(&report);
        let (found, details) = holder(finding);
        let line = finding["kept_at"]["line"].as_u64();
        assert!(line.is_none_or(|l| l == marked(case)), "{case}: {:#}", finding["kept_at"]);
        let counts = details["counts"].as_array().map_or(0, Vec::len);
        let is_counted =
            kind.is_empty() || details["type"] == kind && counts > 1 && details["shrank"] == false;
        let remedy = finding["remedy"].as_str().unwrap_or_default();
        if !found.starts_with(name) || line.is_none() || !is_counted || !remedy.contains(helps) {
            missed.push(format!("{case}: {remedy} {:#} {:#}", finding["kept_at"], finding["held_by"]));
        }
    }
    // As above: one may be missed where the machine is busy.
    assert!(missed.len() <= 1, "{missed:#?}");
}

/// Gradients belong to whoever has the parameters, and it is said that they are gradients.
#[test]
fn gradients_are_held_by_whoever_has_the_parameters() {
    let [graphs, cycles] = ["graphs_of_gradients", "copies_with_graphed_gradients"];
    let reports = reports(&Folder::new("gradients"), &["gradients_of_experts", graphs, cycles]);
    let held = |report, names: [&str; 2], remedy: &str| {
        let finding = largest(report);
        let (name, details) = holder(finding);
        assert!(names.iter().any(|n| name.starts_with(n)) && details["gradient"] == true, "{finding:#}");
        assert!(finding["remedy"].as_str().is_some_and(|r| r.starts_with(remedy)), "{finding:#}");
        (details.clone(), finding.clone())
    };
    let (details, finding) = held(&reports[0], ["experts, a local", "ModuleList."], "zero_grad()");
    assert_eq!(details["owner"], "module", "{details:#}");
    assert_eq!((&finding["certainty"], &finding["kept_at"]), (&"growing".into(), &Value::Null));
    // A backward that creates a graph gives the gradients all graphs of before.
    let (details, finding) = held(&reports[1], ["net, a local", "Linear."], "create_graph=True");
    assert_eq!((&details["graph"], &finding["kept_at"]["line"]), (&true.into(), &marked(graphs).into()));
    // Where the tensors are the job's no more, they and their gradients are in cycles that nobody can be asked for.
    let finding = largest(&reports[2]);
    assert_eq!(finding["kept_at"]["line"], marked(cycles), "{finding:#}");
}

/// The last error of a chain has all the others, and what their frames have.
#[test]
fn an_error_that_came_after_others_holds_what_they_hold() {
    let report = reports(&Folder::new("errors"), &["errors_after_errors"]).remove(0);
    let finding = largest(&report);
    assert_eq!(holder(finding).0, "last, a local of errors_after_errors", "{:#}", finding["held_by"]);
    assert_eq!(finding["kept_at"]["source"], "last = e", "{finding:#}");
}

#[test]
fn what_is_replaced_or_taken_back_does_not_grow() {
    let report = reports(&Folder::new("twins"), &["healthy_twins"]).remove(0);
    assert_eq!(report["verdict"], "clean", "{report:#}");
}

#[test]
fn views_and_what_has_its_name_at_run_time() {
    all_kept(&[
        ("attributes_of_a_class_of_its_own", "features, a local of attributes_of_a_class_of_its_own"),
        ("lists_by_name", "Metric."),
        ("dictionaries_in_one_that_is_remade", "kept, a local of dictionaries_in_one_that_is_remade"),
        // Nobody can be asked for it: the line that makes it says so itself.
        ("blocks_that_are_made_anew", "nobody"),
        ("cached_properties", "samples, a local of cached_properties"),
    ]);
}

#[test]
fn hooks_of_tensors_and_queues_of_objects_in_a_list() {
    all_kept(&[
        ("hooks_of_a_parameter", "Parameter._backward_hooks"),
        ("hooks_that_are_objects", "Parameter._backward_hooks"),
        ("hooks_of_a_layer", "Linear._forward_hooks"),
        ("list_that_a_hook_fills", "gradients, a local of list_that_a_hook_fills"),
        ("queues_of_sinks_in_a_list", "Sink.inbox"),
    ]);
}

#[test]
fn states_by_way_of_another_name_and_methods_and_buffers_under_ever_new_ones() {
    all_kept(&[
        ("state_by_way_of_another_name", ""),
        ("fast_weights", ""),
        ("method_that_an_attribute_has", "Recorder.samples"),
        ("buffers_of_a_module", "Snapshots._buffers"),
    ]);
}

#[test]
fn states_of_which_there_are_many_and_parameters_that_are_added() {
    all_kept(&[
        ("states_in_a_list", "states, a local of states_in_a_list"),
        ("states_by_name", "states, a local of states_by_name"),
        ("states_of_many_objects", "workers, a local of states_of_many_objects"),
        ("heads_of_tasks", ""),
    ]);
}

#[test]
fn tensors_in_a_chain_capsules_and_a_method_of_what_has_no_name() {
    all_kept(&[
        ("tensors_that_have_the_one_before", "Tracker.last"),
        ("capsules", "given, a local of capsules"),
        ("method_of_a_list_without_a_name", "write, a local of method_of_a_list_without_a_name"),
    ]);
}

#[test]
fn functions_around_functions() {
    all_kept(&[
        ("wrapped_again_and_again", "Layer.forward"),
        ("partials_of_partials", "last, a local of partials_of_partials"),
    ]);
}

/// What has as many entries as before, and these are tensors, keeps nothing of what grows; where its entries grow, their own statement is told.
#[test]
fn what_grows_is_kept_by_what_gets_more_entries() {
    all_kept(&[
        ("list_beside_a_ring", "pinned, a local of list_beside_a_ring"),
        ("what_leaves_a_pool", "fame, a local of what_leaves_a_pool"),
        ("lists_in_a_cache_that_is_full", ""),
        ("optimizers_with_a_loaded_state", "trials, a local of optimizers_with_a_loaded_state"),
    ]);
}

#[test]
fn what_is_freed_only_as_the_job_ends_was_not_freed_while_it_was_looked_up() {
    let folder = Folder::new("futures");
    let report = reports(&folder, &["futures"]).remove(0);
    let held_by = &largest(&report)["held_by"];
    assert!(held_by["reason"].as_str().is_some_and(|r| !r.contains("freed")), "{held_by:#}");
}

/// Parameters are replaced in a group of an optimizer, whose state for the old ones stays: that is torch's line, and no other is told.
#[test]
fn where_no_statement_of_the_users_keeps_it_none_is_named() {
    let folder = Folder::new("none");
    let report = reports(&folder, &["stale_state"]).remove(0);
    let findings = report["processes"][0]["findings"].as_array().expect("findings");
    assert!(!findings.is_empty() && findings.iter().all(|f| f["kept_at"].is_null()), "{findings:#?}");
}

/// Every count says when it was taken, and in which step.
#[test]
fn counts_say_in_which_step_they_were_taken() {
    let folder = Folder::new("counts");
    let report = reports(&folder, &["deque_without_end"]).remove(0);
    let (_, holder) = holder(largest(&report));
    let steps = report["processes"][0]["steps"].as_u64().expect("steps");
    let one = |c: &Value| (c["step"].as_u64().unwrap_or(0), c["entries"].as_u64().unwrap_or(0));
    let counts: Vec<(u64, u64)> = holder["counts"].as_array().expect("counts").iter().map(one).collect();
    assert!(one(holder).0 <= counts[0].0, "{holder:#}");
    // One entry a step, which is put there before the step ends.
    let fits = |&(step, entries): &(u64, u64)| (1..=steps + 1).contains(&step) && entries.abs_diff(step) <= 2;
    assert!(fits(&one(holder)) && counts.len() > 1 && counts.iter().all(fits), "{holder:#}");
}

#[test]
fn what_is_bounded_says_so_and_what_is_emptied_was_seen_to_be() {
    let folder = Folder::new("bounded");
    let cases = [
        ("bounded_deque", "maxlen", 1000),
        ("bounded_cache", "maxsize", 500),
        ("bounded_queue", "maxsize", 400),
        ("class_made_of_a_queue", "maxsize", 400),
        ("bounded_deques_by_key", "maxlen", 600),
    ];
    let reports = reports(&folder, &cases.map(|(case, ..)| case));
    for ((case, kind, entries), report) in cases.into_iter().zip(&reports) {
        let (name, holder) = holder(largest(report));
        assert_eq!(holder["bound"]["kind"], kind, "{case}: {name}: {holder:#}");
        assert_eq!(holder["bound"]["entries"], entries, "{case}: {name}: {holder:#}");
        let counts = holder["counts"].as_array().expect("counts");
        assert!(counts.len() > 1 && holder["reachable"] == true, "{case}: {holder:#}");
        assert_eq!(largest(report)["certainty"], "bounded", "{case}");
    }
}

#[test]
fn what_grows_inside_the_entries_of_a_bounded_container_is_not_bounded() {
    let folder = Folder::new("inside");
    let cases = [("lists_in_a_bounded_deque", "maxlen", 50), ("lists_in_a_bounded_cache", "maxsize", 4)];
    let reports = reports(&folder, &cases.map(|(case, ..)| case));
    for ((case, kind, entries), report) in cases.into_iter().zip(&reports) {
        let (name, holder) = holder(largest(report));
        assert_eq!(holder["bound"]["kind"], kind, "{case}: {name}: {holder:#}");
        assert_eq!(holder["bound"]["entries"], entries, "{case}: {name}: {holder:#}");
        let found = largest(report);
        assert_eq!(
            (&found["certainty"], &report["verdict"]),
            (&"growing".into(), &"growing".into()),
            "{case}"
        );
        assert_eq!(found["bound"], Value::Null, "{case}");
    }
}

/// A job prints what it prints by itself and ends with its status, also where it ends by an exception.
#[test]
fn the_end_of_a_job_is_its_own_with_a_last_question() {
    let folder = Folder::new("ends");
    for (source, status, said) in [
        ("raise SystemExit(7)", 7, "bye 40\n"),
        ("raise ValueError('x')", 1, "bye 40\n"),
        ("import os; os._exit(3)", 3, ""),
        ("pass", 0, "bye 40\n"),
    ] {
        let text = format!(
            "import atexit, torch\natexit.register(lambda: print('bye', len(kept)))\n\
             net = torch.nn.Linear(64, 64).cuda()\nopt = torch.optim.SGD(net.parameters(), 1e-3)\nkept = []\n\
             for i in range(40):\n    loss = net(torch.randn(64, 64, device='cuda')).mean()\n    loss.backward()\n    \
             opt.step()\n    opt.zero_grad()\n    kept.append(torch.randn(64, 1024, device='cuda'))\n{source}\n"
        );
        std::fs::write(folder.join("ends.py"), text).expect("written");
        let mut job = Command::new(command());
        job.arg("run").arg("-o").arg(folder.join(&format!("{status}"))).arg("--");
        job.arg(python()).arg(folder.join("ends.py")).env("STRANDLINE_PROBE", "leaks");
        let output = job.output().expect("the command starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{source}");
        assert_eq!(output.status.code(), Some(status), "{source}");
    }
}

/// A package in a folder of `PYTHONPATH` that pip filled: its lines are not the user's own, so the user's line that calls it is told, and
/// is the statement that keeps what the package keeps; without pip's mark its lines are the user's.
#[test]
fn lines_of_a_package_that_pip_put_beside_the_usual_folders_are_not_the_users() {
    let folder = Folder::new("target");
    let (package, mark) = (folder.join("libs/kept"), folder.join("libs/kept-1.0.dist-info"));
    std::fs::create_dir_all(&package).expect("a folder");
    let text = "import torch\nall = []\ndef layer():\n    all.append(torch.zeros(1 << 20, device='cuda'))\n";
    std::fs::write(package.join("__init__.py"), text).expect("a file");
    let text = "import kept, torch\nw = torch.zeros(8, device='cuda', requires_grad=True)\no = torch.optim.SGD([w])\n\
                for _ in range(60):\n    kept.layer()\n    w.sum().backward()\n    o.step()\n";
    std::fs::write(folder.join("train.py"), text).expect("a file");
    let told = |to: &str| {
        let mut job = Command::new(command());
        job.args(["run", "-o"]).arg(folder.join(to)).arg("--").arg(python()).arg("train.py");
        job.current_dir(folder.path()).env("PYTHONPATH", folder.join("libs"));
        assert!(job.output().expect("the command starts").status.success());
        let report = report(&folder.join(to));
        let finding = largest(&report);
        let yours = &finding["sites"][0]["your_line"];
        let file = yours["file"].as_str().and_then(|f| f.rsplit('/').next()).unwrap_or_default();
        (format!("{file}:{}", yours["line"]), finding["kept_at"]["line"].clone())
    };
    assert_eq!(told("plain"), ("__init__.py:4".to_owned(), 4.into()));
    std::fs::create_dir_all(mark).expect("a folder");
    assert_eq!(told("installed"), ("train.py:5".to_owned(), 5.into()));
}
