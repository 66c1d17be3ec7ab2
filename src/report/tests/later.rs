//! What is said of a past step whose recording goes on.

use super::job::{Job, MIB, as_known};
use super::*;

/// The report as of the end of step 20, of a job that is judged anew after what `then` does.
fn at_step_20(then: impl Fn(&mut Job)) -> (String, Value) {
    let mut job = Job::new();
    job.asks = false;
    let early = job.train(20, 0, 64 * MIB).judged(as_known, Ended::Exit);
    then(&mut job);
    let late = job.judged(as_known, Ended::Exit);
    let whole = Some(Box::new(late.process()));
    let r = Report {
        processes: vec![Process { at_step: Some(20), whole, ..early.process() }],
        ..Report::default()
    };
    (one_line(&r), value(&r))
}

#[test]
fn growth_that_ended_after_the_step_is_said_to_have_ended() {
    let (text, json) = at_step_20(|job| _ = job.train(30, 0, 0));
    assert!(text.contains("strandline: GROWING. Memory grows by 64 MiB every step"), "{text}");
    let verdict = "as of the end of step 20; at the end of the recording (step 50), it is NO LEAK.";
    assert!(text.contains(verdict), "{text}");
    assert!(text.contains("later at the end of the recording (step 50), this had stopped growing"), "{text}");
    assert!(!text.contains("a leak that you should fix") && !text.contains(" try "), "{text}");
    let process = &json["processes"][0];
    assert_eq!((&process["at_end"]["steps"], &process["at_end"]["verdict"]), (&json!(50), &json!("clean")));
    assert_eq!((&process["at_step"], &process["findings"][0]["at_end"]), (&json!(20), &json!("ended")));
}

#[test]
fn growth_that_goes_on_after_the_step_is_said_to_go_on() {
    let (text, json) = at_step_20(|job| _ = job.train(30, 0, 64 * MIB));
    assert!(
        text.contains("as of the end of step 20; at the end of the recording (step 50), it is the same."),
        "{text}"
    );
    assert!(text.contains("later at the end of the recording (step 50), it is still GROWING, "), "{text}");
    assert!(text.contains(" try "), "{text}");
    assert_eq!(json["processes"][0]["findings"][0]["at_end"], "growing");
}

#[test]
fn of_the_last_step_nothing_came_later() {
    let (text, json) = at_step_20(|_| {});
    assert!(!text.contains("at the end of the recording"), "{text}");
    assert_eq!(json["processes"][0].get("at_end"), None);
}
