//! Whether a graph that grows with every step may wait for a backward. So does the loss of an actor, from the beginning of an episode to its end,
//! whose critic learns at every step: an optimizer does not step while others do. And so do the steps of an inner loop, or a state that is cut
//! after many steps. What waits for no backward is a graph whose own parameters were stepped meanwhile: they are not what they were when the
//! graph was made, and autograd refuses to go back through it.

use super::objects::{Class, references};
use super::types::Types;
use super::world::World;
use crate::platform::pages::Pages;
use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;

/// Steps of others after which one is waited for: less often than so steps only one that has its own time.
const OTHERS: u64 = 8;
/// Steps after which an optimizer is one that steps.
const STEPPED: u64 = 2;
/// Parameters of those that step, at most; groups of one.
const PARAMETERS: usize = 1_024;
const GROUPS: usize = 256;
/// Optimizers that are kept in mind; of more, those that wait are forgotten, and wait as those do that were never known.
const MOST: usize = 1_024;

/// How often optimizers have stepped. Their addresses are compared, no more.
struct Steps {
    /// By address: its steps, counted on from the most there were when it came; and the most there were at its last.
    of: BTreeMap<u64, (u64, u64)>,
    most: u64,
}

/// Whoever comes here has the GIL, so that nobody else is there; but in a child that was forked meanwhile it may be locked for ever, and is never
/// waited for.
static STEPS: Mutex<Steps> = Mutex::new(Steps::new());

/// An optimizer's step has ended.
pub(crate) fn stepped(optimizer: u64) {
    STEPS.try_lock().into_iter().for_each(|mut steps| steps.stepped(optimizer));
}

/// Whether one of these waits: an optimizer, and the list of its groups of parameters, which one that wraps another shares with it.
pub(super) fn any_waits(optimizers: &[(u64, u64)]) -> bool {
    STEPS.try_lock().is_ok_and(|steps| steps.any_waits(optimizers))
}

/// An optimizer that has stepped lately.
pub(super) struct Stepped {
    pub(super) optimizer: u64,
    /// Of the parameters that it may have changed, the nodes of graphs that add up their gradients.
    pub(super) leaves: HashSet<u64>,
    /// It changed them: they have gradients. Where none of its parameters has one, they were cleared.
    pub(super) is_known: bool,
}

/// Those of these optimizers that have stepped lately. A step changes what has a gradient: where some of an optimizer's parameters have one, the
/// others may be those that wait for a backward, of another part of the model. That is sure as its step ends; later all may have been cleared.
///
/// # Safety
/// With the GIL held and the collector not at work; each is an optimizer and the list of its groups, which are alive.
pub(super) unsafe fn stepped_leaves(
    w: &World,
    types: &mut Types<'_>,
    optimizers: &[(u64, u64)],
) -> Vec<Stepped> {
    let stepped = STEPS.try_lock().map_or(Vec::new(), |steps| steps.stepping(optimizers));
    let (mut all, mut left, pages) = (Vec::new(), PARAMETERS, Pages::default());
    for (optimizer, list) in stepped {
        // SAFETY: the caller's promise.
        let mut tensors = unsafe { parameters(w, types, list) };
        tensors.truncate(left);
        left = left.saturating_sub(tensors.len());
        // SAFETY: what is alive refers to what is.
        let known = unsafe { w.torch.of_python(&tensors) };
        let autograd = w.torch.autograd(&pages, &known);
        let gradients: Vec<u64> = autograd.iter().map(|a| a.grad).collect();
        let gradients = w.torch.implementations(&pages, &gradients);
        let is_known = gradients.iter().any(|g| g.at != 0);
        let changed = autograd.iter().zip(gradients).filter(|(_, g)| g.at != 0 || !is_known);
        let leaves = changed.map(|(a, _)| a.accumulator).filter(|node| *node != 0).collect();
        all.push(Stepped { optimizer, leaves, is_known });
    }
    all
}

/// The parameters in a list of groups.
///
/// # Safety
/// As [`stepped_leaves`].
unsafe fn parameters(w: &World, types: &mut Types<'_>, list: u64) -> Vec<u64> {
    let (mut groups, mut tensors) = (Vec::new(), Vec::new());
    // SAFETY: the caller's promise; what is alive refers to what is.
    unsafe {
        let kind = types.of(list);
        if kind.class == Class::List {
            references(list, kind, &mut |group| groups.push(group));
        }
        for group in groups.into_iter().take(GROUPS) {
            let mut params = None;
            if w.python.is_dict(group) {
                w.python.items(group, |name, value| {
                    params = (w.python.ascii(name) == Some(b"params")).then_some(value);
                    params.is_none()
                });
            }
            let Some(list) = params.filter(|list| types.of(*list).class == Class::List) else { continue };
            references(list, types.of(list), &mut |tensor| tensors.push(tensor));
        }
        tensors.retain(|tensor| types.of(*tensor).class == Class::Tensor);
    }
    tensors
}

impl Steps {
    const fn new() -> Steps {
        Steps { of: BTreeMap::new(), most: 0 }
    }

    fn stepped(&mut self, optimizer: u64) {
        let most = self.most;
        if self.of.len() == MOST && !self.of.contains_key(&optimizer) {
            self.of.retain(|_, (_, last)| *last + OTHERS >= most);
        }
        if self.of.len() == MOST && !self.of.contains_key(&optimizer) {
            return;
        }
        let (own, last) = self.of.entry(optimizer).or_insert((most, most));
        *own += 1;
        self.most = most.max(*own);
        *last = self.most;
    }

    /// Those of these that step: more than once, and not long ago.
    fn stepping(&self, optimizers: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let steps = |optimizer: &u64| {
            self.of.get(optimizer).is_some_and(|(own, last)| *own >= STEPPED && last + OTHERS >= self.most)
        };
        optimizers.iter().filter(|(o, _)| steps(o)).copied().collect()
    }

    fn any_waits(&self, optimizers: &[(u64, u64)]) -> bool {
        let last = |optimizer: &u64| self.of.get(optimizer).map_or(0, |(_, last)| *last);
        optimizers.iter().any(|(_, groups)| {
            let same = optimizers.iter().filter(|(_, g)| g == groups);
            same.map(|(o, _)| last(o)).max().unwrap_or(0) + OTHERS < self.most
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optimizer_waits_that_has_not_stepped_while_others_did() {
        let (actor, critic, both) = ((1, 10), (2, 20), [(1, 10), (2, 20)]);
        let mut s = Steps::new();
        assert!(!s.any_waits(&both), "nobody has stepped");
        (0..5).for_each(|_| s.stepped(2));
        assert!(!s.any_waits(&both), "it may have its own time");
        (0..5).for_each(|_| s.stepped(2));
        assert_eq!(s.stepping(&both), [(2, 20)]);
        assert!(s.any_waits(&both) && s.any_waits(&[actor]) && !s.any_waits(&[critic]));
        s.stepped(1);
        assert!(!s.any_waits(&both));
        (0..20).for_each(|_| [1, 2].into_iter().for_each(|o| s.stepped(o)));
        assert!(!s.any_waits(&both));
    }

    #[test]
    fn one_that_wraps_another_steps_with_it_and_many_small_ones_do_together() {
        let mut s = Steps::new();
        (0..50).for_each(|_| s.stepped(1));
        assert!(!s.any_waits(&[(1, 10), (2, 10)]) && s.any_waits(&[(1, 10), (2, 20)]));
        let mut s = Steps::new();
        let all: Vec<(u64, u64)> = (1..=300).map(|o| (o, o + 1_000)).collect();
        (0..3).for_each(|_| all.iter().for_each(|(o, _)| s.stepped(*o)));
        assert!(!s.any_waits(&all));
    }
}
