//! Threads that come and go, and training that does not run on the main one.

use crate::support::{Folder, Recording};
use crate::{job, same_with_and_without};
use std::collections::BTreeMap;
use strandline::event::Body;

#[test]
fn two_hundred_short_threads_and_forty_at_once() {
    let folder = Folder::new("threads");
    let ran = same_with_and_without(&folder, "threads.py", &[]).succeeded();
    let recording = Recording::read(&ran.recording()).whole();
    let mut made: BTreeMap<u64, u32> = BTreeMap::new();
    recording.allocated().into_iter().for_each(|s| *made.entry(s).or_default() += 1);
    for n in 0..200u64 {
        let expected = if n < 40 { 2 } else { 1 };
        assert_eq!(made.get(&(1024 * (n + 1))), Some(&expected), "thread {n}");
    }
    let (mut allocated, mut freed) = (0u64, 0u64);
    for e in &recording.events {
        match &e.body {
            Body::Alloc(b) => allocated += b.size.0,
            Body::FreeCompleted(b) => freed += b.size.0,
            _ => {}
        }
    }
    assert_eq!(allocated, freed);
}

#[test]
fn steps_are_found_where_main_only_waits() {
    let folder = Folder::new("worker");
    let ran = same_with_and_without(&folder, "worker_training.py", &[]).succeeded();
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!(recording.count(|b| matches!(b, Body::OptimizerBegin(_))), 10);
    assert_eq!(recording.count(|b| matches!(b, Body::OptimizerEnd(_))), 10);
    assert_eq!(recording.count(|b| matches!(b, Body::BackwardEnd { nested: false })), 10);
}

#[test]
fn phases_are_those_of_the_thread_that_allocates() {
    let folder = Folder::new("phases");
    let ran = job(&folder, "plain.py", &[]).run_imported().succeeded();
    let recording = Recording::read(&ran.recording()).whole();
    let phase = |is: fn(&strandline::event::Phase) -> bool| {
        recording.count(|b| matches!(b, Body::Alloc(b) if is(&b.phase)))
    };
    assert!(phase(|p| p.backward) > 0);
    assert!(phase(|p| p.optimizer && p.no_grad) > 0, "the optimizer's state");
    assert!(phase(|p| !p.backward && !p.optimizer && !p.no_grad) > 0, "the forward");
}
