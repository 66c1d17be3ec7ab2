//! Advice on made-up jobs of one step after the other.

use super::*;
use crate::event::{
    Addr, Block, Body, Bytes, Event, Frame, Item, Names, Nanos, Phase, StackId, StreamHandle, ThreadId,
};

/// A MiB, the unit of the jobs.
const MIB: u64 = 1 << 20;

/// A job as it allocates and frees.
#[derive(Default)]
struct Job {
    items: Vec<Item>,
    names: Names,
    phase: Phase,
}

impl Job {
    fn push(&mut self, body: Body) {
        let time = Nanos(self.items.len() as u64 * 1000);
        self.items.push(Item::Event(Event { time, thread: ThreadId(0), body }));
    }

    fn block(&self, addr: u64, mib: u64, line: u32) -> Block {
        Block {
            addr: Addr(addr),
            size: Bytes(mib * MIB),
            rounded: Bytes(mib * MIB),
            stream: StreamHandle(0),
            stack: StackId(line),
            phase: self.phase,
            ..Block::default()
        }
    }

    fn alloc(&mut self, addr: u64, mib: u64, line: u32) {
        if self.names.stack(StackId(line)).is_empty() {
            let frame = Frame { file: "/job/train.py".into(), line, function: "f".into() };
            self.names.add_stack(StackId(line), [frame]);
            self.items.push(Item::Stack(StackId(line)));
        }
        let block = self.block(addr, mib, line);
        self.push(Body::Alloc(block));
    }

    fn free(&mut self, addr: u64) {
        let block = self.block(addr, 0, 0);
        self.push(Body::FreeRequested(block));
        self.push(Body::FreeCompleted(block));
    }

    fn backward(&mut self, run: impl FnOnce(&mut Job)) {
        self.push(Body::BackwardBegin { stack: StackId(0), nested: false });
        self.phase.backward = true;
        run(self);
        self.phase.backward = false;
        self.push(Body::BackwardEnd { nested: false });
    }

    fn optimizer(&mut self, run: impl FnOnce(&mut Job)) {
        self.push(Body::OptimizerBegin(1));
        self.phase.optimizer = true;
        run(self);
        self.phase.optimizer = false;
        self.push(Body::OptimizerEnd(1));
    }

    fn advice(&self) -> Vec<(&'static str, u64, u64)> {
        let mut pass = Pass::new([(Default::default(), 512)]);
        self.items.iter().for_each(|i| pass.apply(i, &self.names));
        let (replay, timelines) = pass.finish();
        let source = |f: &Frame| (f.line == 77).then(|| "wide = logits.float()".to_owned());
        let look = Look { timeline: &timelines[0], replay: &replay, names: &self.names, source: &source };
        advise(&look).iter().map(|a| (a.info.name, a.peak.0 / MIB, a.without.0 / MIB)).collect()
    }
}

/// Weights of 100, gradients of 100 that are freed where `late` says, activations of 50.
fn trained(late: bool) -> Job {
    let mut job = Job::default();
    job.alloc(1, 100, 1);
    for _ in 0..6 {
        job.alloc(2, 50, 2);
        if late && job.items.len() > 10 {
            job.free(3);
        }
        job.backward(|j| {
            j.free(2);
            j.alloc(3, 100, 3);
        });
        job.optimizer(|_| ());
        if !late {
            job.free(3);
        }
    }
    job
}

#[test]
fn gradients_that_stay_are_told_with_the_peak_that_they_make() {
    assert_eq!(trained(true).advice(), [("late_zero_grad", 250, 200)]);
    assert_eq!(trained(false).advice(), []);
}

#[test]
fn what_the_next_of_a_line_replaces_is_told_and_a_batch_fetched_in_advance_is_not() {
    let job = |in_advance: bool| {
        let mut job = Job::default();
        job.alloc(1, 100, 1);
        let mut before: Vec<u64> = Vec::new();
        for step in 0..6 {
            job.alloc(10 + step, 60, 2);
            before.push(10 + step);
            if before.len() > if in_advance { 2 } else { 1 } {
                let oldest = before.remove(0);
                job.free(oldest);
            }
            job.backward(|j| {
                j.alloc(3, 20, 3);
                j.free(3);
            });
            job.optimizer(|_| ());
        }
        job
    };
    assert_eq!(job(false).advice(), [("kept_from_step_before", 220, 180)]);
    assert_eq!(job(true).advice(), []);
}

#[test]
fn a_copy_in_a_wider_type_is_told_where_its_line_says_so() {
    let job = |line: u32, keeps: bool| {
        let mut job = Job::default();
        job.alloc(1, 100, 1);
        for _ in 0..6 {
            job.alloc(2, 50, 2);
            job.alloc(3, 100, line);
            if !keeps {
                job.free(2);
            }
            job.alloc(4, 100, 4);
            job.backward(|j| {
                if keeps {
                    j.free(2);
                }
                [3, 4].iter().for_each(|a| j.free(*a));
            });
            job.optimizer(|_| ());
        }
        job
    };
    // The copy goes, and what is computed from it is half as large.
    assert_eq!(job(77, true).advice(), [("wide_copy", 350, 200)]);
    // What it was made from would have to stay in its place.
    assert_eq!(job(77, false).advice(), [("wide_copy", 300, 200)]);
    assert_eq!(job(5, true).advice(), []);
}

#[test]
fn a_workspace_that_a_backward_leaves_is_no_gradient() {
    let mut job = trained(false);
    for _ in 0..4 {
        job.backward(|j| j.alloc(70 + j.items.len() as u64, 30, 3));
        job.optimizer(|_| ());
        job.alloc(2, 200, 2);
        job.free(2);
    }
    assert_eq!(job.advice(), []);
}

#[test]
fn results_that_an_evaluation_collects_are_told_and_its_temporaries_are_not() {
    let job = |collect: bool| {
        let mut job = trained(false);
        job.phase.no_grad = true;
        for n in 0..8 {
            job.alloc(20 + n, 40, 9);
            if !collect && n > 0 {
                job.free(19 + n);
            }
        }
        let left = if collect { 0..8 } else { 7..8 };
        left.for_each(|n| job.free(20 + n));
        job
    };
    assert_eq!(job(true).advice(), [("collected_in_evaluation", 420, 200)]);
    assert_eq!(job(false).advice(), []);
}

#[test]
fn a_peak_without_blocks_is_that_of_each_moment_without_them() {
    let timeline = Timeline { tops: vec![10, 80, 90, 60], ..Timeline::default() };
    assert_eq!(timeline.peak(), (90, 2));
    assert_eq!(timeline.peak_without(&[Cut { from: 2, to: NEVER, bytes: 50 }]), 80);
    assert_eq!(timeline.peak_without(&[Cut { from: 1, to: 3, bytes: 50 }]), 60);
    assert_eq!(timeline.peak_without(&[Cut { from: 3, to: 3, bytes: 50 }]), 90);
}

#[test]
fn each_kind_has_a_name_of_its_own() {
    let mut names: Vec<&str> = kinds().map(|k| k.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), kinds().count());
}
