//! Steps of jobs that are drawn: trainings of all kinds, one after the other, and models that are drawn for each step.

use super::patterns::Job;

#[test]
fn models_that_are_drawn_for_each_step_are_taken_for_turns_only_by_chance() {
    for n in [2, 3, 5] {
        let mut job = Job { seed: n, ..Job::default() };
        let models: Vec<u64> = (0..n).map(|_| job.new_optimizer()).collect();
        for _ in 0..1000 {
            let i = job.below(n) as usize;
            job.step(1, models[i]);
        }
        let counted = job.player.machine.steps();
        assert!((900..=1000).contains(&counted), "{counted} of 1000 with {n} models");
    }
}

/// Trainings of all kinds, one after the other in one process.
#[test]
fn any_sequence_of_trainings_counts_its_own_steps() {
    let mut wrong = Vec::new();
    for seed in 0..200 {
        let mut job = Job { seed, ..Job::default() };
        let mut kinds = Vec::new();
        for _ in 0..2 + job.below(4) {
            let (kind, n, m) = (job.below(10), 4 + job.below(20) as u32, 1 + job.below(5) as u32);
            kinds.push((kind, n, m));
            match kind {
                0 => job.train(n),
                1 => job.gan(n, m),
                7 => job.gan(2, m),
                8 => {
                    let o = job.new_optimizer();
                    for _ in 0..n {
                        job.backward(1);
                        job.zero();
                        job.step(3, o);
                    }
                }
                9 => {
                    let o = job.new_optimizer();
                    for i in 0..n {
                        job.backward(5);
                        if i > m && i % 4 != 1 {
                            job.run(o);
                        }
                        job.player.letter('s');
                        job.zero();
                        job.steps += 1;
                    }
                }
                2 => job.maml(n, 1 + m / 2, m),
                3 => (0..n).for_each(|_| job.train(m)),
                4 => {
                    let o = job.new_optimizer();
                    (0..n).for_each(|i| job.accumulate(o, u64::from(if i < n / 2 { m } else { 2 * m })));
                }
                5 => {
                    let o = job.new_optimizer();
                    job.step(1, o);
                    (1..n).for_each(|i| if i % 5 == 3 && i + 1 < n { job.skip(1) } else { job.step(1, o) });
                }
                _ => {
                    let (a, b) = (job.new_optimizer(), job.new_optimizer());
                    (0..4 * (m + 1)).for_each(|i| job.step(1, if i / (m + 1) % 2 == 0 { a } else { b }));
                }
            }
        }
        // What is shorter than a round of MAML might be the begin of one.
        job.train(40);
        job.player.machine.finish();
        let counted = job.player.machine.steps();
        if counted != job.steps {
            wrong.push((seed, kinds, "counted", counted, "made", job.steps));
        }
    }
    assert!(wrong.is_empty(), "{} of 200: {wrong:?}", wrong.len());
}
