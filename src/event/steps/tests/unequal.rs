//! Loops in which not every optimizer runs in each iteration, and optimizers that run once more now and then.

use super::patterns::Job;
use super::{Boundary, Optimizer, Player, StepMachine};

/// Who leaves a loop of two early.
#[derive(Clone, Copy, Debug)]
enum Stops {
    First,
    Second,
    Either,
}

impl Job {
    /// Rollouts of 12 minibatches, each with a step of either optimizer, until one of them stops: after so many
    /// minibatches, from the least to the most.
    fn rollouts(&mut self, rollouts: u32, stops: Stops, (least, most): (u64, u64)) {
        let (first, second) = (self.new_optimizer(), self.new_optimizer());
        for _ in 0..rollouts {
            let stop = least + self.below(most + 1 - least);
            let is_first = match stops {
                Stops::First => true,
                Stops::Second => false,
                Stops::Either => self.below(2) == 0,
            };
            for k in 0..12 {
                if k < stop || !is_first {
                    self.beat(1, first);
                }
                if k < stop || is_first {
                    self.beat(2, second);
                }
                self.steps += 1;
            }
        }
    }

    /// Rollouts of three optimizers, some of which (by the site of their backwards) stop.
    fn three(&mut self, rollouts: u32, stop: &[u32]) {
        let three = [self.new_optimizer(), self.new_optimizer(), self.new_optimizer()];
        for _ in 0..rollouts {
            let until = 4 + self.below(8);
            for k in 0..12 {
                for (site, o) in (1..).zip(three) {
                    if k < until || !stop.contains(&site) {
                        self.beat(site, o);
                    }
                }
                self.steps += 1;
            }
        }
    }

    /// Iterations of a GAN with so many critics, and with regularizations of their own: of either every so many
    /// iterations, of which the first is number `from`.
    fn lazy(&mut self, iterations: u32, critics: u32, (d_every, g_every): (u32, u32), from: u32) {
        let (d, g) = (self.new_optimizer(), self.new_optimizer());
        for i in from..from + iterations {
            (0..critics).for_each(|_| self.beat(1, d));
            if i.is_multiple_of(d_every) {
                self.beat(3, d);
            }
            self.step(2, g);
            if i.is_multiple_of(g_every) {
                self.beat(4, g);
            }
        }
    }
}

/// What a job counts, and what it has made.
fn counted(seed: u64, pattern: impl Fn(&mut Job)) -> (u32, u32) {
    let mut job = Job { seed, ..Job::default() };
    pattern(&mut job);
    job.player.machine.finish();
    (job.player.machine.steps(), job.steps)
}

/// Jobs by their names, each of so many seeds: those that count wrong.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn job(&mut self, name: impl Into<String>, pattern: impl Fn(&mut Job)) {
        let all = (0..30)
            .map(|seed| (seed, counted(seed, &pattern)))
            .filter(|(_, (counted, made))| counted != made);
        let all: Vec<_> = all.collect();
        if !all.is_empty() {
            self.0.push(format!("{}: (seed, (counted, made)): {all:?}", name.into()));
        }
    }

    #[track_caller]
    fn none(self) {
        assert!(self.0.is_empty(), "{} jobs: {:#?}", self.0.len(), self.0);
    }
}

#[test]
fn an_optimizer_that_stops_early_ends_no_steps_and_hides_none() {
    use Stops::{Either, First, Second};
    let mut wrong = Wrong::default();
    for stops in [First, Second, Either] {
        for range in [(5, 12), (6, 10), (2, 4), (8, 12)] {
            for n in [5, 30] {
                wrong.job(format!("{stops:?} {range:?} {n}"), |j| j.rollouts(n, stops, range));
                wrong.job(format!("training, {stops:?} {range:?} {n}, training"), |j| {
                    j.train(17);
                    j.rollouts(n, stops, range);
                    j.train(9);
                });
            }
        }
    }
    wrong.job("a sweep", |j| [3, 1, 5].into_iter().for_each(|n| j.rollouts(n, First, (2, 12))));
    for stop in [&[1][..], &[2], &[3], &[1, 3], &[1, 2]] {
        wrong.job(format!("of three stop {stop:?}"), |j| j.three(8, stop));
    }
    wrong.none();
}

#[test]
fn extra_runs_are_parts_of_steps_however_often_and_from_the_first_step_on() {
    let mut wrong = Wrong::default();
    for critics in [1, 2, 5] {
        for every in [(8, 4), (16, 8), (2, 3), (16, 1000), (1000, 4), (1, 1), (3, 2)] {
            for from in 0..4 {
                let name = format!("{critics} critics, every {every:?} iterations from {from}");
                for n in [60, 12, 4] {
                    wrong.job(format!("{name}, {n}"), |j| j.lazy(n, critics, every, from));
                }
                wrong.job(format!("a sweep of {name}"), |j| {
                    j.lazy(20, critics, every, from);
                    j.train(10);
                    j.lazy(13, critics, every, from);
                    j.lazy(9, 1, every, from);
                });
            }
        }
        wrong.job(format!("before {critics} critics"), |j| {
            let (d, g) = (j.new_optimizer(), j.new_optimizer());
            for i in 0..40 {
                if i % 4 == 0 {
                    j.beat(3, d);
                }
                j.gan_of(d, g, 1, critics);
            }
        });
    }
    wrong.job("every 16 critics", |j| {
        let (d, g) = (j.new_optimizer(), j.new_optimizer());
        for i in 0..200 {
            j.beat(1, d);
            if i % 16 == 0 {
                j.beat(3, d);
            }
            if i % 5 == 4 {
                j.step(2, g);
            }
        }
    });
    wrong.none();
}

#[test]
fn a_critic_that_is_trained_alone_elsewhere_begins_its_loop_when_the_other_comes() {
    let mut wrong = Wrong::default();
    for (alone, critics) in [(25, 1), (25, 2), (3, 5), (40, 5)] {
        wrong.job(format!("{alone} steps, then {critics} critics"), |j| {
            let (d, g) = (j.new_optimizer(), j.new_optimizer());
            (0..alone).for_each(|_| j.step(7, d));
            j.gan_of(d, g, 30, critics);
        });
    }
    for (iterations, alone) in [(8, 2), (6, 6), (3, 1), (12, 40)] {
        for site in [1, 2] {
            wrong.job(format!("{iterations} iterations, {alone} of number {site}, four times"), |j| {
                let two = [j.new_optimizer(), j.new_optimizer()];
                for _ in 0..4 {
                    j.gan_of(two[0], two[1], iterations, 1);
                    (0..alone).for_each(|_| j.step(site, two[site as usize - 1]));
                }
            });
            wrong.job(format!("{iterations} iterations, then number {site} elsewhere"), |j| {
                let two = [j.new_optimizer(), j.new_optimizer()];
                j.gan_of(two[0], two[1], iterations, 1);
                (0..20).for_each(|_| j.step(5, two[site as usize - 1]));
            });
        }
    }
    wrong.none();
}

#[test]
fn a_policy_that_makes_up_for_delayed_steps() {
    let mut wrong = Wrong::default();
    wrong.job("two steps of policy and temperature each second step", |j| {
        let (critic, policy, temperature) = (j.new_optimizer(), j.new_optimizer(), j.new_optimizer());
        for i in 0..80 {
            j.step(1, critic);
            for _ in 0..if i % 2 == 0 { 2 } else { 0 } {
                j.beat(2, policy);
                j.beat(3, temperature);
            }
        }
    });
    wrong.none();
}

/// Which model a step trains is drawn: no turns, but for what happens by chance.
#[test]
fn models_that_are_drawn_are_a_step_each_but_for_chance() {
    for (share, of) in [(1, 2), (1, 3), (2, 3)] {
        for other in [1, 2] {
            let (counted, made) = (0..50)
                .map(|seed| {
                    counted(seed, |j| {
                        let two = [j.new_optimizer(), j.new_optimizer()];
                        for _ in 0..400 {
                            let drawn = j.below(of) < share;
                            j.step(if drawn { 1 } else { other }, two[usize::from(drawn)]);
                        }
                    })
                })
                .fold((0, 0), |sums, one| (sums.0 + one.0, sums.1 + one.1));
            assert!(counted <= made && made - counted <= made / 25, "{counted} of {made}: {share} in {of}");
        }
    }
}

/// What the third version wrote after 20 iterations of a GAN.
#[test]
fn state_of_the_third_version_counts_on() {
    let begin = [3, 19, 20 << 32 | 19, 39, 3, 7, 0, 0, 1_000_001_000, 0, 0, 0, 40, 2, 2 << 32 | 2, 40 << 32];
    let lists = [2, 1 << 32 | 20, 2, 2, 1, 0];
    let parties = [
        [1, 1, 39, 1, 0, 1, 0, 0, 20, 1 << 32, 1 << 32 | 1, 0],
        [2, 2, 40, 2, 1 << 32 | 1, 1, 0, 0, 1 << 32 | 20, 1 << 32 | 1, 1 << 32 | 1, 0],
    ];
    let end = [1, 1, 2, 2, 0, 9, 2 << 32, 0, 0, 0];
    let words = [&begin[..], &lists, &[0; 32], parties.as_flattened(), &end].concat();
    let bytes: Vec<u8> = words.iter().flat_map(|w: &u64| w.to_le_bytes()).collect();
    let machine = StepMachine::load(&bytes).expect("what that version wrote");
    assert_eq!((machine.steps(), machine.microbatches(), machine.source()), (19, 39, Optimizer));
    let mut p = Player { machine, ..Player::default() };
    "fbofbp".repeat(5).chars().for_each(|c| p.letter(c));
    p.machine.finish();
    assert_eq!((p.machine.steps(), p.machine.microbatches()), (25, 50));
    for cut in 0..bytes.len() {
        assert_eq!(StepMachine::load(&bytes[..cut]), None, "cut at {cut}");
    }
}

#[test]
fn checkpoints_on_the_way_change_no_count() {
    let patterns: [fn(&mut Job); 3] = [
        |j| j.rollouts(8, Stops::Either, (5, 12)),
        |j| j.lazy(40, 2, (8, 4), 0),
        |j| {
            let (d, g) = (j.new_optimizer(), j.new_optimizer());
            j.gan_of(d, g, 10, 1);
            j.gan_of(d, g, 10, 4);
            (0..20).for_each(|_| j.step(5, d));
        },
    ];
    for pattern in patterns {
        let [whole, cut] = [false, true].map(|checkpoints| {
            let mut job = Job::default();
            job.player.checkpoints = checkpoints;
            pattern(&mut job);
            job.player
        });
        assert_eq!((cut.said, cut.machine), (whole.said, whole.machine));
    }
}

#[test]
fn steps_that_are_known_at_the_end_end_one_by_one() {
    let mut job = Job::default();
    let (actor, critic) = (job.new_optimizer(), job.new_optimizer());
    job.gan_of(actor, critic, 10, 1);
    (0..3).for_each(|_| job.step(2, critic));
    job.gan_of(actor, critic, 5, 1);
    (0..2).for_each(|_| job.step(1, actor));
    let ended = job.player.machine.finish();
    let step = |n| [Some(Boundary::Step { n, source: Optimizer }), None];
    assert_eq!(ended[0][0], step(19)[0]);
    assert_eq!(ended[1..], [step(20)]);
}
