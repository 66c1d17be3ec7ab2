//! What is said where the host killed a process, or strandline may have.

use super::*;
use crate::detect::{Death, self_fault, verdict_after_fault};
use crate::event::{AtWork, HostKiller};

#[test]
fn the_host_killed_it() {
    let j = Job::new().train(20, 0, 0).judged(as_known, Ended::Signal(9));
    reads("killed", &ended(Process { killer: HostKiller::Killed, ..j.process() }, 137));
}

/// Nobody saw who sent it: what is known is who did not.
#[test]
fn who_sends_sigkill_is_told_where_nobody_saw_it() {
    let j = Job::new().train(20, 0, 0).judged(as_known, Ended::Signal(9));
    let said = |p: Process<'_>, exit| one_line(&Report { processes: vec![p], exit, ..Report::default() });
    let text = said(j.process(), None);
    let words = "killed SIGKILL usually comes from outside the job: from a scheduler ";
    assert!(
        text.contains(words) && text.contains(" it may also come from Linux's out-of-memory killer, "),
        "{text}"
    );
    let text = said(Process { killer: HostKiller::Spared, ..j.process() }, None);
    assert!(text.contains(words) && text.contains("it was not Linux's out-of-memory killer"), "{text}");
    let alert = Some(Exit { status: 82, own: false });
    let killed = Process { killer: HostKiller::Killed, ..j.process() };
    let segfault = Process { ended: Ended::Signal(11), ..j.process() };
    for text in [said(j.process(), alert), said(killed, None), said(segfault, None)] {
        assert!(!text.contains("SIGKILL usually"), "{text}");
    }
}

/// A container that is too small is not a machine that is too small.
#[test]
fn the_limit_that_the_job_reached_is_told_from_a_machine_without_memory() {
    let j = Job::new().train(20, 0, 0).judged(as_known, Ended::Signal(9));
    let said = |killer| {
        let processes = vec![Process { killer, ..j.process() }];
        one_line(&Report { processes, ..Report::default() })
    };
    let text = said(HostKiller::KilledAtLimit { limit: Some(16 << 30) });
    let words = " KILLED BY THE HOST. The job's control group (for example, its container) reached its limit of host memory (16.0 GiB), which is RAM, ";
    assert!(text.contains(words), "{text}");
    let text = said(HostKiller::KilledAtLimit { limit: None });
    assert!(text.contains(" reached its limit of host memory, which is RAM, not GPU memory, and "), "{text}");
    assert!(!said(HostKiller::Killed).contains(" its limit "));
}

/// Killed is what a person hears first; a program, and the gate, the gravest verdict.
#[test]
fn the_host_killed_one_and_another_leaks() {
    let [well, leaks] = [0, 1].map(|i| rank(i, 2, i == 1));
    let killed = Process { killer: HostKiller::Killed, ended: Ended::Signal(9), ..well.process() };
    let r = Report { processes: vec![killed, leaks.process()], exit: None, ..Report::default() };
    let text = one_line(&r);
    assert!(text.starts_with("strandline: KILLED BY THE HOST") && text.contains("LEAK"), "{text}");
    let value = value(&r);
    let reason = value["reason"].as_str().unwrap();
    assert_eq!(
        (&value["verdict"], reason.starts_with("rank 1: memory grows by 288 MiB")),
        (&json!("leak"), true),
        "{reason}"
    );
}

/// What ended a job is what a person hears first; what is known of its memory follows.
#[test]
fn an_error_of_cuda_leads_whatever_is_said_of_memory() {
    for (steps, stash, words, outcome) in [
        (4, 0, "It was not judged whether the job leaks: 4 steps; at least 12 are", Outcome::Unknown),
        (
            20,
            0,
            "There was no leak until then: no line of code kept more and more GPU memory",
            Outcome::Clean,
        ),
        (20, STASH[0], "The job also leaks: memory grows by 288 MiB every step", Outcome::Leak),
    ] {
        let mut j = Job::new();
        j.train(steps, stash, 0);
        j.event(Body::Failed(FAULT));
        let j = j.judged(as_known, Ended::Exit);
        let r = Report { processes: vec![j.process()], exit: None, ..Report::default() };
        let text = one_line(&r);
        let first = format!("strandline: CUDA ERROR. In step {} (", steps + 1);
        let what = "), CUDA reported a failed assertion in a kernel on GPU 0: cudaDeviceSynchronize returned error 710, and every later CUDA call failed too. ";
        assert!(text.starts_with(&first) && text.contains(what) && text.contains(words), "{text}");
        assert!(value(&r)["verdict"] == json!(outcome.name()), "a program hears of memory");
    }
}

/// What is said of it where it died of a fault in one of our hooks.
fn faulty(p: Process<'_>) -> (Verdict, Process<'_>) {
    let (death, at_work) = (Death::Signal(11), [AtWork::Hook("cudaMemGetInfo")]);
    let verdict = verdict_after_fault(p.verdict.clone(), death, &at_work);
    (verdict, Process { self_fault: self_fault(death, &at_work), ended: Ended::Signal(11), ..p })
}

#[test]
fn strandline_may_have_failed() {
    let j = Job::new().train(20, 0, 0).judged(as_known, Ended::Signal(11));
    let (verdict, p) = faulty(j.process());
    reads("failed", &ended(Process { verdict: &verdict, ..p }, 139));
}

/// It is what a person hears first, of whichever process; what was found on the GPU stands.
#[test]
fn strandline_may_have_failed_in_one_and_it_leaks() {
    let jobs = [0, 1].map(|i| rank(i, 2, true));
    let killed = Process { killer: HostKiller::Killed, ..jobs[0].process() };
    let r = Report { processes: vec![killed, faulty(jobs[1].process()).1], exit: None, ..Report::default() };
    let text = one_line(&r);
    assert!(
        text.starts_with("strandline: STRANDLINE MAY HAVE FAILED in cudaMemGetInfo: a thread of rank 1 was"),
        "{text}"
    );
    assert!(text.contains("On the GPU: memory grows by 288 MiB every step"), "{text}");
    assert_eq!(value(&r)["processes"][1]["failed_in"], "cudaMemGetInfo");
}
