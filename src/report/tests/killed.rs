//! What is said where the host killed a process, or strandline may have.

use super::*;

#[test]
fn the_host_killed_it() {
    let mut j = Job::new(0);
    j.segment(16 * GIB);
    j.train(4, 0);
    let v = verdict(Outcome::Clean, "nothing grows over 4 steps");
    let mut p = Process::new(&j.replay, &j.names, &v, &[]);
    p.killed_by_host = true;
    p.ended = Ended::Signal(9);
    reads(
        "killed",
        &Report { processes: vec![p], exit: Some(Exit { status: 137, own: true }), next: Vec::new() },
    );
}

/// Killed is what a person hears first; a program, and the gate, the gravest verdict.
#[test]
fn the_host_killed_one_and_another_leaks() {
    let mut jobs: Vec<Job> = (0..2).map(Job::new).collect();
    for (i, j) in jobs.iter_mut().enumerate() {
        j.segment(16 * GIB);
        j.train(12, if i == 1 { 100 * MIB } else { 0 });
    }
    let leak = verdict(Outcome::Leak, "growth");
    let clean = verdict(Outcome::Clean, "nothing grows over 12 steps");
    let findings = [jobs[1].leak()];
    let mut killed = Process::new(&jobs[0].replay, &jobs[0].names, &clean, &[]);
    killed.killed_by_host = true;
    killed.ended = Ended::Signal(9);
    let processes = vec![killed, Process::new(&jobs[1].replay, &jobs[1].names, &leak, &findings)];
    let r = Report { processes, exit: None, next: Vec::new() };
    let mut text = Vec::new();
    text::write(&mut text, &r, Style::default()).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("strandline: KILLED BY THE HOST"), "{text}");
    assert!(text.contains("LEAK"), "{text}");
    let value = json::value(&r);
    assert_eq!((&value["verdict"], &value["reason"]), (&json!("leak"), &json!("rank 1: growth")));
}

/// What ended a job is what a person hears first; what is known of its memory follows.
#[test]
fn an_error_of_cuda_leads_whatever_is_said_of_memory() {
    for (outcome, words) in [
        (Outcome::Unknown, "Whether it leaks was not judged: too few steps."),
        (Outcome::Clean, "No leak: too few steps."),
        (Outcome::Leak, "It leaks besides: Too few steps."),
    ] {
        let mut j = Job::new(0);
        j.segment(16 * GIB);
        j.train(4, 0);
        let stack = StackId(0);
        let fault = Fault { call: 31, status: 710, device: DeviceId(0), stream: StreamHandle(0), stack };
        j.event(Body::Failed(fault));
        let v = verdict(outcome, "too few steps");
        let p = Process::new(&j.replay, &j.names, &v, &[]);
        let r = Report { processes: vec![p], exit: None, next: Vec::new() };
        let mut text = Vec::new();
        text::write(&mut text, &r, Style::default()).unwrap();
        let text = String::from_utf8(text).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let first = "strandline: CUDA ERROR. A failed assertion in a kernel on GPU 0: cudaDeviceSynchronize returned 710 in step 5;";
        assert!(text.starts_with(first) && text.contains(words), "{text}");
        assert!(json::value(&r)["verdict"] == json!(outcome.name()), "a program hears of memory");
    }
}

fn fault() -> SelfFault {
    SelfFault { place: "cudaMemGetInfo".to_owned(), signal: "SIGSEGV", remedy: Some("--stacks none") }
}

#[test]
fn strandline_may_have_failed() {
    let mut j = Job::new(0);
    j.segment(16 * GIB);
    j.train(4, 0);
    let v = verdict(Outcome::Unknown, &fault().to_string());
    let mut p = Process::new(&j.replay, &j.names, &v, &[]);
    p.self_fault = Some(fault());
    p.ended = Ended::Signal(11);
    reads(
        "failed",
        &Report { processes: vec![p], exit: Some(Exit { status: 139, own: true }), next: Vec::new() },
    );
}

/// It is what a person hears first, of whichever process; what was found on the GPU stands.
#[test]
fn strandline_may_have_failed_in_one_and_it_leaks() {
    let mut jobs: Vec<Job> = (0..2).map(Job::new).collect();
    for j in &mut jobs {
        j.segment(16 * GIB);
        j.train(12, 100 * MIB);
    }
    let leak = verdict(Outcome::Leak, "285 MiB more every step since step 1 on GPU 0");
    let findings = jobs.iter().map(|j| [j.leak()]).collect::<Vec<_>>();
    let mut processes: Vec<Process<'_>> =
        jobs.iter().zip(&findings).map(|(j, f)| Process::new(&j.replay, &j.names, &leak, f)).collect();
    processes[0].killed_by_host = true;
    processes[1].self_fault = Some(fault());
    let mut text = Vec::new();
    let r = Report { processes, exit: None, next: Vec::new() };
    text::write(&mut text, &r, Style::default()).unwrap();
    let text = String::from_utf8(text).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.starts_with("strandline: STRANDLINE MAY HAVE FAILED in cudaMemGetInfo: a thread of rank 1 was"),
        "{text}"
    );
    assert!(text.contains("On the GPU: 285 MiB more every step"), "{text}");
    assert_eq!(json::value(&r)["processes"][1]["failed_in"], "cudaMemGetInfo");
}
