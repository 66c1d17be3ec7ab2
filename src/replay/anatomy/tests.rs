use super::*;
use crate::event::{Addr, DriverMemory, Event, Phase, SegmentOp, StackId, StreamHandle, ThreadId, Totals};

const MIB: u64 = 1 << 20;
const FORWARD: Phase = Phase::from_bits(0);
const BACKWARD: Phase = Phase { backward: true, ..FORWARD };
const OPTIMIZER: Phase = Phase { optimizer: true, ..FORWARD };

/// A training job, event by event; sizes in MiB name the blocks.
#[derive(Default)]
struct Job {
    items: Vec<Item>,
    now: u64,
}

impl Job {
    fn say(&mut self, thread: u16, body: Body) {
        self.now += 1;
        self.items.push(Item::Event(Event { time: Nanos(self.now), thread: ThreadId(thread), body }));
    }
    fn block(addr: u64, mib: u64, phase: Phase) -> Block {
        let size = Bytes(mib * MIB);
        Block { addr: Addr(addr), size, rounded: size, phase, ..Block::default() }
    }
    fn alloc(&mut self, addr: u64, mib: u64, phase: Phase) {
        self.say(u16::from(phase.backward), Body::Alloc(Job::block(addr, mib, phase)));
    }
    fn free(&mut self, addr: u64, mib: u64, phase: Phase) {
        let b = Job::block(addr, mib, phase);
        self.say(u16::from(phase.backward), Body::FreeRequested(b));
        self.say(u16::from(phase.backward), Body::FreeCompleted(b));
    }
    fn reserve(&mut self, mib: u64) {
        self.say(
            0,
            Body::Segment {
                op: SegmentOp::Alloc,
                device: DeviceId(0),
                addr: Addr(1 << 40),
                size: Bytes(mib * MIB),
                stream: StreamHandle(0),
                pool: Default::default(),
            },
        );
    }

    /// One step: activation 3, workspace 5 (the moment), gradient 7, optimizer state 11 in step 1, a leak of
    /// 13.
    fn step(&mut self, n: u64) {
        let leak = 1000 + n;
        self.alloc(3, 3, FORWARD);
        self.alloc(leak, 13, FORWARD);
        self.say(0, Body::BackwardBegin { stack: StackId(0), nested: false });
        self.alloc(7, 7, BACKWARD);
        self.alloc(5, 5, BACKWARD);
        self.free(5, 5, BACKWARD);
        self.free(3, 3, BACKWARD);
        self.say(0, Body::BackwardEnd { nested: false });
        self.say(0, Body::OptimizerBegin(1));
        if n == 1 {
            self.alloc(11, 11, OPTIMIZER);
        }
        self.say(0, Body::OptimizerEnd(1));
        self.free(7, 7, FORWARD);
    }

    fn train(steps: u64) -> Job {
        let mut j = Job::default();
        j.reserve(1000);
        j.alloc(2, 2, FORWARD);
        (1..=steps).for_each(|n| j.step(n));
        j.say(0, Body::Alloc(Job::block(9, 1, FORWARD)));
        j
    }

    fn anatomy(&self, moment: impl Fn(&Replay) -> Moment) -> Anatomy {
        let names = Names::default();
        let mut first = Replay::new();
        for i in &self.items {
            first.apply(i, &names);
        }
        let mut pass = Pass::new(moment(&first));
        for i in &self.items {
            pass.apply(i, &names);
        }
        pass.finish(&|h| h.block.addr.0 >= 1000, &|_, h| {
            (h.block.addr.0 >= 1000).then_some(Class::LeftBehind)
        })
        .expect("reached")
    }
}

fn mib(a: &Anatomy) -> [u64; 7] {
    [a.weights, a.gradients, a.optimizer, a.activations, a.temporaries, a.left_behind, a.other]
        .map(|b| b.0 / MIB)
}

fn classes_sum(a: &Anatomy) {
    let parts = [a.weights, a.gradients, a.optimizer, a.activations, a.temporaries, a.left_behind, a.other];
    assert_eq!(parts.iter().map(|b| b.0).sum::<u64>() + a.before_recording.0, a.allocated.0);
    assert_eq!(a.allocated.0 + a.pending.0 + a.cached.0, a.reserved.0);
}

#[test]
fn every_block_of_a_training_step_finds_its_class() {
    let j = Job::train(4);
    let a = j.anatomy(|r| Moment::of(r.devices().next().unwrap()));
    classes_sum(&a);
    assert_eq!(mib(&a), [2, 7, 11, 3, 5, 4 * 13, 0]);
    assert_eq!((a.step, a.phase, a.cached.0 / MIB), (4, PhaseKind::Backward, 1000 - 80));
    assert_eq!((a.outside, a.libraries, a.free), (None, None, None));
}

#[test]
fn a_model_that_is_being_loaded_is_not_activations() {
    let mut j = Job::default();
    j.reserve(1000);
    (1..=9).for_each(|n| j.alloc(n, 100, FORWARD));
    let last = j.items.len() as u64 - 1;
    (1..=9).for_each(|n| j.free(n, 100, FORWARD));
    let a = j.anatomy(|_| Moment { device: DeviceId(0), event: last, at: At::Event, free: None });
    assert_eq!(mib(&a), [0, 0, 0, 0, 0, 0, 900]);
}

#[test]
fn what_was_there_before_and_what_is_pending_have_their_places() {
    let mut j = Job::train(1);
    j.say(0, Body::FreeRequested(Job::block(9, 1, FORWARD)));
    let size = Bytes(17 * MIB);
    let allocated = Bytes((2 + 11 + 13 + 100 + 17) * MIB);
    let totals = Some(Totals { allocated, reserved: Bytes(1000 * MIB) });
    j.say(0, Body::Alloc(Block { addr: Addr(21), size, rounded: size, totals, ..Block::default() }));
    let last = j.items.len() as u64 - 1;
    let a = j.anatomy(|_| Moment { device: DeviceId(0), event: last, at: At::Event, free: None });
    classes_sum(&a);
    assert_eq!((a.pending.0 / MIB, a.allocated.0 / MIB), (1, 143));
    assert_eq!((a.before_recording.0 / MIB, a.other.0 / MIB), (100, 0));
}

#[test]
fn with_the_driver_it_sums_to_the_device() {
    let mut j = Job::train(2);
    let read = DriverMemory {
        time: Nanos(5),
        device: DeviceId(0),
        total: Bytes(24_000 * MIB),
        free: Bytes(22_200 * MIB),
        process: Some(Bytes(1_500 * MIB)),
    };
    j.items.insert(1, Item::Driver(read));
    let a = j.anatomy(|r| Moment::of(r.devices().next().unwrap()));
    classes_sum(&a);
    let parts = [a.libraries, a.other_processes, a.outside, a.free].map(|b| b.unwrap().0 / MIB);
    assert_eq!(parts, [500, 300, 800, 24_000 - 1_000 - 800]);
}

#[test]
fn a_moment_that_never_came_has_no_anatomy() {
    let j = Job::train(1);
    let mut pass = Pass::new(Moment { device: DeviceId(0), event: 1 << 40, at: At::Event, free: None });
    j.items.iter().for_each(|i| pass.apply(i, &Names::default()));
    assert_eq!(pass.finish(&|_| false, &|_, _| None), None);
}

#[test]
fn out_of_memory_in_the_first_forward_is_not_all_weights() {
    let mut j = Job::default();
    let mut names = Names::default();
    let frame =
        |f: &str| crate::event::Frame { file: "/x/torch/nn/module.py".into(), line: 1, function: f.into() };
    names.add_stack(StackId(1), [frame("Module._call_impl")]);
    j.items.push(Item::Stack(StackId(1)));
    j.alloc(2, 2, FORWARD);
    let size = Bytes(3 * MIB);
    j.say(0, Body::Alloc(Block { addr: Addr(3), size, stack: StackId(1), ..Block::default() }));
    let oom = Body::Oom {
        device: DeviceId(0),
        requested: size,
        free: Bytes(0),
        stream: StreamHandle(0),
        stack: StackId(1),
    };
    j.say(0, oom);
    let mut pass = Pass::new(Moment { device: DeviceId(0), event: 2, at: At::Oom, free: None });
    j.items.iter().for_each(|i| pass.apply(i, &names));
    let a = pass.finish(&|_| false, &|_, _| None).unwrap();
    assert_eq!(mib(&a), [2, 0, 0, 3, 0, 0, 0]);
}

/// A job of four steps whose backward leaves, from the first one, gradients of `kept` MiB that are zeroed but not
/// freed, and an unfreed block of 9 MiB; weights of `weights` MiB, with one state of each in the optimizer.
fn zeroed(weights: &[u64], states: &[u64], kept: &[u64]) -> Job {
    let mut j = Job::default();
    j.reserve(1000);
    (0..).zip(weights).for_each(|(i, mib)| j.alloc(100 + i, *mib, FORWARD));
    for step in 1..=4 {
        j.alloc(3, 3, FORWARD);
        j.say(0, Body::BackwardBegin { stack: StackId(0), nested: false });
        if step == 1 {
            j.alloc(9, 9, BACKWARD);
            (0..).zip(kept).for_each(|(i, mib)| j.alloc(200 + i, *mib, BACKWARD));
        }
        j.free(3, 3, BACKWARD);
        j.say(0, Body::BackwardEnd { nested: false });
        j.say(0, Body::OptimizerBegin(1));
        if step == 1 {
            (0..).zip(states).for_each(|(i, mib)| j.alloc(300 + i, *mib, OPTIMIZER));
        }
        j.say(0, Body::OptimizerEnd(1));
    }
    j.alloc(4, 1, FORWARD);
    j.free(4, 1, FORWARD);
    j
}

/// Weights, gradients, optimizer and others of such a job after its last step.
fn kept(j: &Job) -> [u64; 4] {
    let last = j.items.len() as u64 - 1;
    let a = j.anatomy(|_| Moment { device: DeviceId(0), event: last, at: At::Event, free: None });
    classes_sum(&a);
    [a.weights, a.gradients, a.optimizer, a.other].map(|b| b.0 / MIB)
}

#[test]
fn a_workspace_that_backward_leaves_is_no_gradient_and_zeroed_gradients_are() {
    assert_eq!(kept(&zeroed(&[7, 2, 2], &[], &[2, 7, 2])), [11, 11, 0, 9]);
    // A weight of the workspace's size has a gradient of its own: the second such block is none.
    assert_eq!(kept(&zeroed(&[7, 9], &[], &[9, 7])), [16, 16, 0, 9]);
}

/// Gradients and others in the last backward of such a job whose gradients, of 9 and 7 MiB, are freed with every step.
fn freed(weights: &[u64], states: &[u64]) -> [u64; 2] {
    let mut j = zeroed(weights, states, &[]);
    let last = j.items.len() - 2;
    let mut tail = j.items.split_off(last);
    j.alloc(500, 9, BACKWARD);
    j.alloc(501, 7, BACKWARD);
    j.alloc(6, 1, FORWARD);
    j.free(500, 9, FORWARD);
    j.free(501, 7, FORWARD);
    j.items.append(&mut tail);
    let moment = last as u64 + 2;
    let a = j.anatomy(|_| Moment { device: DeviceId(0), event: moment, at: At::Event, free: None });
    [a.gradients, a.other].map(|b| b.0 / MIB)
}

/// Hopper's cuBLAS workspace (32 MiB) beside an embedding of 16,384 by 512: gradients that are freed have claimed their weights, and
/// two states of a weight allow no second gradient, not even where a frozen weight is as large.
#[test]
fn a_workspace_as_large_as_a_weight_is_no_second_gradient() {
    assert_eq!(freed(&[9, 7], &[9, 9, 7, 7]), [16, 9 + 1]);
    assert_eq!(freed(&[9, 9, 7], &[9, 9, 7, 7]), [16, 9 + 1]);
    assert_eq!(kept(&zeroed(&[9, 7], &[9, 9, 7, 7], &[9, 7])), [16, 16, 32, 9]);
}

#[test]
fn shared_and_frozen_weights_leave_a_workspace_what_it_is() {
    // The weight of 2 is shared: one block, one gradient. That of 5 is frozen, without any.
    assert_eq!(kept(&zeroed(&[2, 5], &[2], &[2])), [7, 2, 2, 9]);
}

#[test]
fn weights_that_are_parts_of_one_block_are_told_by_the_optimizer() {
    assert_eq!(kept(&zeroed(&[11], &[6, 6, 5, 5], &[6, 5])), [11, 11, 22, 9]);
}

#[test]
fn gradients_of_a_job_without_a_later_step_have_the_benefit_of_the_doubt() {
    let j = Job::train(1);
    let a = j.anatomy(|r| Moment::of(r.devices().next().unwrap()));
    assert_eq!(mib(&a)[1], 7);
}

#[test]
fn what_the_allocator_rounds_up_is_no_part_of_the_model() {
    let mut j = zeroed(&[7], &[7], &[7]);
    for i in &mut j.items {
        if let Item::Event(Event { body: Body::Alloc(b), .. }) = i {
            b.rounded = Bytes(b.size.0 + MIB);
        }
    }
    // The weight's, the gradient's, the state's and the workspace's: a MiB each.
    assert_eq!(kept(&j), [7, 7, 7, 9 + 4]);
}

/// An optimizer that multiplies matrices: each step makes and frees four blocks, but the very first product leaves a library's
/// workspace; another line makes state.
#[test]
fn a_workspace_that_an_optimizer_leaves_is_no_state() {
    for (workspace, want) in [(9, [2, 0, 2, 9]), (2, [2, 0, 4, 0])] {
        let mut j = Job::default();
        let mut names = Names::default();
        for (id, line) in [(1, 10), (2, 20)] {
            let frame = crate::event::Frame { file: "/x/muon.py".into(), line, function: "step".into() };
            names.add_stack(StackId(id), [frame]);
            j.items.push(Item::Stack(StackId(id)));
        }
        j.reserve(1000);
        j.alloc(100, 2, FORWARD);
        let by = |j: &mut Job, addr, mib, line| {
            let b = Block { stack: StackId(line), ..Job::block(addr, mib, OPTIMIZER) };
            j.say(0, Body::Alloc(b));
        };
        for step in 1..=4 {
            j.alloc(3, 3, FORWARD);
            j.say(0, Body::BackwardBegin { stack: StackId(0), nested: false });
            j.free(3, 3, BACKWARD);
            j.say(0, Body::BackwardEnd { nested: false });
            j.say(0, Body::OptimizerBegin(1));
            if step == 1 {
                by(&mut j, 300, 2, 2);
                by(&mut j, 301, workspace, 1);
            }
            for i in 0..4 {
                by(&mut j, 400 + i, 1, 1);
                j.free(400 + i, 1, OPTIMIZER);
            }
            j.say(0, Body::OptimizerEnd(1));
        }
        j.alloc(4, 1, FORWARD);
        j.free(4, 1, FORWARD);
        let last = j.items.len() as u64 - 3;
        let mut pass = Pass::new(Moment { device: DeviceId(0), event: last, at: At::Event, free: None });
        j.items.iter().for_each(|i| pass.apply(i, &names));
        let a = pass.finish(&|_| false, &|_, _| None).expect("reached");
        classes_sum(&a);
        assert_eq!([a.weights, a.gradients, a.optimizer, a.other].map(|b| b.0 / MIB), want);
    }
}

/// A job of one step that takes longer than a tick, whether it then frees what it held or not: the tick was no step, and what
/// is freed on the way out is freed after the last one.
#[test]
fn a_moment_before_a_fold_is_of_the_step_that_it_was_folded_into() {
    let mut j = Job::default();
    j.reserve(1000);
    j.alloc(2, 2, FORWARD);
    j.now += 3 * crate::event::steps::TICK.0;
    j.alloc(3, 3, FORWARD);
    j.alloc(1001, 13, FORWARD);
    let moment = j.items.len() as u64 - 1;
    j.say(0, Body::BackwardBegin { stack: StackId(0), nested: false });
    j.alloc(7, 7, BACKWARD);
    j.free(3, 3, BACKWARD);
    j.say(0, Body::BackwardEnd { nested: false });
    j.say(0, Body::OptimizerBegin(1));
    j.alloc(11, 11, OPTIMIZER);
    j.say(0, Body::OptimizerEnd(1));
    let over = j.items.len() as u64;
    for exits in [false, true] {
        if exits {
            [2, 7, 11].into_iter().for_each(|mib| j.free(mib, mib, FORWARD));
        }
        j.items.push(Item::End(Nanos(j.now + 1)));
        let at = |event| j.anatomy(|_| Moment { device: DeviceId(0), event, at: At::Event, free: None });
        assert_eq!((at(moment).step, mib(&at(moment))), (1, [2, 0, 0, 3, 0, 13, 0]), "{exits}");
        assert_eq!((at(over - 1).step, mib(&at(over - 1))), (1, [2, 7, 11, 0, 0, 13, 0]), "{exits}");
        let names = Names::default();
        let mut r = Replay::new();
        for i in &j.items {
            r.apply(i, &names);
        }
        assert_eq!((r.steps(), r.torn_down_from()), (1, exits.then_some(over)));
        let row = r.devices().next().unwrap().rows.last().copied().unwrap();
        assert_eq!((row.step, row.allocated.0 / MIB), (1, 2 + 7 + 11 + 13), "{exits}");
        j.items.pop();
    }
}

#[test]
fn a_workspace_of_the_first_forward_is_no_weight_where_nothing_has_a_stack() {
    let mut j = Job::default();
    j.alloc(2, 2, FORWARD);
    j.alloc(3, 3, FORWARD);
    j.alloc(4, 9, FORWARD);
    for _ in 0..3 {
        j.say(0, Body::BackwardBegin { stack: StackId(0), nested: false });
        j.free(3, 3, BACKWARD);
        j.say(0, Body::BackwardEnd { nested: false });
        j.say(0, Body::OptimizerBegin(1));
        j.say(0, Body::OptimizerEnd(1));
        j.alloc(3, 3, FORWARD);
    }
    let last = j.items.len() as u64 - 1;
    let a = j.anatomy(|_| Moment { device: DeviceId(0), event: last, at: At::Event, free: None });
    assert_eq!((a.weights.0 / MIB, a.other.0 / MIB), (2, 9));
}

#[test]
fn what_an_evaluation_piles_up_until_memory_runs_out_is_no_temporary() {
    let evaluation = Phase { no_grad: true, ..FORWARD };
    for (outputs, want) in [(6, [0, 24]), (2, [8, 0])] {
        let mut j = Job::train(3);
        for n in 0..outputs {
            let block = Block { stack: StackId(1), ..Job::block(50 + n, 4, evaluation) };
            j.say(0, Body::Alloc(block));
        }
        let event = j.items.len() as u64 - 1;
        let a = j.anatomy(|_| Moment { device: DeviceId(0), event, at: At::Oom, free: None });
        assert_eq!([a.temporaries, a.other].map(|b| b.0 / MIB), want, "{outputs}");
    }
}

#[test]
fn without_a_model_nothing_is_a_weight() {
    let mut names = Names::default();
    let frame = crate::event::Frame { file: "/job/a.py".into(), line: 1, function: "f".into() };
    names.add_stack(StackId(1), [frame]);
    let mut j = Job::default();
    j.items.push(Item::Stack(StackId(1)));
    (0..3).for_each(|n| j.say(0, Body::Alloc(Block { stack: StackId(1), ..Job::block(2 + n, 4, FORWARD) })));
    let mut pass = Pass::new(Moment { device: DeviceId(0), event: 2, at: At::Event, free: None });
    j.items.iter().for_each(|i| pass.apply(i, &names));
    let a = pass.finish(&|_| false, &|_, _| None).expect("reached");
    assert_eq!((a.weights.0, a.other.0 / MIB), (0, 12));
}
