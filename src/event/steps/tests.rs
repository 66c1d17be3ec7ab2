//! Each rule of [`StepMachine`] against a job in a few letters.

mod passes;
mod patterns;
mod sequences;
mod unequal;

use super::super::{Addr, Block, Bytes, Phase, StackId};
use super::*;
use crate::event::{Body, Event, Nanos, ThreadId};

/// A job in letters; each stands for what a real job does there. `2` moves what follows to a second training
/// thread, `1` back.
///
/// f forward allocation · e evaluation allocation · b backward (autograd thread) · B backward on the calling
/// thread · n backward with a nested one · H backward with optimizer hooks inside · o, p, q optimizers · L
/// optimizer with three backwards inside · s scaler update · x manual step · P prefetch thread allocates · t
/// a second passes · z gradients set to None · u, v, w backwards are called from this place from now on · C a graph is
/// captured with a backward in it · F a forward allocation fails
fn play(script: &str) -> (StepMachine, Vec<(u32, StepSource)>) {
    let mut p = Player::default();
    for c in script.chars() {
        p.letter(c);
    }
    (p.machine, p.said)
}

#[derive(Default)]
struct Player {
    machine: StepMachine,
    said: Vec<(u32, StepSource)>,
    thread: u16,
    now: u64,
    site: u32,
    /// Blocks that gradients are in, and the last address that was given.
    gradients: Vec<u64>,
    addresses: u64,
    /// Before every seventh event the machine goes through a checkpoint.
    checkpoints: bool,
}

const FORWARD: Phase = Phase::from_bits(0);
const BACKWARD: Phase = Phase { backward: true, ..FORWARD };
const GRADIENTS: usize = 12;
const AUTOGRAD_THREAD: u16 = 90;
const PREFETCH_THREAD: u16 = 91;

fn oom() -> Body {
    let (device, stream, stack) = Default::default();
    Body::Oom { device, requested: Bytes(1), free: Bytes(0), stream, stack }
}

impl Player {
    fn letter(&mut self, c: char) {
        let t = self.thread;
        match c {
            '1' => self.thread = 0,
            '2' => self.thread = 1,
            'f' => self.alloc(t, FORWARD),
            'e' => self.alloc(t, Phase { no_grad: true, ..FORWARD }),
            'b' => self.backward(t, AUTOGRAD_THREAD, &[]),
            'B' => self.backward(t, t, &[]),
            'n' => {
                let nested = [
                    Body::BackwardBegin { stack: StackId(0), nested: true },
                    Body::BackwardEnd { nested: true },
                ];
                self.backward(t, AUTOGRAD_THREAD, &nested);
            }
            'H' => {
                let hooks: Vec<Body> = (0..12)
                    .flat_map(|i| [Body::OptimizerBegin(100 + i), Body::OptimizerEnd(100 + i)])
                    .collect();
                self.backward(t, AUTOGRAD_THREAD, &hooks);
            }
            'o' => self.optimizer(t, 1),
            'p' => self.optimizer(t, 2),
            'q' => self.optimizer(t, 3),
            'L' => {
                self.feed(t, Body::OptimizerBegin(7));
                for _ in 0..3 {
                    self.alloc(t, Phase { optimizer: true, ..FORWARD });
                    self.backward(t, AUTOGRAD_THREAD, &[]);
                }
                self.feed(t, Body::OptimizerEnd(7));
            }
            's' => self.feed(t, Body::ScalerUpdate),
            'F' => self.feed(t, oom()),
            'x' => self.feed(t, Body::ManualStep(1000)),
            'P' => self.alloc(PREFETCH_THREAD, FORWARD),
            't' => {
                self.now += TICK.0;
                self.feed(t, Body::StreamDone(Default::default()));
            }
            'z' => {
                for addr in std::mem::take(&mut self.gradients) {
                    self.feed(t, Body::FreeRequested(Block { addr: Addr(addr), ..Block::default() }));
                }
            }
            'u' | 'v' | 'w' => self.site = u32::from(c),
            'C' => {
                self.feed(t, Body::CaptureBegin(Default::default()));
                self.backward(t, AUTOGRAD_THREAD, &[]);
                self.feed(t, Body::CaptureEnd(Default::default()));
            }
            ' ' => {}
            c => panic!("no letter {c}"),
        }
    }

    fn feed(&mut self, thread: u16, body: Body) {
        self.now += 1000;
        if self.checkpoints && self.now.is_multiple_of(7) {
            self.machine = StepMachine::load(&self.machine.save()).expect("own bytes");
        }
        let out = self.machine.feed(&Event { time: Nanos(self.now), thread: ThreadId(thread), body });
        for b in out.into_iter().flatten() {
            if let Boundary::Step { n, source } = b {
                self.said.push((n, source));
            }
        }
    }

    fn alloc(&mut self, thread: u16, phase: Phase) {
        self.feed(thread, Body::Alloc(Block { phase, ..Block::default() }));
    }

    fn backward(&mut self, caller: u16, worker: u16, inside: &[Body]) {
        self.feed(caller, Body::BackwardBegin { stack: StackId(self.site), nested: false });
        self.alloc(worker, Phase { backward: true, ..FORWARD });
        for _ in self.gradients.len()..GRADIENTS {
            self.addresses += 512;
            self.gradients.push(self.addresses);
            let block = Block { addr: Addr(self.addresses), phase: BACKWARD, ..Block::default() };
            self.feed(worker, Body::Alloc(block));
        }
        for b in inside {
            self.feed(worker, *b);
        }
        self.alloc(worker, Phase { backward: true, ..FORWARD });
        self.feed(caller, Body::BackwardEnd { nested: false });
    }

    fn optimizer(&mut self, thread: u16, id: u64) {
        self.feed(thread, Body::OptimizerBegin(id));
        self.alloc(thread, Phase { optimizer: true, ..FORWARD });
        self.feed(thread, Body::OptimizerEnd(id));
    }
}

/// Steps and microbatches at the end of the recording, `finish` included.
fn count(script: &str) -> (u32, u32, StepSource) {
    let (mut m, _) = play(script);
    m.finish();
    (m.steps(), m.microbatches(), m.source())
}

use StepSource::{Backward, Manual, Optimizer, Time};

#[test]
fn every_shape_of_training_loop_counts_its_own_steps() {
    let gan = "fbofbp".repeat(10);
    let gan_five = "fbofbofbofbofbofbp".repeat(6);
    let straggler = format!("{}fbop{}", "fbo".repeat(12), "fbo".repeat(12));
    let two_threads = "1fbo 2fbp".repeat(10);
    let unequal_threads = "1fbo 2fbp 1fbo".repeat(10);
    let pool = "1fbo2fbp 2fbo1fbp".repeat(5);
    let stages = format!("{}{}", "fbo".repeat(20), "fbp".repeat(30));
    let scaler = format!("{}{}", "fbfs".repeat(3), "fbfos".repeat(4));
    let graphs = format!("fb{}fb", "fo".repeat(400));
    let skips = format!("{}fbs{}", "fbos".repeat(5), "fbos".repeat(4));
    let silent_skip = format!("{}fbfbz{}", "fbfboz".repeat(5), "fbfboz");
    let cases: &[(&str, &str, (u32, u32, StepSource))] = &[
        ("one optimizer", &"fbo".repeat(7), (7, 7, Optimizer)),
        ("zero_grad and evaluation after it", &"ffbo ee e".repeat(7), (7, 7, Optimizer)),
        ("ZeRO sub-groups, one optimizer stepping many times", &"fboooo".repeat(5), (5, 5, Optimizer)),
        ("Muon + AdamW", &"fbop".repeat(5), (5, 5, Optimizer)),
        ("optimizer in backward", &"fH".repeat(3), (3, 3, Optimizer)),
        ("gradient accumulation of 4", &"fbfbfbfbo".repeat(3), (3, 12, Optimizer)),
        (
            "first step accumulates 16",
            &format!("{}o{}o", "fb".repeat(16), "fb".repeat(16)),
            (2, 32, Optimizer),
        ),
        ("GAN", &gan, (10, 20, Optimizer)),
        ("GAN, five to one", &gan_five, (6, 36, Optimizer)),
        ("an optimizer that is far rarer than 1 in 8 is ignored", &straggler, (25, 25, Optimizer)),
        ("two models on two threads", &two_threads, (20, 20, Optimizer)),
        ("two threads at the same time", &"1f2f1b2b1o2p".repeat(10), (20, 20, Optimizer)),
        ("two threads, one twice as fast", &unequal_threads, (30, 30, Optimizer)),
        ("a GAN whose halves a pool's threads run", &pool, (10, 20, Optimizer)),
        ("a second optimizer replaces the first", &stages, (50, 50, Optimizer)),
        ("scaler skips the sixth step", &skips, (10, 10, Optimizer)),
        ("scaler skips the very first step", &format!("fbs{}", "fbos".repeat(3)), (4, 4, Optimizer)),
        ("a scaler that allocates skips the first three", &scaler, (7, 7, Optimizer)),
        ("sub-groups that allocate between their runs", &"fbfofofo".repeat(6), (6, 6, Optimizer)),
        ("two optimizers with an allocation between them", &"fbfofp".repeat(6), (6, 6, Optimizer)),
        (
            "a captured graph replaces the backward",
            &format!("{}{}", "fbo".repeat(3), "fo".repeat(9)),
            (12, 3, Optimizer),
        ),
        ("a graph that was captured at once, and a backward long after", &graphs, (400, 2, Optimizer)),
        ("skip without scaler events", &silent_skip, (7, 14, Optimizer)),
        ("backward on the main thread", &"fBo".repeat(4), (4, 4, Optimizer)),
        ("reentrant checkpointing", &"fno".repeat(4), (4, 4, Optimizer)),
        ("double backward", &"fbfbo".repeat(6), (6, 12, Optimizer)),
        ("LBFGS", &"fL".repeat(5), (5, 15, Optimizer)),
        ("LBFGS after an ordinary optimizer", &format!("fbo{}", "fL".repeat(9)), (10, 28, Optimizer)),
        ("prefetch thread", &"fPbPoP".repeat(6), (6, 6, Optimizer)),
        ("worker thread trains, main allocates", &format!("1f2{}", "fbo".repeat(6)), (6, 6, Optimizer)),
        ("no optimizer: ends of backward", &"fb".repeat(9), (9, 9, Backward)),
        ("neither: ticks", &"ftft".repeat(5), (10, 0, Time)),
        (
            "ticks, then training: loading the model is part of step 1",
            &format!("{}{}", "ft".repeat(30), "fbo".repeat(3)),
            (3, 3, Optimizer),
        ),
        ("manual", &"fbox".repeat(5), (5, 5, Manual)),
        (
            "manual from the third on: what was before is step 1",
            &format!("{}{}", "fbo".repeat(3), "fbox".repeat(2)),
            (2, 5, Manual),
        ),
        ("state made before the first backward", &format!("fofo{}", "fbo".repeat(5)), (5, 5, Optimizer)),
        ("a job whose backward is not seen", &"fo".repeat(5), (5, 0, Optimizer)),
        ("a forward that allocates nothing", &"bo".repeat(5), (5, 5, Optimizer)),
        (
            "a graph is replayed, and nothing is allocated between the optimizer's runs",
            &format!("fbfbC{}", "o".repeat(9)),
            (9, 3, Optimizer),
        ),
        ("the same, and two optimizers step together", &format!("fbC{}", "op".repeat(9)), (9, 2, Optimizer)),
        ("one optimizer runs for each of its parts", &"fbooo".repeat(9), (9, 9, Optimizer)),
    ];
    let wrong: Vec<_> = cases
        .iter()
        .map(|(name, script, want)| (name, script, want, count(script)))
        .filter(|(_, _, want, got)| *want != got)
        .collect();
    assert!(wrong.is_empty(), "(name, script, wanted, counted): {wrong:#?}");
}

#[test]
fn provisional_steps_are_folded_into_the_first() {
    let (_, said) = play(&format!("{}o{}o f", "fb".repeat(3), "fb".repeat(3)));
    assert_eq!(said, [(1, Backward), (2, Backward), (1, Optimizer), (2, Optimizer)]);
    let (_, said) = play("fbo fbp fbo fbp f");
    assert_eq!(
        said,
        [(1, Optimizer), (2, Optimizer), (3, Optimizer), (2, Optimizer)],
        "they took turns twice"
    );
    let (_, said) = play("ftft fbof fxx");
    assert_eq!(said, [(1, Time), (2, Time), (1, Optimizer), (1, Manual), (2, Manual)]);
}

#[test]
fn what_the_optimizer_leaves_to_free_still_belongs_to_the_step() {
    let (m, said) = play("fbo");
    assert_eq!((m.steps(), said.len()), (0, 0), "no step ends before the next forward allocation");
    let (mut m, _) = play("fbo P");
    assert_eq!(m.steps(), 0, "a thread that does not train ends no step");
    let end = [Some(Boundary::Step { n: 1, source: Optimizer }), Some(Boundary::Microbatch(1))];
    assert_eq!(m.finish(), [end]);
    assert!(m.finish().is_empty());
}

#[test]
fn an_allocation_that_fails_is_of_the_next_step() {
    assert_eq!(play("fbo F").0.steps(), 1);
    assert_eq!(count("fbo F fbo F f"), count("fbo f fbo f f"), "where it is caught");
    assert_eq!(play("fb F").0.microbatches(), 1);
    let (mut m, _) = play("fb");
    for body in [Body::OptimizerBegin(1), oom()] {
        m.feed(&Event { time: Nanos(1 << 40), thread: ThreadId(0), body });
    }
    assert_eq!(m.microbatches(), 0, "in an optimizer");
}

#[test]
fn a_number_given_by_hand_does_not_matter_but_the_order_of_calls_does() {
    let (m, said) = play("x x x");
    assert_eq!((m.steps(), said), (3, vec![(1, Manual), (2, Manual), (3, Manual)]));
}

#[test]
fn state_survives_a_checkpoint_anywhere() {
    let script = format!("tft{}fbsf{}{}xfx", "fbfbop".repeat(4), "2fbo1fbo".repeat(3), "fH".repeat(2));
    let whole = play(&script).1;
    for cut in 0..script.len() {
        let mut p = Player::default();
        for c in script[..cut].chars() {
            p.letter(c);
        }
        let saved = p.machine.save();
        let loaded = StepMachine::load(&saved).expect("own bytes");
        assert_eq!(loaded, p.machine, "after {cut} letters");
        p.machine = loaded;
        for c in script[cut..].chars() {
            p.letter(c);
        }
        assert_eq!(p.said, whole, "cut at {cut}");
    }
}

/// A checkpoint of the first version: two optimizers take turns, 40 steps have ended.
#[test]
fn state_of_the_first_version_counts_on() {
    let none = u64::MAX;
    let mut words = vec![1, 40, 80, 3, 1 | 32, none, 0, 1, 40, none, 1, 2, 1];
    for (id, since) in [(1, [0, 1]), (2, [0, 0])] {
        words.extend([id, 40, 1, 1]);
        words.extend(since);
        words.extend([0; 14]);
    }
    words.extend([0, 1, 0, 0]);
    let bytes: Vec<u8> = words.iter().flat_map(|w: &u64| w.to_le_bytes()).collect();
    let machine = StepMachine::load(&bytes).expect("what that version wrote");
    assert_eq!((machine.steps(), machine.microbatches(), machine.source()), (40, 80, Optimizer));
    let mut p = Player { machine, ..Player::default() };
    "fbofbp".repeat(5).chars().for_each(|c| p.letter(c));
    p.machine.finish();
    assert_eq!((p.machine.steps(), p.machine.microbatches()), (45, 90));
    for cut in 0..bytes.len() {
        assert_eq!(StepMachine::load(&bytes[..cut]), None, "cut at {cut}");
    }
}

#[test]
fn foreign_bytes_are_refused_and_never_panic() {
    let good = play("fbofbpfb").0.save();
    for cut in 0..good.len() {
        assert_eq!(StepMachine::load(&good[..cut]), None, "cut at {cut}");
    }
    assert_eq!(StepMachine::load(&[&good[..], &[0; 8]].concat()), None);
    for i in 0..good.len() {
        let mut b = good.clone();
        b[i] ^= 0xff;
        if let Some(mut m) = StepMachine::load(&b) {
            m.feed(&Event { time: Nanos(u64::MAX), thread: ThreadId(0), body: Body::OptimizerEnd(3) });
            m.feed(&Event { time: Nanos(0), thread: ThreadId(0), body: Body::Alloc(Block::default()) });
        }
    }
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let mut m = StepMachine::default();
    for i in 0..20_000u64 {
        let thread = ThreadId((i % 5000) as u16);
        for body in [
            Body::BackwardBegin { stack: StackId(0), nested: false },
            Body::OptimizerEnd(i),
            Body::BackwardEnd { nested: i % 3 == 0 },
            Body::Alloc(Block::default()),
        ] {
            m.feed(&Event { time: Nanos(i), thread, body });
        }
    }
    assert!(
        m.threads.list.len() <= threads::MAX
            && m.turns.parties.len() <= turns::SLOTS
            && m.turns.optimizers.len() <= turns::SLOTS
    );
    assert!(m.save().len() < 8192);
}
