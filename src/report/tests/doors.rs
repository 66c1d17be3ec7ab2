//! One judgement, many doors: whatever is printed of a job reads the same object.

use super::*;
use crate::detect::{Certainty, Keeper, Severity};
use crate::event::HostKiller;
use crate::report::held::{HeldBy, Holder, KeptAt};
use crate::report::metrics::Metrics;

fn told(r: &Report<'_>) -> (String, Value, Value) {
    let mut text = Vec::new();
    text::write(&mut text, r, Style { width: 1000, ..Style::default() }).unwrap();
    let passes = r.processes.iter().map(|p| html::Pass::new(p.replay, p.findings)).enumerate().collect();
    let mut page = Vec::new();
    html::write(&mut page, r, passes).unwrap();
    let page = String::from_utf8(page).unwrap();
    let data = page.split_once(r#"type="application/json">"#).unwrap().1.split_once("</script>").unwrap().0;
    let page: Value = serde_json::from_str(data).unwrap();
    (String::from_utf8(text).unwrap(), page, value(r))
}

fn figures(r: &Report<'_>) -> String {
    let mut all = Metrics::default();
    r.processes.iter().for_each(|p| all.add(p, 0));
    all.prometheus()
}

fn known() -> Vec<Known> {
    let file = "/home/u/job/leak.py".into();
    let kept = KeptAt { file, line: 11, source: "hist.append(loss)".into(), remedy: None };
    vec![Known { kept_at: Some(kept), ..Known::default() }]
}

/// One of two ranks leaks: every door names it and says why, in the same words.
#[test]
fn the_rank_that_leaks_is_named_in_every_door() {
    let [well, leaks] = [0, 1].map(|i| rank(i, 2, i == 1));
    let leaking = Process { known: known(), ..leaks.process() };
    let r = Report { processes: vec![well.process(), leaking], ..Report::default() };
    let (text, page, json) = told(&r);
    let first = text.lines().next().unwrap();
    let reason = json["reason"].as_str().unwrap().strip_prefix("rank 1: ").unwrap();
    // The first line names the GPU once, where it says when it is full.
    let begins = format!(
        "strandline: LEAK in 1 of 2 processes, rank 1: {}, kept by `hist.append(loss)` at leak.py:11; GPU 0 would be full after",
        reason.strip_suffix(" on GPU 0").unwrap()
    );
    assert!(first.starts_with(&begins), "{first}\n{begins}");
    assert_eq!(
        format!(
            "strandline: {}{}",
            page["told"]["phrase"].as_str().unwrap(),
            page["told"]["reason"].as_str().unwrap()
        ),
        first
    );
    assert_eq!((&json["verdict"], &json["worst_process"]), (&json!("leak"), &json!(1)));
    assert_eq!(json["processes"][0]["verdict"], "clean");
    let (outcome, why) = r.gated();
    assert_eq!(
        (outcome, why.starts_with(&format!("rank 1: {reason}, kept by"))),
        (Outcome::Leak, true),
        "{why}"
    );
    let rows: Vec<&str> =
        page["told"]["processes"].as_array().unwrap().iter().map(|p| p[1].as_str().unwrap()).collect();
    assert_eq!(rows, ["NO LEAK", "LEAK"]);
    let figures = figures(&r);
    assert!(
        figures
            .lines()
            .any(|l| l.starts_with("strandline_leak_bytes{rank=\"1\"") && l.contains("certainty=\"leak\""))
    );
    assert!(!figures.contains("strandline_leak_bytes{rank=\"0\""));
}

/// A rank that ran out of memory, or that the host ended, hides nothing of another that grows.
#[test]
fn what_grows_in_another_rank_is_said_beside_a_failure() {
    let jobs =
        [0, 1].map(|i| Job::of_rank(i, Some(2)).train(20, 0, i * 64 * MIB).judged(as_known, Ended::Exit));
    let killed = Process { killer: HostKiller::Killed, ..jobs[0].process() };
    let mut r = Report { processes: vec![killed, jobs[1].process()], ..Report::default() };
    let (text, page, json) = told(&r);
    let says = |text: &str| {
        text.contains("ended rank 0.")
            && text.contains("GROWING in rank 1: memory grows by 64 MiB every step")
    };
    assert!(text.starts_with("strandline: KILLED BY THE HOST.") && says(&text), "{text}");
    assert!(says(page["told"]["reason"].as_str().unwrap()), "{page}");
    assert_eq!((r.gated().0, &json["verdict"]), (Outcome::Growing, &json!("growing")));
    // The same of one that ran out of memory: that nothing leaks is not said of the job.
    let oom = out_of_memory(Job::of_rank(0, Some(2)));
    r.processes[0] = oom.process();
    let (text, page, _) = told(&r);
    let first = "strandline: OUT OF MEMORY (step 15 needed 4.4× as much memory as a typical step) in 1 of 2 processes, rank 0: it needed at least";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("GROWING in rank 1: "), "{text}");
    assert_eq!((&page["told"]["phrase"], r.gated().0), (&json!("OUT OF MEMORY"), Outcome::Growing));
}

/// What is suppressed is shown as that, and counts nowhere.
#[test]
fn what_is_suppressed_counts_in_no_door() {
    let leaks = Job::new().train(20, STASH[0], 0).judged(as_known, Ended::Exit);
    let by = |by: Option<&str>| -> Vec<Finding> {
        let of = |f: &Finding| Finding { suppressed_by: by.map(str::to_owned), ..f.clone() };
        leaks.findings.iter().map(of).collect()
    };
    let (suppressed, open) = (by(Some("known.supp:2")), by(None));
    let clean = Verdict::new(
        Outcome::Clean,
        "apart from suppressed findings, no line of code kept more and more GPU memory in 20 steps",
    );
    let of = |findings| Report {
        processes: vec![Process::new(&leaks.replay, &leaks.names, &clean, findings)],
        ..Report::default()
    };
    let (text, page, json) = told(&of(&suppressed));
    assert!(text.starts_with("strandline: NO LEAK. Apart from suppressed findings, no line"), "{text}");
    assert!(
        text.contains("suppressed by known.supp:2, so it is not counted: ") && !text.contains("  LEAK 1"),
        "{text}"
    );
    assert_eq!(json["processes"][0]["findings"][0]["suppressed_by"], "known.supp:2");
    let marked = |page: &Value| {
        let rows = page["charts"][0][0]["table"].as_array().unwrap();
        rows.iter().any(|row| row[6] == 1)
    };
    assert!(!marked(&page) && marked(&told(&of(&open)).1));
    assert!(!figures(&of(&suppressed)).contains("strandline_leak_bytes"));
    assert!(figures(&of(&open)).contains("strandline_leak_bytes"));
    // Beside a rank of which nothing is suppressed the first line says it all the same.
    let well = rank(0, 2, false);
    let (first, second) = (well.process(), Process::new(&leaks.replay, &leaks.names, &clean, &suppressed));
    let (text, page, _) = told(&Report { processes: vec![first, second], ..Report::default() });
    let says = ". Apart from suppressed findings, no line of code kept more and more GPU memory in 20 steps";
    assert!(text.starts_with(&format!("strandline: NO LEAK{says}")), "{text}");
    assert!(page["told"]["reason"].as_str().unwrap().starts_with(says), "{page}");
}

#[test]
fn no_recording_is_not_judged() {
    let r = Report::default();
    let mut out = Vec::new();
    text::write(&mut out, &r, Style::default()).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "strandline: NOT JUDGED (there is no recording of any process).\n"
    );
    assert_eq!(value(&r)["verdict"], "unknown");
}

/// Of a job that runs it is told when the card is full, of one that has ended how far it would have gone; and nothing of what is far.
#[test]
fn a_full_card_is_told_as_far_ahead_as_it_matters() {
    let j = rank(0, 1, true);
    let timed = |seconds_to_oom, grain, low, mid, high, ended| {
        let steps_to_oom = Some(StepsToOom { low, mid, high });
        let findings = [Finding { steps_to_oom, seconds_to_oom, grain, ..j.findings[0].clone() }];
        let p = Process { findings: &findings, ended, ..j.process() };
        let (text, page, _) = told(&Report { processes: vec![p], ..Report::default() });
        let full = page["told"]["reason"]
            .as_str()
            .unwrap()
            .split(if ended == Ended::Running { "; GPU 0 will be full " } else { "; GPU 0 would be full " })
            .nth(1)
            .unwrap()
            .to_owned();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("full {full}")), "{text}");
        full
    };
    let by = |grain, low, mid, high, ended| {
        timed(Some(SecondsToOom { low: 30, mid: 41, high: 50 }), grain, low, mid, high, ended)
    };
    let month = SecondsToOom { low: 2_000_000, mid: 2_600_000, high: 3_000_000 };
    let slow = |ended| timed(Some(month), GrainName::Step, 20_000, 30_000, 40_000, ended);
    let of = |low, mid, high, ended| by(GrainName::Step, low, mid, high, ended);
    // Each second that was counted took a little longer.
    let tick = |low: u64, mid: u64, high: u64, ended| {
        let seconds = SecondsToOom { low, mid, high };
        timed(Some(seconds), GrainName::Tick, low / 2, mid / 2, high / 2, ended)
    };
    for (full, words) in [
        (of(54, 62, 89, Ended::Running), "in about 62 steps (90 % interval 54 to 89), 41 s from now."),
        (
            of(54, 62, 89, Ended::Exit),
            "after about 62 further steps (90 % interval 54 to 89), in 41 s at this rate.",
        ),
        (
            of(54, 62, 89, Ended::Signal(9)),
            "after about 62 further steps (90 % interval 54 to 89), in 41 s at this rate. Signal 9 (SIGKILL) ended the job after step 20.",
        ),
        (
            of(20_000, 30_000, 40_000, Ended::Running),
            "in about 30,000 steps (90 % interval 20,000 to 40,000), 41 s from now.",
        ),
        (
            of(20_000, 30_000, 40_000, Ended::Exit),
            "after about 30,000 further steps (90 % interval 20,000 to 40,000), in 41 s at this rate.",
        ),
        (
            of(54, 62, u64::MAX, Ended::Exit),
            "after about 62 further steps, in 41 s (54 at the earliest, or never if the growth stops) at this rate.",
        ),
        (slow(Ended::Running), "in more than 20,000 steps."),
        (slow(Ended::Exit), "after more than 20,000 further steps at this rate."),
        (of(0, 0, 1, Ended::Exit), "after less than one further step at this rate."),
        (tick(54, 62, 89, Ended::Running), "in about 1 min 2 s (90 % interval 54 s to 1 min 29 s)."),
        (
            tick(4295, 5443, 8352, Ended::Exit),
            "after about 1 h 30 min (90 % interval 1 h 11 min to 2 h 19 min) at this rate.",
        ),
        (tick(700_000, 800_000, u64::MAX, Ended::Exit), "after more than 8 d at this rate."),
    ] {
        assert_eq!(full, words);
    }
}

#[test]
fn what_a_damaged_recording_lacks_is_said_to_be_missing() {
    let mut j = Job::new();
    let _ = (0..20).try_for_each(|_| {
        j.alloc(MIB, MAIN, 0)?;
        j.step(GIB, 0, 0)
    });
    j.give(Item::Meta(json!({ "steps": "snapshot", "probe": true })));
    let judged = j.judged(as_known, Ended::Exit);
    let text = |damage: &[&str]| {
        let damage = damage.iter().map(|d| (*d).to_owned()).collect();
        one_line(&Report { processes: vec![Process { damage, ..judged.process() }], ..Report::default() })
    };
    let whole = text(&[]);
    assert!(whole.contains("by native code") && whole.contains("which gc.collect() frees"), "{whole}");
    assert!(whole.contains("20 steps (as marked in the snapshot)"), "{whole}");
    let torn = text(&["at byte 12596: checksum does not match"]);
    assert!(torn.contains("allocated at an unknown line (part of the recording is missing)"), "{torn}");
    assert!(!torn.contains("by native code") && !torn.contains("gc.collect()"), "{torn}");
    assert!(!torn.contains("the job ended before"), "{torn}");
}

/// Where no stacks were recorded, nobody knows that native code allocated: it is said how a line comes to be known.
#[test]
fn without_stacks_the_report_says_so_and_how_to_record_them() {
    let mut j = Job::new();
    let _ = (0..20).try_for_each(|_| {
        j.alloc(MIB, MAIN, 0)?;
        j.step(GIB, 0, 0)
    });
    let told_with = |j: &mut Job| {
        let judged = j.judged(as_known, Ended::Exit);
        let (text, _, json) = told(&Report { processes: vec![judged.process()], ..Report::default() });
        let remedy = json["processes"][0]["findings"][0]["remedy"].as_str().unwrap().to_owned();
        (text.split_whitespace().collect::<Vec<_>>().join(" "), remedy)
    };
    let (text, remedy) = told_with(&mut j);
    assert!(text.contains("by native code") && !remedy.contains("--stacks"), "{text}");
    j.give(Item::Meta(json!({ "stacks": "none" })));
    let (text, remedy) = told_with(&mut j);
    assert!(
        text.contains("(--stacks none: no stacks were recorded)") && !text.contains("native code"),
        "{text}"
    );
    assert!(remedy.contains("without --stacks none") && !remedy.contains("detach"), "{remedy}");
    // Where there is no Python nothing was left out: nobody gave that option.
    j.give(Item::Meta(json!({ "stacks": "none", "python": null })));
    let (text, remedy) = told_with(&mut j);
    assert!(text.contains("there is no Python in this process") && !text.contains("--stacks none"), "{text}");
    assert!(remedy.contains("--stacks native") && !remedy.contains("Python"), "{remedy}");
    j.give(Item::Meta(json!({ "stacks": "native" })));
    let (_, remedy) = told_with(&mut j);
    assert!(remedy.contains("limit their number") && !remedy.contains("--stacks"), "{remedy}");
}

/// Reference cycles that keep memory are no riddle where the job has switched Python's collector off.
#[test]
fn that_the_collector_is_off_is_told_where_cycles_may_keep_the_memory() {
    let mut j = Job::new();
    j.train(20, 0, 64 * MIB);
    let remedy = |j: &mut Job| {
        let judged = j.judged(as_known, Ended::Exit);
        let of_an_object =
            Holder { name: "Node.block".into(), kind: "Tensor".into(), blocks: 9, ..Holder::default() };
        let known = Known { held_by: HeldBy::Found(vec![of_an_object]), ..Known::default() };
        let process = Process { known: vec![known], ..judged.process() };
        let (_, _, json) = told(&Report { processes: vec![process], ..Report::default() });
        json["processes"][0]["findings"][0]["remedy"].as_str().unwrap_or_default().to_owned()
    };
    assert!(remedy(&mut j).starts_with("call gc.collect() every few steps"));
    j.give(Item::Meta(json!({ "holders": [{ "number": 1, "collector": "off", "findings": [] }] })));
    let off = "the job has switched Python's garbage collector off (gc.disable()): call gc.collect()";
    assert!(remedy(&mut j).starts_with(off), "{}", remedy(&mut j));
}

/// To clear a model or an optimizer would end the training; and the statement of another holder that has a good part is told, too.
#[test]
fn a_module_is_not_to_be_cleared_and_a_second_statement_is_told() {
    let judged = Job::new().train(20, 0, 64 * MIB).judged(as_known, Ended::Exit);
    let told_with = |known: Known| {
        let process = Process { known: vec![known], ..judged.process() };
        let (text, _, json) = told(&Report { processes: vec![process], ..Report::default() });
        let remedy = json["processes"][0]["findings"][0]["remedy"].as_str().unwrap_or_default().to_owned();
        (text, remedy)
    };
    let of_name = |name: &str, part: Option<&str>, graph| {
        let part = part.map(str::to_owned);
        let holder = Holder { name: name.into(), kind: "dict".into(), part, graph, ..Holder::default() };
        told_with(Known { held_by: HeldBy::Found(vec![holder]), ..Known::default() }).1
    };
    let of = |part, graph| of_name("Model._modules", part, graph);
    let list = of_name("__main__.models", Some("module"), false);
    assert!(list.contains("clear their container"), "{list}");
    assert!(of(None, false).contains("clear their container"), "{}", of(None, false));
    assert!(of(Some("module"), false).starts_with("remove the modules"), "{}", of(Some("module"), false));
    assert!(of(Some("optimizer"), false).contains("param_groups"), "{}", of(Some("optimizer"), false));
    assert!(of(Some("module"), true).contains(".detach()"), "{}", of(Some("module"), true));
    let other =
        KeptAt { line: 9, source: "masks.append(mask)".into(), ..known()[0].kept_at.clone().unwrap() };
    let (text, _) = told_with(Known { kept_too: vec![(other, 0.5)], ..known().remove(0) });
    let (first, second) = (
        "kept at    your leak.py:11: hist.append(loss)",
        "and 50 % of it at your leak.py:9: masks.append(mask)",
    );
    assert!(text.contains(first) && text.contains(second), "{text}");
    let of = |source: &str, remedy: &str| KeptAt {
        source: source.into(),
        remedy: Some(remedy.into()),
        ..known()[0].kept_at.clone().unwrap()
    };
    let remedy = |others: Vec<(KeptAt, f64)>| {
        let first = Some(of("self.a.append(x)", "call self.a.clear() and self.b.clear()"));
        told_with(Known { kept_at: first, kept_too: others, ..known().remove(0) }).1
    };
    let other = |line, source, remedy| (KeptAt { line, ..of(source, remedy) }, 0.3);
    let several = vec![
        other(8, "self.b.append(y)", "call self.b.clear()"),
        other(9, "masks[i] = mask", "call masks.clear()"),
        other(10, "grads += [grad]", "call grads.clear()"),
    ];
    let (first, rest) =
        ("call self.a.clear() and self.b.clear()", "call masks.clear(); at line 10: call grads.clear()");
    assert_eq!(
        remedy(several),
        format!("{first}; at line 9: {rest}"),
        "what is told already is not told again"
    );
}

#[test]
fn a_second_statement_is_told_to_programs() {
    let judged = rank(0, 1, true);
    let at = |line: u32, source: &str| KeptAt {
        file: "/home/u/job/leak.py".into(),
        line,
        source: source.into(),
        remedy: None,
    };
    let (kept_at, kept_too) = (Some(at(11, "hist.append(loss)")), vec![(at(9, "masks.append(mask)"), 0.25)]);
    let known = Known { kept_at, kept_too, ..Known::default() };
    let process = Process { known: vec![known], ..judged.process() };
    let told = value(&Report { processes: vec![process], ..Report::default() });
    assert_eq!(
        told["processes"][0]["findings"][0]["kept_too"],
        json!([{ "file": "/home/u/job/leak.py", "line": 9, "source": "masks.append(mask)", "share": 0.25 }])
    );
}

#[test]
fn what_helps_a_search_that_the_end_of_the_job_cut_short_is_told() {
    let judged = rank(0, 1, true);
    let held_by = HeldBy::Skipped("the job ended before the search did".into());
    let said = |known: Vec<Known>| {
        one_line(&Report { processes: vec![Process { known, ..judged.process() }], ..Report::default() })
    };
    let text = said(vec![Known { held_by: held_by.clone(), ..Known::default() }]);
    assert!(text.contains("held by unknown: the job ended before strandline had looked for it"), "{text}");
    // The statement says what keeps it.
    for held_by in [held_by, HeldBy::NotFound("no name".into()), HeldBy::NotRun] {
        let text = said(known().into_iter().map(|k| Known { held_by: held_by.clone(), ..k }).collect());
        assert!(text.contains("kept at") && !text.contains("held by"), "{held_by:?}: {text}");
    }
}

#[test]
fn a_source_that_was_modified_since_is_told_in_every_door() {
    let judged = rank(0, 1, true);
    let modified = Some("/home/u/job/leak.py".to_owned());
    let process = Process { known: vec![Known { modified, ..Known::default() }], ..judged.process() };
    let (text, page, json) = told(&Report { processes: vec![process], ..Report::default() });
    let said = "kept at    unknown: your leak.py was modified after the run began, so it was not searched";
    assert!(text.contains(said), "{text}");
    let of = |report: &Value| report["processes"][0]["findings"][0]["modified_source"].clone();
    assert_eq!(
        (of(&json), of(&page["report"])),
        (json!("/home/u/job/leak.py"), json!("/home/u/job/leak.py"))
    );
}

/// A deque that would be larger than any GPU ends nowhere; one that is larger than this one does, but memory is full before.
#[test]
fn a_bound_beyond_the_gpu_is_told_and_beyond_every_gpu_is_none() {
    let of = |most: u64| {
        let keeper = Keeper {
            path: "replay".into(),
            kind: "deque".into(),
            bound: Some(most),
            length_then: Some(9),
            length_now: Some(18),
            blocks: 18,
            ..Keeper::default()
        };
        let told = move |_: &Finding| Testimony { keepers: vec![keeper.clone()], ..Testimony::default() };
        Job::new().train(20, 0, 64 * MIB).judged(told, Ended::Exit)
    };
    let said = |most| {
        let judged = of(most);
        let (text, _, _) = told(&Report { processes: vec![judged.process()], ..Report::default() });
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        (judged.verdict.outcome, judged.findings[0].certainty, text)
    };
    let (outcome, certainty, text) = said(100);
    assert_eq!((outcome, certainty), (Outcome::Clean, Certainty::Bounded));
    assert!(text.contains("the growth stops when deque(maxlen=100) is full in step"), "{text}");
    let (outcome, certainty, text) = said(4_000);
    assert_eq!((outcome, certainty), (Outcome::Clean, Certainty::Bounded));
    assert!(text.contains("would be full before that: set a smaller limit"), "{text}");
    let (outcome, certainty, _) = said(1_000_000);
    assert_eq!((outcome, certainty), (Outcome::Growing, Certainty::Growing));
}

/// A container's entries are of the step at which it was looked at, which may have been long before, or after what is reported.
#[test]
fn a_bound_is_told_by_what_was_there_when_its_container_was_looked_at() {
    for looked in [10, 20, 60] {
        let keeper = Keeper {
            path: "replay".into(),
            kind: "deque".into(),
            bound: Some(100),
            length_then: Some(4),
            length_now: Some(looked),
            looked: Some((looked, looked as u32)),
            blocks: 18,
            ..Keeper::default()
        };
        let told = move |_: &Finding| Testimony { keepers: vec![keeper.clone()], ..Testimony::default() };
        let judged = Job::new().train(20, 0, 64 * MIB).judged(told, Ended::Exit);
        let bound = judged.findings[0].bound.as_ref().expect("a bound");
        assert_eq!((bound.bytes.map(|b| b / MIB), bound.at_step), (Some(100 * 64), Some(100)), "{looked}");
    }
}

/// A set of data that is fetched on a stream of its own grows in a container as what was forgotten there does.
#[test]
fn what_a_side_stream_left_in_a_container_that_grows_is_no_leak_by_that_alone() {
    let keeper = Keeper {
        path: "Loader.cache".into(),
        kind: "list".into(),
        length_then: Some(9),
        length_now: Some(18),
        blocks: 18,
        ..Keeper::default()
    };
    let told = |_: &Finding| Testimony { keepers: vec![keeper.clone()], ..Testimony::default() };
    let judged = Job::new().train(20, STASH[0], 0).judged(told, Ended::Exit);
    let finding = &judged.findings[0];
    assert_eq!((finding.kind, finding.certainty), (Kind::LiveAfterStreamExit, Certainty::Growing));
    assert_eq!(judged.verdict.outcome, Outcome::Growing);
}

/// Growth may end by itself: it is time to stop when the device is nearly full. What is a leak does not end.
#[test]
fn growth_is_imminent_when_the_device_is_nearly_full_and_a_leak_with_its_alert() {
    let job = Job::new().train(20, 0, 64 * MIB).judged(as_known, Ended::Exit);
    let of = |certainty, severity, steps, seconds| Finding {
        certainty,
        severity,
        steps_to_oom: Some(StepsToOom { low: steps, mid: steps, high: steps }),
        seconds_to_oom: Some(SecondsToOom { low: seconds, mid: seconds, high: seconds }),
        ..job.findings[0].clone()
    };
    let is = |certainty, severity, steps, seconds| of(certainty, severity, steps, seconds).is_imminent();
    assert!(!is(Certainty::Growing, Severity::Alert, 51, 601));
    assert!(
        is(Certainty::Growing, Severity::Alert, 50, 601) && is(Certainty::Growing, Severity::Alert, 51, 600)
    );
    assert!(is(Certainty::Leak, Severity::Alert, 200, 80_000));
    assert!(
        !is(Certainty::Leak, Severity::Warning, 40, 40) && !is(Certainty::Bounded, Severity::Alert, 40, 40)
    );
}
