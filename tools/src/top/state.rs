//! What is selected, sorted and filtered, and what a key does to it.

use super::rank::{Key, Rank};
use crate::say;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::cmp::Reverse;
use strandline::event::named;

named! {
    /// What rows are ordered by, as the screen says it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) enum Sort {
        #[default]
        Rank = "process",
        Growth = "growth",
        Allocated = "allocated",
        FullIn = "full in",
        LastEvent = "last event",
    }
}

impl Sort {
    fn next(self) -> Sort {
        Sort::ALL[(self as usize + 1) % Sort::ALL.len()]
    }
}

/// What keys go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Rows,
    /// The filter is being typed.
    Filter,
    /// The stack of one of the selected row's lines is open.
    Stack(usize),
    /// What keys and columns mean.
    Help,
}

/// What a key asks for that the state cannot do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Nothing,
    Quit,
    Snapshot,
}

/// The state of the screen.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) rows: Vec<Rank>,
    pub(super) mode: Mode,
    pub(super) sort: Sort,
    pub(super) filter: String,
    /// What came of the last snapshot.
    pub(super) message: String,
    /// The terminal's locale has nothing but ASCII.
    pub(super) ascii: bool,
    /// None: the first.
    pub(super) selected: Option<Key>,
}

impl State {
    /// The rows that the filter keeps, in order.
    pub(super) fn shown(&self) -> Vec<&Rank> {
        let wanted = self.filter.to_lowercase();
        let mut rows: Vec<&Rank> = self.rows.iter().filter(|r| text(r).contains(&wanted)).collect();
        // Stable: rows come by rank, and those without one by number.
        rows.sort_by_key(|r| (r.rank.unwrap_or(u64::MAX), r.pid, r.key.clone()));
        let rate = |r: &&Rank| r.growth.as_ref().map_or(0, |g| g.bytes.max(0.0) as u64);
        let full = |r: &&Rank| r.growth.as_ref().and_then(|g| g.full).map_or(u64::MAX, |f| f.mid);
        match self.sort {
            Sort::Rank => {}
            Sort::Growth => rows.sort_by_key(|r| Reverse(rate(r))),
            Sort::Allocated => rows.sort_by_key(|r| Reverse(r.allocated)),
            Sort::FullIn => rows.sort_by_key(full),
            // Whoever has been silent longest first: a rank that hangs is found this way.
            Sort::LastEvent => rows.sort_by_key(|r| (r.ended, r.last_event)),
        }
        rows
    }

    /// What the process of a row is called in a narrow column: its rank, if it has one and no other has it, too (`true`), else its
    /// number.
    pub(super) fn name(&self, row: &Rank) -> (bool, String) {
        let is_twin = |r: &Rank| r.rank == row.rank && r.key.0 != row.key.0;
        match row.rank.filter(|_| !self.rows.iter().any(is_twin)) {
            Some(rank) => (true, rank.to_string()),
            None => (false, row.pid.to_string()),
        }
    }

    /// Which of the rows that are shown is selected; the first where that one is not shown.
    pub(super) fn at(&self, shown: &[&Rank]) -> usize {
        shown.iter().position(|r| Some(&r.key) == self.selected.as_ref()).unwrap_or(0)
    }

    /// Does what a key means.
    pub(super) fn key(&mut self, key: KeyEvent) -> Ask {
        if key.kind == KeyEventKind::Release {
            return Ask::Nothing;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Ask::Quit;
        }
        match self.mode {
            Mode::Filter => self.filter_key(key.code),
            Mode::Stack(site) => self.stack_key(site, key.code),
            // Any key leads back.
            Mode::Help => self.mode = Mode::Rows,
            Mode::Rows => return self.rows_key(key.code),
        }
        Ask::Nothing
    }

    fn rows_key(&mut self, key: KeyCode) -> Ask {
        // It has been read, and covers the keys.
        self.message.clear();
        match key {
            KeyCode::Char('q') => return Ask::Quit,
            KeyCode::Char('p') if !self.shown().is_empty() => return Ask::Snapshot,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up => self.select(|at| at.saturating_sub(1)),
            KeyCode::Down => self.select(|at| at + 1),
            KeyCode::Enter if self.sites() > 0 => self.mode = Mode::Stack(0),
            _ => {}
        }
        Ask::Nothing
    }

    fn filter_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.mode = Mode::Rows,
            KeyCode::Esc => (self.mode, self.filter) = (Mode::Rows, String::new()),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
    }

    fn stack_key(&mut self, site: usize, key: KeyCode) {
        self.mode = match key {
            KeyCode::Up => Mode::Stack(site.saturating_sub(1)),
            KeyCode::Down => Mode::Stack((site + 1).min(self.sites().saturating_sub(1))),
            KeyCode::Enter | KeyCode::Esc | KeyCode::Char('q') => Mode::Rows,
            _ => self.mode,
        }
    }

    fn select(&mut self, to: impl Fn(usize) -> usize) {
        let shown = self.shown();
        let to = to(self.at(&shown)).min(shown.len().saturating_sub(1));
        let key = shown.get(to).map(|r| r.key.clone());
        self.selected = key;
    }

    fn sites(&self) -> usize {
        let shown = self.shown();
        shown.get(self.at(&shown)).map_or(0, |r| r.sites.len())
    }
}

/// What the filter looks into.
fn text(r: &Rank) -> String {
    let rank = r.rank.map(|n| format!("rank {n}")).unwrap_or_default();
    let places: Vec<&str> = r.sites.iter().map(|s| s.place.as_str()).collect();
    format!("{rank}\n{}\n{}\n{}", r.title, say::path(&r.key.0), places.join("\n")).to_lowercase()
}
