//! One of the optimizers that may take turns, or several that step together: what is known of how it comes back.

use crate::event::ThreadId;

/// Beats of others between two of a party beyond which it takes no turns with them.
pub(super) const LIMIT: u32 = 32;
/// Turns after which it is settled that a loop takes turns. Before, a marker that runs twice in a row shows that it
/// was chance, and what was taken for parts of steps are steps after all.
pub(super) const SETTLED: u32 = 8;
/// Turns after which it does not matter that there were now more and now fewer beats of others between them; until
/// when that is settled.
const UNEVEN: u32 = 32;
pub(super) const UNEVEN_SETTLED: u32 = 128;
/// Turns in a row after the same number of beats that show a loop within the loop, where there was none before.
pub(super) const ALIKE: u32 = 6;

/// Optimizers that step together, or a place whose steps were skipped so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Party {
    /// Its name, from 1.
    pub(super) label: u32,
    /// Numbers of its first and its last beat; 0: none.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Who ran it last.
    pub(super) thread: ThreadId,
    /// Several threads have run it, as those of a pool do.
    pub(super) moved: bool,
    /// It has come back after others.
    pub(super) returned: bool,
    /// All of its steps were skipped so far: its optimizer is not known.
    pub(super) bare: bool,
    /// Stacks of the first and last backward before its last regular turn.
    pub(super) sites: [u32; 2],
    /// The same of its last beat.
    pub(super) recent: [u32; 2],
    /// Single beats in a row, each after beats of others.
    pub(super) turns: u32,
    /// Number of the first of them.
    pub(super) start: u64,
    /// Who had run before it, and how often in a row.
    pub(super) prior: u32,
    pub(super) lead: u32,
    /// Steps there were before it.
    pub(super) base: u32,
    /// The last so many of those were a beat each: parts of the first turn, if there were as many before later ones.
    pub(super) credit: u32,
    /// Beats of others before its last turn.
    pub(super) gap: u32,
    /// The most of them before a turn.
    pub(super) widest: u32,
    /// Turns, from the third on, before which there were not as many as before the one before; the last so many in a
    /// row had as many; and those before which another ran more than once.
    pub(super) uneven: u32,
    pub(super) alike: u32,
    pub(super) wide: u32,
    /// Which of the beats before the first of its turns were extra, the last one in the lowest bit, and from where.
    pub(super) extras: u64,
    pub(super) extra_site: u32,
    /// Backwards in its last step whose gradients were kept until the optimizer ran; 0: there was none.
    pub(super) clean: u32,
    /// Steps since then.
    pub(super) dirty: u32,
}

/// How a party comes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Manner {
    /// Others ran since.
    Turn,
    /// Nobody did.
    Again,
    /// Nobody did, and its gradients come from another place: a regularization now and then.
    Extra,
}

impl Party {
    /// Whether it ran, last for gradients from this place.
    pub(super) fn is_at(&self, place: u32) -> bool {
        self.last > 0 && self.recent[0] == place
    }

    /// Beat number `now` is of it, after so many in a row of `prior`'s, when `count` steps have ended, the last of
    /// which (`singly`) were a beat each.
    pub(super) fn series(
        &mut self,
        manner: Manner,
        gap: u32,
        now: u64,
        prior: (u32, u32),
        (count, singly): (u32, u32),
    ) {
        if manner == Manner::Again {
            self.turns = 0;
        } else if self.turns == 0 || gap > self.limit() {
            (self.turns, self.base, self.credit) = (1, count, gap.min(singly));
            (self.gap, self.widest, self.uneven, self.alike, self.wide) = (gap, 0, 0, 0, 0);
            (self.start, self.prior, self.lead) = (now, prior.0, prior.1);
        } else {
            self.alike = if self.gap == gap { self.alike.saturating_add(1) } else { 0 };
            self.uneven = self.uneven.saturating_add(u32::from(self.turns > 1 && self.gap != gap));
            self.turns = self.turns.saturating_add(1);
            (self.gap, self.widest) = (gap, self.widest.max(gap));
            if self.turns == SETTLED {
                self.credit = self.credit.min(self.widest);
            }
        }
    }

    /// Of the steps before its first turn, the last so many are parts of it: as many beats as before later ones, and
    /// what was extra among them. `regular`: where those are called from by now.
    pub(super) fn first_round(&self, regular: u32) -> u32 {
        let (all, extra, older) = self.beats_before(self.credit);
        // What seemed extra after several beats from elsewhere was the begin of this loop, if it is the rule here.
        if extra > 0 && older > 1 && self.extra_site == regular {
            return all.min(self.widest);
        }
        self.beats_before(self.credit.min(self.widest)).0
    }

    /// Of the beats before its first turn the last ones, with so many that were not extra: how many they are, how many
    /// of them were extra, and how many came before those.
    fn beats_before(&self, regular: u32) -> (u32, u32, u32) {
        let (mut extra, mut older, mut bits) = (0, 0, self.extras);
        let regular = regular.min(u64::BITS);
        let mut left = regular;
        while left > 0 {
            if bits & 1 == 0 {
                (left, older) = (left - 1, older + 1);
            } else {
                (extra, older) = (extra + 1, 0);
            }
            bits >>= 1;
        }
        (regular + extra, extra, older)
    }

    /// Before its turns another one runs more than once, as in a loop within the loop: as often each time, or mostly.
    pub(super) fn has_loop_before(&self) -> bool {
        self.alike >= ALIKE || self.turns >= UNEVEN && self.wide > self.turns / 2
    }

    /// Before most of its turns each of the others ran once.
    pub(super) fn is_mostly_once(&self) -> bool {
        self.is_even() || self.wide <= self.turns / 4
    }

    /// It has come back for single beats often enough, the last time after the `same` number of others as before.
    pub(super) fn takes_turns(&self, same: bool) -> bool {
        let often = self.turns >= UNEVEN || self.turns >= 2 && same && self.is_even();
        often && (1..=LIMIT).contains(&self.gap)
    }

    /// A thread of its own runs this one, and another thread the other.
    pub(super) fn is_beside(&self, other: &Party) -> bool {
        self.thread != other.thread && !self.moved && !other.moved
    }

    pub(super) fn is_even(&self) -> bool {
        self.uneven <= self.turns / 4
    }

    pub(super) fn is_regular(&self) -> bool {
        self.is_even() || self.turns >= UNEVEN
    }

    /// Beats of others after which its turns are over.
    pub(super) fn limit(&self) -> u32 {
        if self.turns < SETTLED { LIMIT } else { self.widest.saturating_mul(2).saturating_add(1).min(LIMIT) }
    }

    /// Beats of others after which it should have come.
    pub(super) fn reach(&self) -> u32 {
        if self.uneven == 0 {
            self.widest
        } else {
            self.widest.saturating_mul(2).saturating_add(1).min(LIMIT)
        }
    }
}
