//! What the source says of two places that call backward.

use super::patterns::Job;
use super::{Player, StackId};
use crate::event::steps::InPass;

/// Steps of a job in letters, and all that were announced, where the source says this of the places.
fn told(script: &str, passes: &[(char, char, InPass)]) -> (u32, Vec<u32>) {
    let mut p = Player::default();
    for &(a, b, how) in passes {
        p.machine.tell_passes([a, b].map(|c| StackId(u32::from(c))), how);
    }
    script.chars().for_each(|c| p.letter(c));
    p.machine.finish();
    (p.machine.steps(), p.said.iter().map(|s| s.0).collect())
}

const ALWAYS: InPass = InPass::FirstAlways;
const EITHER: InPass = InPass::Either;

#[test]
fn branches_of_an_if_are_steps_of_their_own() {
    let two = "ufbo vfbp".repeat(20);
    assert_eq!(told(&two, &[]).0, 20, "the events are those of a GAN");
    assert_eq!(told(&two, &[('u', 'v', EITHER)]), (40, (1..=39).collect()));
    assert_eq!(told(&two, &[('v', 'u', EITHER)]).0, 40);
    let uneven = "ufbo vfbp vfbp".repeat(20);
    assert_eq!(told(&uneven, &[('u', 'v', EITHER)]).0, 60);
    let three = "ufbo vfbp wfbq".repeat(20);
    let apart = [('u', 'v', EITHER), ('u', 'w', EITHER), ('v', 'w', EITHER)];
    assert_eq!((told(&three, &[]).0, told(&three, &apart).0), (20, 60));
}

#[test]
fn what_some_passes_run_beside_what_each_runs_is_part_of_its_step() {
    let every_other = "ufbo vfbp ufbo".repeat(20);
    let (steps, said) = told(&every_other, &[('u', 'v', ALWAYS)]);
    assert_eq!((steps, said), (40, (1..=39).collect()));
    assert_eq!(told(&every_other, &[]).0, 20);
    let every_fifth = format!("{}vfbp", "ufbo".repeat(5)).repeat(12);
    assert_eq!(told(&every_fifth, &[('u', 'v', ALWAYS)]).0, 60);
    let made_up_for = "ufbo ufbo vfbp vfbp".repeat(12);
    assert_eq!(told(&made_up_for, &[('u', 'v', ALWAYS)]).0, 24);
    let made_up_for_at_once = format!("ufbo vfbp vfbp {}ufbo", "ufbo ufbo vfbp vfbp".repeat(12));
    assert_eq!(told(&made_up_for_at_once, &[('u', 'v', ALWAYS)]).0, 26);
    let two_beside = "ufbo ufbo vfbp wfbq".repeat(12);
    assert_eq!(told(&two_beside, &[('u', 'v', ALWAYS), ('u', 'w', ALWAYS)]).0, 24);
}

#[test]
fn the_first_pass_may_begin_with_what_only_some_run() {
    let (steps, said) = told(&"vfbp ufbo ufbo ufbo".repeat(20), &[('u', 'v', ALWAYS)]);
    assert_eq!(steps, 60);
    assert_eq!(said[..3], [1, 1, 2], "what seemed the first step is folded into it");
    let (steps, said) = told(&"vfbp vfbp ufbo ufbo".repeat(20), &[('u', 'v', ALWAYS)]);
    assert_eq!((steps, &said[..4]), (40, &[1, 2, 1, 2][..]));
}

#[test]
fn a_loop_of_its_own_is_no_part_of_another_step() {
    let once_then_a_loop = format!("ufbo {}", "vfbp".repeat(50));
    assert_eq!(told(&once_then_a_loop, &[('u', 'v', ALWAYS)]).0, 50, "one of them may be a part");
    let each_epoch = once_then_a_loop.repeat(4);
    assert_eq!(told(&each_epoch, &[('u', 'v', ALWAYS)]).0, 200);
    let another_thread = format!("1ufbo {}", "2vfbp 1ufbo ".repeat(20));
    assert_eq!(told(&another_thread, &[('u', 'v', ALWAYS)]).0, told(&another_thread, &[]).0);
}

/// A loop over models that one line trains: each of them once, but where it is skipped.
fn skipping(models: usize, is_skipped: fn(u32, usize) -> bool) -> (u32, u32) {
    let mut j = Job::default();
    let all: Vec<u64> = (0..models).map(|_| j.new_optimizer()).collect();
    for i in 0..60 {
        for (k, o) in all.iter().enumerate() {
            j.backward(1);
            if !is_skipped(i, k) {
                j.run(*o);
            }
            j.zero();
        }
        j.player.letter('s');
        j.steps += 1;
    }
    j.player.machine.finish();
    (j.player.machine.steps(), j.steps)
}

#[test]
fn a_step_that_is_skipped_in_a_loop_over_models_is_of_the_one_whose_turn_it_is() {
    let (counted, made) = skipping(2, |i, k| if k == 0 { i % 7 == 6 } else { i % 11 == 10 });
    assert_eq!(counted, made);
    let (counted, made) = skipping(3, |i, k| i as usize % 13 == 6 + 2 * k);
    assert_eq!(counted, made);
}
