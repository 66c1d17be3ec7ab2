//! What was found, in words and as JSON.

use super::runs::Failure;
use super::search::{Border, Point};
use crate::trial::{Card, Needs, Place, Vary};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use strandline::event::printable;
use strandline::report::{Align, Style, Table, size};

/// What was found for a card.
pub(super) struct Answer {
    pub(super) border: Border,
    /// By value.
    pub(super) points: BTreeMap<u64, Point>,
}

/// What was found of one name.
pub(super) struct Varied<'a> {
    pub(super) asked: &'a Vary,
    pub(super) place: &'a Place,
    /// Names that had no value in the command, and the one that they got.
    pub(super) others: Vec<(&'a str, u64)>,
    /// By value.
    pub(super) needs: BTreeMap<u64, Needs>,
    /// For each card, unless the job failed.
    pub(super) answers: Vec<Answer>,
    pub(super) failure: Option<Failure>,
}

impl Varied<'_> {
    /// The value at the border, and the nearest one that does not fit.
    fn border(&self, answer: &Answer) -> (&'static str, Option<u64>, Option<u64>) {
        let value = |at: usize| self.asked.values.get(at).copied();
        let failing = || answer.points.iter().rev().find(|(_, p)| !p.fits).map(|(value, _)| *value);
        match answer.border {
            Border::All => ("all", self.asked.values.last().copied(), None),
            Border::None => ("none", None, self.asked.values.first().copied()),
            Border::UpTo(at) => ("largest", value(at), value(at + 1).or_else(failing)),
            Border::From(at) => ("smallest", value(at), at.checked_sub(1).and_then(value)),
        }
    }

    /// The sentence on one card.
    fn sentence(&self, card: &Card, answer: &Answer) -> String {
        let (name, given) = (&self.asked.name, &self.asked.given);
        let (_, value, beyond) = self.border(answer);
        let needs = |value: Option<u64>| value.and_then(|v| self.needs.get(&v)).map_or(0, Needs::bytes);
        let named = card.name.chars().next().is_some_and(char::is_alphabetic);
        let on = if named { format!("{} ({})", card.name, size(card.bytes)) } else { card.name.clone() };
        let spare = match card.bytes.checked_sub(needs(value)) {
            Some(spare) => format!("with {} to spare", size(spare)),
            None => "if PyTorch frees cached memory in time, as it did in the trial run".to_owned(),
        };
        let value = value.unwrap_or_default();
        let beyond = beyond.map(|b| format!("{b} needs {}", size(needs(Some(b))))).unwrap_or_default();
        match answer.border {
            Border::All => {
                format!("every {name} of {given} fits {on}; {name}={value} fits {spare}.")
            }
            Border::None => format!("NO {name} of {given} fits {on}: {beyond}."),
            Border::UpTo(_) => {
                format!("{name}={value} is the largest of {given} that fits {on}, {spare}; {beyond}.")
            }
            Border::From(_) => format!(
                "{name}={value} is the smallest of {given} that fits {on}, {spare}: a larger value needs less; {beyond}."
            ),
        }
    }

    /// For people.
    pub(super) fn text(&self, style: Style, cards: &[Card]) -> String {
        let mut lines = Vec::new();
        for (card, answer) in cards.iter().zip(&self.answers) {
            lines.extend(style.wrap("strandline: ", &self.sentence(card, answer)));
        }
        if let Some(f) = &self.failure {
            let what = format!(
                "THE JOB FAILS with {}={} (status {}), so no answer can be given. Its last lines:",
                self.asked.name, f.value, f.status
            );
            lines.extend(style.wrap("strandline: ", &what));
            lines.extend(f.lines.iter().map(|l| format!("    {}", printable(l))));
        }
        let with: String = self.others.iter().map(|(name, value)| format!(", with {name}={value}")).collect();
        if !self.needs.is_empty() {
            let how =
                format!("{} was replaced by each value of {}{with}", self.place.describe(), self.asked.name);
            lines.extend(style.wrap("  how       ", &how));
            lines.extend(self.table(cards));
        }
        if self.needs.values().any(|n| n.growth >= 1.0) {
            let what = "memory grows with every step, so a long run needs more than this: strandline predict says when the card is full";
            lines.extend(style.wrap("  leaks     ", what));
        }
        lines.join("\n") + "\n"
    }

    /// What was needed by value.
    fn table(&self, cards: &[Card]) -> Vec<String> {
        let known = &cards[..self.answers.len().min(cards.len())];
        let align = [Align::Right; 4].into_iter().chain(known.iter().map(|_| Align::Left));
        let mut table = Table::new(align);
        let head = [self.asked.name.as_str(), "allocated", "reserved", "needs"].map(str::to_owned);
        table.row(head.into_iter().chain(known.iter().map(|c| c.name.clone())));
        for (value, needs) in &self.needs {
            let (allocated, reserved) = needs.most();
            let cells = [value.to_string(), size(allocated), size(reserved), size(needs.bytes())];
            let fits = self.answers.iter().map(|a| match a.points.get(value) {
                Some(p) if p.fits => "fits".to_owned(),
                Some(_) => "does not fit".to_owned(),
                None => String::new(),
            });
            table.row(cells.into_iter().chain(fits));
        }
        table.lines(2).into_iter().map(|l| l.trim_end().to_owned()).collect()
    }

    /// For programs.
    pub(super) fn json(&self, cards: &[Card]) -> Value {
        let answers = cards.iter().zip(&self.answers).map(|(card, answer)| {
            let (outcome, value, beyond) = self.border(answer);
            let margin = value.and_then(|v| self.needs.get(&v)).map(|n| i128::from(card.bytes) - i128::from(n.bytes()));
            let fits: Vec<Value> =
                answer.points.iter().map(|(value, p)| json!({ "value": value, "fits": p.fits })).collect();
            json!({
                "name": card.name, "bytes": card.bytes, "outcome": outcome, "value": value, "does_not_fit": beyond,
                "margin_bytes": margin.map(|m| m as i64), "tried": fits,
            })
        });
        let runs = self.needs.iter().map(|(value, n)| {
            let (allocated, reserved) = n.most();
            json!({
                "value": value, "peak_allocated_bytes": allocated, "peak_reserved_bytes": reserved, "needed_bytes": n.bytes(), "first_buckets_bytes": n.first_buckets(),
                "steps": n.steps, "ended": n.ended(), "verdict": n.job.outcome.name(), "growth_bytes_per_step": n.growth,
            })
        });
        let others: serde_json::Map<String, Value> =
            self.others.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let failure = self.failure.as_ref();
        json!({
            "name": self.asked.name, "values": self.asked.given, "replaced": self.place.describe(), "others": others, "beside_bytes": self.needs.values().map(Needs::libraries).max(),
            "cards": answers.collect::<Vec<_>>(), "runs": runs.collect::<Vec<_>>(),
            "failed": failure.map(|f| json!({ "value": f.value, "status": f.status, "output": f.lines })),
        })
    }
}
