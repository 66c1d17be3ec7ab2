//! Steps of whole jobs, by the pattern in which their optimizers run: as many as the job has made.

use super::*;

/// A job: it plays events, and counts its own steps.
#[derive(Default)]
pub(super) struct Job {
    pub(super) player: Player,
    pub(super) optimizers: u64,
    /// For choices: the same ones in each run.
    pub(super) seed: u64,
    pub(super) steps: u32,
}

impl Job {
    pub(super) fn new_optimizer(&mut self) -> u64 {
        self.optimizers += 1;
        100 + self.optimizers
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.seed >> 33) % n
    }

    /// Forward and backward, called from a place in the program.
    pub(super) fn backward(&mut self, site: u32) {
        self.player.site = site;
        self.player.letter('f');
        self.player.letter('b');
    }

    pub(super) fn run(&mut self, optimizer: u64) {
        self.player.optimizer(self.player.thread, optimizer);
    }

    pub(super) fn zero(&mut self) {
        self.player.letter('z');
    }

    /// What an optimizer does in a loop; the caller says whether it is a step.
    pub(super) fn beat(&mut self, site: u32, optimizer: u64) {
        self.backward(site);
        self.run(optimizer);
        self.zero();
    }

    pub(super) fn step(&mut self, site: u32, optimizer: u64) {
        self.beat(site, optimizer);
        self.steps += 1;
    }

    pub(super) fn train(&mut self, steps: u32) {
        let optimizer = self.new_optimizer();
        (0..steps).for_each(|_| self.step(1, optimizer));
    }

    pub(super) fn accumulate(&mut self, optimizer: u64, micro: u64) {
        (0..micro).for_each(|_| self.backward(1));
        self.run(optimizer);
        self.zero();
        self.steps += 1;
    }

    /// A loss that is not finite: the gradients are dropped, and the optimizer does not run.
    pub(super) fn skip(&mut self, micro: u64) {
        (0..micro).for_each(|_| self.backward(1));
        self.zero();
        self.steps += 1;
    }

    /// So many iterations of a discriminator's `critics` steps and a generator's one.
    pub(super) fn gan(&mut self, iterations: u32, critics: u32) {
        let (d, g) = (self.new_optimizer(), self.new_optimizer());
        self.gan_of(d, g, iterations, critics);
    }

    pub(super) fn gan_of(&mut self, d: u64, g: u64, iterations: u32, critics: u32) {
        for _ in 0..iterations {
            (0..critics).for_each(|_| self.beat(1, d));
            self.step(2, g);
        }
    }

    /// Outer iterations, each with so many tasks of so many inner steps, by a new optimizer each.
    pub(super) fn maml(&mut self, iterations: u32, tasks: u32, inner: u32) {
        let outer = self.new_optimizer();
        for _ in 0..iterations {
            for _ in 0..tasks {
                let optimizer = self.new_optimizer();
                (0..inner).for_each(|_| self.beat(1, optimizer));
            }
            self.step(2, outer);
        }
    }
}

type Pattern = (&'static str, fn(&mut Job));

const PATTERNS: &[Pattern] = &[
    ("accumulation that grows and shrinks", |j| {
        let o = j.new_optimizer();
        for micro in [1, 2, 4, 8, 16, 8, 4, 2, 1] {
            (0..12).for_each(|_| j.accumulate(o, micro));
        }
    }),
    ("accumulation by tokens", |j| {
        let o = j.new_optimizer();
        for _ in 0..80 {
            let micro = 1 + j.below(6);
            j.accumulate(o, micro);
        }
    }),
    ("the rest of an epoch is a step", |j| {
        let o = j.new_optimizer();
        (0..60).for_each(|i| j.accumulate(o, if i % 5 == 4 { 2 } else { 4 }));
    }),
    ("the rest of an epoch is dropped", |j| {
        let o = j.new_optimizer();
        for _ in 0..8 {
            (0..5).for_each(|_| j.accumulate(o, 4));
            (0..2).for_each(|_| j.backward(1));
            j.zero();
        }
    }),
    ("a sweep", |j| [15, 1, 7, 30, 2, 20].into_iter().for_each(|n| j.train(n))),
    ("k folds of two epochs", |j| (0..5).for_each(|_| j.train(24))),
    ("a new optimizer for each step", |j| (0..40).for_each(|_| j.train(1))),
    ("a new optimizer for every second step", |j| (0..40).for_each(|_| j.train(2))),
    ("federated clients, new optimizers", |j| (0..60).for_each(|i| j.train(1 + i % 3))),
    ("federated clients that keep their optimizers", |j| {
        let clients = [j.new_optimizer(), j.new_optimizer(), j.new_optimizer()];
        for _ in 0..8 {
            clients.iter().for_each(|&c| (0..4).for_each(|_| j.step(1, c)));
        }
    }),
    ("an optimizer is replaced once", |j| [20, 40].into_iter().for_each(|n| j.train(n))),
    ("models in turns of thirty, seven and two steps", |j| {
        let (a, b) = (j.new_optimizer(), j.new_optimizer());
        for turn in [30, 7, 2] {
            for i in 0..turn * 6 {
                j.step(1, if i / turn % 2 == 0 { a } else { b });
            }
        }
    }),
    ("two models that one line trains, one of them twice as often", |j| {
        let (a, b) = (j.new_optimizer(), j.new_optimizer());
        (0..90).for_each(|i| j.step(1, if i % 3 == 0 { b } else { a }));
    }),
    ("a loop over three models, in one line", |j| {
        let three = [j.new_optimizer(), j.new_optimizer(), j.new_optimizer()];
        for _ in 0..30 {
            three.iter().for_each(|&o| j.beat(1, o));
            j.steps += 1;
        }
    }),
    ("GAN", |j| j.gan(12, 1)),
    ("GAN, three iterations", |j| j.gan(3, 1)),
    ("GAN, two critics", |j| j.gan(12, 2)),
    ("GAN, five critics", |j| j.gan(6, 5)),
    ("GAN, ten critics", |j| j.gan(6, 10)),
    ("GAN whose generator steps twice", |j| {
        let (d, g) = (j.new_optimizer(), j.new_optimizer());
        for _ in 0..10 {
            j.step(1, d);
            (0..2).for_each(|_| j.beat(2, g));
        }
    }),
    ("three optimizers in turns", |j| {
        let three = [j.new_optimizer(), j.new_optimizer(), j.new_optimizer()];
        for _ in 0..12 {
            (1..).zip(three).for_each(|(site, o)| j.beat(site, o));
            j.steps += 1;
        }
    }),
    ("critics that become more and fewer", |j| {
        let (d, g) = (j.new_optimizer(), j.new_optimizer());
        for critics in [1, 5, 2, 1, 3] {
            j.gan_of(d, g, 8, critics);
        }
    }),
    ("as many critics as it takes", |j| {
        let (d, g) = (j.new_optimizer(), j.new_optimizer());
        for _ in 0..60 {
            let critics = 1 + j.below(6) as u32;
            j.gan_of(d, g, 1, critics);
        }
    }),
    ("a discriminator that is trained alone before", |j| {
        let (d, g) = (j.new_optimizer(), j.new_optimizer());
        (0..100).for_each(|_| j.step(1, d));
        j.gan_of(d, g, 20, 1);
    }),
    ("the same with five critics", |j| {
        let (d, g) = (j.new_optimizer(), j.new_optimizer());
        (0..50).for_each(|_| j.step(1, d));
        j.gan_of(d, g, 20, 5);
    }),
    ("a sweep of GANs", |j| [10, 3, 2, 5, 4].into_iter().for_each(|n| j.gan(n, 1))),
    ("a sweep of GANs with critics", |j| {
        [(6, 5), (3, 2), (5, 1), (4, 3)].into_iter().for_each(|(n, c)| j.gan(n, c))
    }),
    ("a GAN, then a training as short as its rounds", |j| {
        j.gan(10, 5);
        j.train(8);
        j.gan(4, 5);
    }),
    ("a GAN that gets a third optimizer", |j| {
        let three = [j.new_optimizer(), j.new_optimizer(), j.new_optimizer()];
        j.gan_of(three[0], three[1], 10, 1);
        for _ in 0..10 {
            (1..).zip(three).for_each(|(site, o)| j.beat(site, o));
            j.steps += 1;
        }
    }),
    ("training, a GAN, training", |j| {
        j.train(20);
        j.gan(10, 2);
        j.train(30);
    }),
    ("a delayed policy", |j| {
        let (critic, actor) = (j.new_optimizer(), j.new_optimizer());
        for _ in 0..20 {
            (0..2).for_each(|_| j.beat(1, critic));
            j.step(2, actor);
        }
    }),
    ("MAML", |j| j.maml(10, 1, 5)),
    ("MAML with one inner step", |j| j.maml(10, 1, 1)),
    ("MAML with tasks", |j| j.maml(6, 4, 3)),
    ("MAML with tasks, many iterations", |j| j.maml(40, 4, 3)),
    ("MAML by one optimizer, whose last gradients of each task are added up elsewhere", |j| {
        let (outer, inner) = (j.new_optimizer(), j.new_optimizer());
        for _ in 0..30 {
            for task in 0..4 {
                if task > 0 {
                    j.zero();
                }
                (0..3).for_each(|_| j.beat(1, inner));
                j.backward(2);
            }
            j.run(outer);
            j.zero();
            j.steps += 1;
        }
    }),
    ("a first step that is skipped by hand, and some later", |j| {
        let o = j.new_optimizer();
        j.backward(1);
        j.zero();
        (0..60).for_each(|i| if i % 10 == 9 { j.skip(1) } else { j.step(1, o) });
    }),
    ("a sweep of MAML", |j| (0..3).for_each(|_| j.maml(5, 2, 2))),
    ("MAML, then training", |j| {
        j.maml(8, 1, 3);
        j.train(40);
    }),
    ("Muon and AdamW, one of them not always", |j| {
        let (muon, adam) = (j.new_optimizer(), j.new_optimizer());
        for i in 0..40 {
            j.backward(1);
            if i % 3 != 0 {
                j.run(muon);
            }
            j.run(adam);
            j.zero();
            j.steps += 1;
        }
    }),
    ("Muon and AdamW, new ones in each fold", |j| {
        for _ in 0..40 {
            let both = [j.new_optimizer(), j.new_optimizer()];
            for _ in 0..3 {
                j.backward(1);
                both.iter().for_each(|&o| j.run(o));
                j.zero();
                j.steps += 1;
            }
        }
    }),
    ("SAM", |j| {
        let base = j.new_optimizer();
        for _ in 0..30 {
            j.backward(1);
            j.zero();
            j.step(2, base);
        }
    }),
    ("SAM in a loop over its halves", |j| {
        let base = j.new_optimizer();
        for _ in 0..30 {
            j.backward(1);
            j.zero();
            j.step(1, base);
        }
    }),
    ("SAM whose ascent is an optimizer's", |j| {
        let (ascent, base) = (j.new_optimizer(), j.new_optimizer());
        for _ in 0..30 {
            j.beat(1, ascent);
            j.step(2, base);
        }
    }),
    ("SAM from the twentieth step on", |j| {
        let base = j.new_optimizer();
        (0..20).for_each(|_| j.step(1, base));
        for _ in 0..20 {
            j.backward(1);
            j.zero();
            j.step(2, base);
        }
    }),
    ("steps that are skipped by hand", |j| {
        let o = j.new_optimizer();
        (0..60).for_each(|i| if i % 4 == 3 { j.skip(1) } else { j.step(1, o) });
    }),
    ("steps that are skipped at random, several in a row, and the last", |j| {
        let o = j.new_optimizer();
        j.step(1, o);
        for _ in 0..80 {
            if j.below(3) == 0 { j.skip(1) } else { j.step(1, o) }
        }
        (0..3).for_each(|_| j.skip(1));
    }),
    ("steps of four microbatches that are skipped by hand", |j| {
        let o = j.new_optimizer();
        (0..40).for_each(|i| if i % 7 == 5 { j.skip(4) } else { j.accumulate(o, 4) });
    }),
    ("gradients of an attack, then of the step", |j| {
        let o = j.new_optimizer();
        for i in 0..40 {
            for _ in 0..if i < 10 { 0 } else { 7 } {
                j.backward(2);
                j.zero();
            }
            j.step(1, o);
        }
    }),
    ("gradients of each task or sample, kept elsewhere", |j| {
        let o = j.new_optimizer();
        for _ in 0..40 {
            for _ in 0..3 + j.below(8) {
                j.backward(1);
                j.zero();
            }
            j.run(o);
            j.steps += 1;
        }
    }),
    ("LBFGS, whose closure drops gradients", |j| {
        let o = j.new_optimizer();
        for i in 0..30 {
            j.player.letter('f');
            j.player.feed(0, Body::OptimizerBegin(o));
            for _ in 0..1 + i % 4 {
                j.zero();
                j.player.backward(0, AUTOGRAD_THREAD, &[]);
            }
            j.player.feed(0, Body::OptimizerEnd(o));
            j.steps += 1;
        }
    }),
    ("state that is prepared before each training", |j| {
        for _ in 0..5 {
            let o = j.new_optimizer();
            j.player.letter('f');
            j.run(o);
            (0..10).for_each(|_| j.step(1, o));
        }
    }),
    ("sub-groups that allocate, after a training without", |j| {
        j.train(10);
        let o = j.new_optimizer();
        for _ in 0..10 {
            j.backward(1);
            for _ in 0..4 {
                j.run(o);
                j.player.letter('f');
            }
            j.zero();
            j.steps += 1;
        }
    }),
    ("a captured graph, and an eager step at each epoch's end", |j| {
        let o = j.new_optimizer();
        (0..3).for_each(|_| j.step(1, o));
        j.player.letter('C');
        for _ in 0..4 {
            for _ in 0..20 {
                j.player.letter('f');
                j.run(o);
                j.steps += 1;
            }
            j.step(1, o);
        }
    }),
    ("optimizers in backward", |j| {
        for _ in 0..30 {
            j.player.letter('f');
            j.player.letter('H');
            j.steps += 1;
        }
    }),
    ("a scaler that skips at first, and now and then", |j| {
        let o = j.new_optimizer();
        for i in 0..50 {
            j.backward(1);
            if i >= 3 && i % 9 != 0 {
                j.run(o);
            }
            j.player.letter('s');
            j.zero();
            j.steps += 1;
        }
    }),
    ("a GAN with a scaler that skips now one, now the other, at first both", |j| {
        let (d, g) = (j.new_optimizer(), j.new_optimizer());
        for i in 0..50 {
            for (site, o, skips) in [(1, d, i < 3 || i % 11 == 5), (2, g, i < 3 || i % 13 == 7)] {
                j.backward(site);
                if !skips {
                    j.run(o);
                }
                j.player.letter('s');
                j.zero();
            }
            j.steps += 1;
        }
    }),
    ("a GAN with one update of its scaler in each iteration", |j| {
        let (d, g) = (j.new_optimizer(), j.new_optimizer());
        for i in 0..50 {
            for (site, o, skips) in [(1, d, i < 3 || i % 11 == 5), (2, g, i < 3 || i % 13 == 7)] {
                j.backward(site);
                if !skips {
                    j.run(o);
                }
            }
            j.player.letter('s');
            j.zero();
            j.steps += 1;
        }
    }),
    ("regularization every fourth and sixteenth iteration", |j| {
        let (d, g) = (j.new_optimizer(), j.new_optimizer());
        for i in 1..=60 {
            j.beat(1, d);
            if i % 16 == 0 {
                j.beat(3, d);
            }
            j.step(2, g);
            if i % 4 == 0 {
                j.beat(4, g);
            }
        }
    }),
];

#[test]
fn each_pattern_counts_its_own_steps() {
    let mut wrong = Vec::new();
    for (name, pattern) in PATTERNS {
        let mut job = Job::default();
        pattern(&mut job);
        job.player.machine.finish();
        let counted = job.player.machine.steps();
        if counted != job.steps {
            wrong.push((name, "counted", counted, "made", job.steps));
        }
    }
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), PATTERNS.len());
}

#[test]
fn checkpoints_on_the_way_change_no_count() {
    for (name, pattern) in PATTERNS {
        let [whole, cut] = [false, true].map(|checkpoints| {
            let mut job = Job::default();
            job.player.checkpoints = checkpoints;
            pattern(&mut job);
            job.player
        });
        assert_eq!((cut.said, cut.machine), (whole.said, whole.machine), "{name}");
    }
}

#[test]
fn gradients_that_go_with_their_model_are_no_step() {
    let mut job = Job::default();
    job.train(10);
    job.backward(1);
    let allocated = job.player.machine.gradients.live;
    for i in 0..u64::from(allocated) - GRADIENTS as u64 {
        let block = Block { addr: Addr((1 << 40) + 512 * i), ..Block::default() };
        job.player.feed(0, Body::FreeRequested(block));
    }
    job.zero();
    job.player.machine.finish();
    assert_eq!(job.player.machine.steps(), 10, "the last backward was never used");
}
