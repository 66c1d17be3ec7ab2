//! What is said where the host killed a process.

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
