//! Which of several optimizers end a step: all of them, or, where they take turns, the one that steps least often.
//!
//! A *beat* is what optimizers do between two backwards; optimizers that ever shared a beat are one *party*. Each beat
//! is a step unless a party is seen to take turns: to come back for single beats, twice after the same number of the
//! others' beats. That is a loop with several optimizers in it (a GAN, the outer optimizer of MAML), and its steps are
//! the beats of that party, the *marker*, from the first turn on. Optimizers that replace one another never come back,
//! and models that are trained by turns of many steps do not come back for a single one. Nor do parties of several
//! threads take turns, as long as each keeps to its thread: each trains a model of its own. Where each of the others ran
//! once between two beats of the marker, some may be left out (`once.rs`).
//!
//! A party that runs right after its own beat for gradients from another place is *extra*: a regularization now and
//! then, which belongs to the beat before and is counted among none. A loop of several such runs is another one.

use super::party::{ALIKE, LIMIT, Manner, Party, SETTLED, UNEVEN_SETTLED};
use super::passes::Passes;
use super::threads::Window;
use crate::event::ThreadId;

/// Parties, and optimizers, that are told apart. The one that ran longest ago makes room.
pub(super) const SLOTS: usize = 32;
/// The name under which hooks inside a backward count, all of them together.
pub(super) const IN_BACKWARD: u64 = u64::MAX;
/// Steps of a party that began anew after gradients were dropped, beyond which dropping them says nothing.
const DROPPERS: u32 = 8;

/// Extra runs in a row that are no regularization, but another loop.
const MOVED: u32 = 8;
/// Times in a row that an optimizer must have used gradients of a place where they were dropped before, for a drop there to be a step again.
const USED: u32 = 3;

/// A place whose gradients were dropped before an optimizer ever used them: there that is no step that was skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Dropped {
    /// Stacks of the first and the last backward.
    pub(super) sites: [u32; 2],
    /// Times in a row that an optimizer has used them since.
    pub(super) used: u32,
}

/// All of them, and whether they take turns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Turns {
    pub(super) parties: Vec<Party>,
    pub(super) dropped: Vec<Dropped>,
    /// Optimizers and their parties' labels, in the order in which they were last new.
    pub(super) optimizers: Vec<(u64, u32)>,
    /// Beats so far.
    pub(super) beats: u64,
    /// The last labels that were given: to a party, and to the one that ran last.
    pub(super) labels: u32,
    pub(super) latest: u32,
    /// The last so many beats were a step each.
    pub(super) singly: u32,
    /// Beats of the latest in a row.
    pub(super) stretch: u32,
    /// Beats since optimizers came that were not there before.
    pub(super) fresh: u32,
    /// Number of the first beat of the party that is the newest.
    pub(super) newest: u64,
    /// The party whose beats are the steps; 0: each beat is one.
    pub(super) marker: u32,
    /// Others that were not there before run between two of its beats, as in MAML.
    pub(super) fosters: bool,
    /// Beats of others since its last.
    pub(super) held: u32,
    /// Beats that were no steps since it was chosen.
    pub(super) swallowed: u32,
    /// Each of the others ran once between two of the marker's beats when it was chosen: a loop without one within it.
    pub(super) once: bool,
    /// The marker's beat is the first of its step, not the last.
    pub(super) leads: bool,
    /// Times that the marker has run alone since it is the marker.
    pub(super) alone: u32,
    /// Another has run alone since it was chosen.
    pub(super) left_out: bool,
    /// One line trains it and the others.
    pub(super) one_line: bool,
    /// Times that another took its place though it had.
    pub(super) swaps: u32,
    /// Which of the last beats that were a step each were extra, the last one in the lowest bit; where the last of them
    /// was called from, and how many were in a row.
    pub(super) extras: u64,
    pub(super) extra_site: u32,
    pub(super) in_a_row: u32,
    /// What is known of the source.
    pub(super) passes: Passes,
}

/// What a beat brought about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Heard {
    /// Whose it was.
    pub(super) label: u32,
    /// Steps there are now. Fewer than before: the last ones were parts of one.
    pub(super) count: u32,
    /// It ends a step.
    pub(super) ends: bool,
}

impl Turns {
    /// An optimizer runs after `window`, when `count` steps have ended.
    pub(super) fn hook(&mut self, id: u64, window: &Window, thread: ThreadId, count: u32) -> Heard {
        let sites = window.sites();
        self.dropped.iter_mut().filter(|d| d.sites == sites).for_each(|d| d.used += 1);
        self.dropped.retain(|d| d.used < USED);
        let label = match self.optimizers.iter().find(|o| o.0 == id) {
            Some(o) => o.1,
            None => {
                let skipped = self.parties.iter_mut().find(|p| p.bare && p.recent == sites);
                let label = skipped.map(|p| {
                    p.bare = false;
                    p.label
                });
                let label = label.unwrap_or_else(|| self.found(false));
                self.enrol(id, label);
                label
            }
        };
        if let Some(p) = self.parties.iter_mut().find(|p| p.label == label) {
            if window.hook_drops == 0 {
                (p.clean, p.dirty) = (window.hook_backwards, 0);
            } else {
                p.dirty = p.dirty.saturating_add(1);
            }
        }
        self.beat(label, sites, thread, count)
    }

    /// A step was skipped after `window`, as a scaler says. Whose it was, the place of its backward tells.
    pub(super) fn skip(&mut self, window: &Window, thread: ThreadId, count: u32) -> Heard {
        let label = self.whose(window.sites()).map(|p| p.label);
        let label = label.unwrap_or_else(|| self.found(true));
        self.beat(label, window.sites(), thread, count)
    }

    /// Whether gradients that were dropped after `window` are a step that was skipped: there are as many backwards,
    /// from the same places, as in a step whose optimizer ran, and none were dropped there before. `next`: where the
    /// backward after them is called, if there is one; a step begins there.
    pub(super) fn skipped(&mut self, window: &Window, next: Option<u32>) -> bool {
        let sites = window.sites();
        if let Some(d) = self.dropped.iter_mut().find(|d| d.sites == sites) {
            d.used = 0;
            return false;
        }
        if self.whose(sites).is_none() {
            if self.dropped.len() >= SLOTS {
                self.dropped.remove(0);
            }
            self.dropped.push(Dropped { sites, used: 0 });
            return false;
        }
        let whole = self
            .whose(window.sites())
            .is_some_and(|p| (1..=window.backwards).contains(&p.clean) && p.dirty < DROPPERS);
        whole && next.is_none_or(|site| self.parties.iter().any(|p| p.recent[0] == site))
    }

    /// Another optimizer runs within a beat of `label`'s: they are one party.
    pub(super) fn join(&mut self, id: u64, label: u32) {
        match self.optimizers.iter().find(|o| o.0 == id) {
            Some(&(_, other)) if other != label => {
                self.optimizers.iter_mut().filter(|o| o.1 == other).for_each(|o| o.1 = label);
                self.parties.retain(|p| p.label != other);
                if self.marker == other {
                    self.marker = 0;
                }
            }
            Some(_) => {}
            None if self.optimizers.len() < SLOTS => self.optimizers.push((id, label)),
            None => {}
        }
    }

    /// Whether an optimizer is the one that ran first of those that step together under this label.
    pub(super) fn begins(&self, id: u64, label: u32) -> bool {
        self.optimizers.iter().find(|o| o.1 == label).is_some_and(|o| o.0 == id)
    }

    /// What ran so far made no steps.
    pub(super) fn forget(&mut self) {
        *self = Turns { passes: std::mem::take(&mut self.passes), ..Turns::default() };
    }

    /// Whose backwards were called from these places. Of several, the one whose turn it is: of those that ran since the marker's last turn
    /// began, the one that ran longest ago.
    fn whose(&self, sites: [u32; 2]) -> Option<&Party> {
        let mut all = self.parties.iter().filter(|p| p.recent == sites);
        let marker = self.party(self.marker).filter(|m| self.once && m.recent == sites);
        if let Some(m) = marker {
            let round = self.beats.saturating_sub(u64::from(m.gap) + u64::from(self.held));
            return all.filter(|p| p.last >= round.min(m.last)).min_by_key(|p| p.last);
        }
        let marker = all.clone().find(|p| p.label == self.marker && self.held > 0);
        marker.or_else(|| all.by_ref().max_by_key(|p| p.last))
    }

    /// A new party.
    fn found(&mut self, bare: bool) -> u32 {
        if self.parties.len() >= SLOTS {
            let oldest = self.parties.iter().filter(|p| p.label != self.marker).min_by_key(|p| p.last);
            let gone = oldest.map_or(0, |p| p.label);
            self.parties.retain(|p| p.label != gone);
            self.optimizers.retain(|o| o.1 != gone);
        }
        self.labels = self.labels.wrapping_add(1).max(1);
        self.parties.push(Party { label: self.labels, bare, ..Party::default() });
        self.labels
    }

    fn enrol(&mut self, id: u64, label: u32) {
        if self.optimizers.len() >= SLOTS {
            // Who ran longest ago; the marker comes back.
            let last = |label: u32| self.party(label).map_or(0, |p| p.last);
            let others = self.optimizers.iter().enumerate().filter(|(_, o)| o.1 != self.marker);
            let oldest = others.min_by_key(|(_, o)| last(o.1)).map_or(0, |(i, _)| i);
            let (_, gone) = self.optimizers.remove(oldest);
            if gone != label && !self.optimizers.iter().any(|o| o.1 == gone) {
                self.parties.retain(|p| p.label != gone);
            }
        }
        self.optimizers.push((id, label));
    }

    pub(super) fn party(&self, label: u32) -> Option<&Party> {
        self.parties.iter().find(|p| p.label == label)
    }

    /// Beat of a party whose last backwards were called from these places, when `count` steps have ended.
    fn beat(&mut self, label: u32, sites: [u32; 2], thread: ThreadId, mut count: u32) -> Heard {
        let Some(was) = self.party(label).copied() else {
            return Heard { label, count: count.saturating_add(1), ends: true };
        };
        if let Some(heard) = self.in_pass(label, sites, thread, &mut count) {
            return heard;
        }
        let (manner, gap) = self.manner(&was, sites);
        if manner == Manner::Extra {
            let (count, ends) = self.extra(label, sites, count);
            return Heard { label, count, ends };
        }
        self.in_a_row = 0;
        self.beats = self.beats.saturating_add(1);
        let now = self.beats;
        let prior = self.party(was.prior).map_or(0, |p| p.last);
        // As many as before the turn before; of the first one, those count that take part.
        let same = was.turns > 0 && was.gap == gap || was.turns == 1 && was.lead == gap && prior > was.start;
        let others = self.parties.iter().filter(|p| p.label != label && p.last > was.last).count();
        let wide = gap as usize > others;
        let mut p = was;
        p.series(manner, gap, now, (self.latest, self.stretch), (count, self.singly));
        if p.start == now {
            (p.extras, p.extra_site) = (self.extras, self.extra_site);
        }
        p.wide = p.wide.saturating_add(u32::from(wide && manner == Manner::Turn && was.last > 0));
        p.returned |= was.last > 0 && was.last < now - 1;
        p.moved |= was.last > 0 && was.thread != thread;
        (p.last, p.thread, p.recent, p.sites) = (now, thread, sites, sites);
        if was.last == 0 {
            (p.first, self.newest) = (now, now);
        }
        let elected = manner == Manner::Turn
            && p.takes_turns(same)
            && !self.is_drawn(&was, sites, gap)
            && !self.is_apart(label, sites[0], was.last)
            && !self.parties.iter().filter(|o| o.label != label && o.last > was.last).all(|o| p.is_beside(o));
        self.stretch = if self.latest == label { self.stretch.saturating_add(1) } else { 1 };
        self.latest = label;
        self.parties.iter_mut().filter(|o| o.label == label).for_each(|o| *o = p);
        let (count, ends) = match self.party(self.marker).copied() {
            Some(_) if self.marker == label => self.marked(&was, &p, manner, count),
            Some(marker) => self.between(&marker, &was, &p, elected, count),
            None => (self.single(count, false), true),
        };
        let within = self.marker != label && self.once && elected && wide && p.has_loop_before();
        if within && p.alike >= ALIKE {
            self.begin_anew(label, count);
        }
        if ends && elected && self.marker == 0 || within {
            return Heard { label, count: self.elect(label, count, !wide && p.is_mostly_once()), ends: true };
        }
        Heard { label, count, ends }
    }

    /// A party runs again, for gradients from another place.
    fn extra(&mut self, label: u32, sites: [u32; 2], count: u32) -> (u32, bool) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        let moved = self.in_a_row >= MOVED;
        for p in self.parties.iter_mut().filter(|p| p.label == label) {
            p.recent = sites;
            if moved {
                (p.sites, p.turns) = (sites, 0);
            }
        }
        self.extra_site = sites[0];
        if self.marker == 0 {
            return (self.single(count, true), true);
        }
        if !moved {
            return (count, false);
        }
        // That is no regularization: the program goes on from there.
        (self.marker, self.singly, self.extras) = (0, self.in_a_row, 0);
        (count.saturating_add(self.in_a_row), true)
    }

    /// How a party comes that `was` so before, and after how many beats of others.
    fn manner(&mut self, was: &Party, sites: [u32; 2]) -> (Manner, u32) {
        let gap = u32::try_from(self.beats.saturating_sub(was.last)).unwrap_or(u32::MAX);
        let mut others = self.parties.iter().filter(|p| p.label != was.label && p.last > 0);
        let found = if was.last == 0 {
            // Not there before: what counts is who came with it.
            if self.party(self.latest).is_some_and(|p| p.returned) {
                self.fresh = 0;
            }
            (Manner::Turn, self.fresh)
        } else if gap > 0 {
            (Manner::Turn, gap)
        } else if sites[0] == was.sites[0] {
            (Manner::Again, 0)
        } else if others.any(|p| p.sites[0] == sites[0]) {
            // The others' backward ran before it, and their optimizer did not.
            (Manner::Turn, 1)
        } else if sites[1] == was.sites[1]
            || was.recent == sites && (self.marker == 0 || !self.once && self.marker != was.label)
        {
            // Gradients from elsewhere were dropped before; or it is not the first time there.
            (Manner::Again, 0)
        } else {
            return (Manner::Extra, 0);
        };
        self.fresh = self.fresh.saturating_add(1);
        found
    }

    /// Whether one line trains this party and the others that ran since it `was` so, and some of them more than once: it picks a model for each
    /// step. A loop over its models runs each once.
    fn is_drawn(&self, was: &Party, sites: [u32; 2], gap: u32) -> bool {
        let mut others = self.parties.iter().filter(|p| p.label != was.label && p.last > was.last);
        sites[0] != 0
            && others.clone().all(|p| p.recent[0] == sites[0])
            && others.by_ref().count() < gap as usize
    }

    /// A beat that is a step as long as none takes turns.
    pub(super) fn single(&mut self, count: u32, is_extra: bool) -> u32 {
        self.singly = self.singly.saturating_add(1);
        self.extras = self.extras << 1 | u64::from(is_extra);
        count.saturating_add(1)
    }

    /// A beat of the marker, which `was` so before: how many steps there are now, and whether it ends one.
    fn marked(&mut self, was: &Party, p: &Party, manner: Manner, count: u32) -> (u32, bool) {
        if self.once {
            return self.with_or_without(manner, count);
        }
        // Threads do not wait for each other: what another one runs refutes nothing.
        let beside = self.parties.iter().any(|o| {
            let recent = o.last > 0 && self.beats.saturating_sub(o.last) <= u64::from(LIMIT);
            recent && o.label != p.label && o.thread == p.thread
        });
        match manner {
            Manner::Again if beside => (self.refuted(was, count), true),
            Manner::Turn if beside && !p.is_regular() => (self.refuted(was, count), true),
            _ => {
                self.held = 0;
                self.fosters |= self.newest > was.last;
                (count.saturating_add(1), true)
            }
        }
    }

    /// A beat of another than the marker, which `was` so before.
    fn between(&mut self, marker: &Party, was: &Party, p: &Party, elected: bool, count: u32) -> (u32, bool) {
        if p.first == self.beats && !self.fosters {
            // The program has gone on to something else.
            let count = count.saturating_add(self.unfinished());
            self.marker = 0;
            (self.singly, self.extras) = (0, 0);
            return (self.single(count, false), true);
        }
        if p.is_beside(marker) {
            return (count.saturating_add(1), true);
        }
        self.held = self.held.saturating_add(1);
        self.swallowed = self.swallowed.saturating_add(1);
        if self.once && marker.thread == p.thread {
            return if was.last > marker.last { self.swap(p, count) } else { (count, false) };
        }
        let bound = if marker.thread == p.thread { marker.reach() } else { LIMIT };
        let instead = p.first > marker.last && elected;
        if self.held <= bound && !instead {
            return (count, false);
        }
        // The marker has not come when it should: they were steps, also those before a series that began since.
        (self.marker, self.singly, self.extras) = (0, self.held, 0);
        for p in self.parties.iter_mut().filter(|p| p.turns > 0 && p.start > marker.last) {
            let held = u32::try_from(p.start - marker.last - 1).unwrap_or(0);
            (p.base, p.credit) = (p.base.saturating_add(held), held);
        }
        (count.saturating_add(self.held), true)
    }

    /// A party has come back after as many beats of others as before; `once`: after one of each.
    fn elect(&mut self, label: u32, count: u32, once: bool) -> u32 {
        let Some(p) = self.party(label).copied() else { return count };
        self.fosters = self.newest > (self.beats - 1).saturating_sub(u64::from(p.gap));
        // Who ran before the first turn takes part, or somebody new does each time.
        let prior = self.party(p.prior);
        let whole = self.fosters || prior.is_some_and(|o| o.last > p.start);
        let first = if whole { p.first_round(prior.map_or(0, |o| o.sites[0])) } else { 0 };
        let first = if once { first.saturating_add(self.before(&p, first)) } else { first };
        let rounds = p.base.saturating_sub(first).saturating_add(p.turns).min(count);
        (self.marker, self.held, self.singly, self.swallowed) = (p.label, 0, 0, count - rounds);
        (self.once, self.leads, self.swaps) = (once && !self.fosters, false, 0);
        (self.alone, self.left_out) = (0, false);
        self.one_line =
            self.parties.iter().any(|o| o.label == p.prior && o.recent[0] == p.recent[0] && p.recent[0] != 0);
        rounds
    }

    /// The marker ran twice in a row: it takes no turns, or does so no longer.
    fn refuted(&mut self, m: &Party, count: u32) -> u32 {
        let chance = m.turns < if m.is_even() { SETTLED } else { UNEVEN_SETTLED };
        let count = count.saturating_add(if chance { self.swallowed.saturating_add(1) } else { 1 });
        self.singly = if chance { count.saturating_sub(m.base) } else { 1 };
        (self.marker, self.extras) = (0, 0);
        count
    }
}
