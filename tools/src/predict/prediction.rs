//! The prediction, in words and as JSON.

use super::tried::Change;
use crate::trial::{Card, Fits, Needs, Peak, Why};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use strandline::detect::Outcome;
use strandline::report::{Align, Style, Table, plural, rounded, size, thousands};

/// All that is told.
pub(super) struct Prediction {
    pub(super) needs: Needs,
    pub(super) cards: Vec<Card>,
    /// Changes that were tried.
    pub(super) changes: Vec<Change>,
}

/// What a simulated GPU cannot tell.
const NOT_SIMULATED: &str = "a simulated GPU computes no values, so an `if` on a tensor's value may take the other branch. cuDNN's workspaces are estimates. What torch.compile and CUDA graphs take is not counted, nor are NCCL communicators after the first (486 MiB each on an H200)";

impl Prediction {
    /// Whether it fits all the cards that are told.
    pub(super) fn fits_all(&self) -> bool {
        self.cards.iter().all(|c| !matches!(self.needs.fits(c), Fits::No(_)))
    }

    fn because(&self) -> String {
        let steps = plural(self.needs.steps.into(), self.needs.noun);
        match self.needs.ended {
            None => format!("from the whole job ({steps})"),
            Some(Why::Settled) => {
                format!("from {steps}; the second half of them needed no more than the first half")
            }
            Some(Why::Grows) => {
                format!("from {steps}, after which the job was ended, because its memory GROWS")
            }
            Some(Why::Unsettled) => {
                format!("from {steps}; the later ones needed a little more than the earlier ones")
            }
            Some(Why::Steps) => {
                format!("from {steps}, as --steps says; a later one may need more")
            }
        }
    }

    /// For people.
    pub(super) fn text(&self, style: Style) -> String {
        let (needed, buckets) = (self.needs.bytes(), self.needs.first_buckets());
        let gpus = self.needs.peaks.iter().map(|p| p.device).collect::<BTreeSet<_>>().len();
        let mut lines = style.wrap(
            "strandline: ",
            &format!(
                "NEEDS {}{} of GPU memory{}: {} that PyTorch reserves, {}{} for the CUDA context, kernels and libraries. Predicted on a simulated GPU {}.",
                if self.needs.ended == Some(Why::Grows) { "MORE THAN " } else { "" },
                size(needed),
                if gpus > 1 { format!(" on each of {gpus} GPUs") } else { String::new() },
                size(self.needs.most().1),
                if buckets > 0 { format!("{} for DDP's first buckets, and ", size(buckets)) } else { "and ".to_owned() },
                size(self.needs.libraries()),
                self.because()
            ),
        );
        for p in self.needs.peaks.iter().take(8) {
            let who = p.who.as_ref().map(|w| format!("{w}, ")).unwrap_or_default();
            let during = if p.phase == "unknown" { String::new() } else { format!(" ({})", p.phase) };
            lines.extend(style.wrap(
                &format!("  {:9}", "peak"),
                &format!(
                    "{who}GPU {}: {} allocated of {} reserved, in {} {}{during}",
                    p.device,
                    size(p.allocated),
                    size(p.reserved),
                    self.needs.noun,
                    thousands(p.step.into())
                ),
            ));
            let classes: Vec<String> = p
                .classes
                .iter()
                .filter(|(_, b)| *b >= p.allocated / 1000)
                .map(|(name, b)| format!("{name} {}", size(*b)))
                .collect();
            lines.extend(style.wrap(&format!("  {:9}", ""), &classes.join(" · ")));
        }
        if buckets > 0 {
            lines.extend(style.wrap(&format!("  {:9}", "buckets"), &format!("DDP replaces its buckets of gradients before step 2. If step 1 takes less than about 0.1 s, the old ones ({}) may still be allocated in step 2, on some ranks and in some runs. They are counted in what the job NEEDS", size(buckets))));
        }
        let gpu = format!(
            "simulated with compute capability {}: cuBLAS's workspaces depend on it",
            self.needs.capability
        );
        lines.extend(style.wrap(&format!("  {:9}", "gpu"), &gpu));
        let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
        for card in &self.cards {
            let fits = match self.needs.fits(card) {
                Fits::Yes(spare) => match self.needs.full_after(card) {
                    Some(n) => {
                        let when =
                            format!("full about {} after the start", plural(rounded(n), self.needs.noun));
                        match self.needs.ended {
                            None => format!("fits, {} to spare; if it ran longer, {when}", size(spare)),
                            Some(_) => when,
                        }
                    }
                    None => format!("fits, {} to spare", size(spare)),
                },
                Fits::Tight(cached) => {
                    format!("tight: fits only if PyTorch frees {} of its cache in time", size(cached))
                }
                Fits::No(least) => {
                    let missing = needed.saturating_sub(card.bytes);
                    let least = if least < missing {
                        format!("; {} short even without PyTorch's cache", size(least))
                    } else {
                        String::new()
                    };
                    format!("does not fit: {} short{least}", size(missing))
                }
            };
            table.row([card.name.clone(), size(card.bytes), fits]);
        }
        for (i, row) in table.lines(0).into_iter().enumerate() {
            lines.push(format!("  {:9}{row}", if i == 0 { "cards" } else { "" }));
        }
        lines.extend(self.changes.iter().flat_map(|c| c.text(&self.needs, style)));
        let job = &self.needs.job;
        let verdict = match job.outcome {
            Outcome::Leak => "LEAK",
            Outcome::Growing => "GROWING",
            Outcome::Oom => "OUT OF MEMORY",
            Outcome::Clean => "NO LEAK",
            Outcome::Unknown if job.too_short => "TOO SHORT",
            Outcome::Unknown => "NOT JUDGED",
        };
        lines.extend(style.wrap(&format!("  {:9}", "leaks"), &format!("{verdict}: {}", job.reason)));
        lines.extend(style.wrap(&format!("  {:9}", "limits"), NOT_SIMULATED));
        lines.join("\n") + "\n"
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let card = |c: &Card| {
            let fits = match self.needs.fits(c) {
                Fits::Yes(_) => "yes",
                Fits::Tight(_) => "tight",
                Fits::No(_) => "no",
            };
            let margin = i128::from(c.bytes) - i128::from(self.needs.bytes());
            let full_after = self.needs.full_after(c);
            json!({ "name": c.name, "bytes": c.bytes, "fits": fits, "margin_bytes": margin as i64, "full_after_steps": full_after })
        };
        json!({
            "schema": 1, "growth_bytes_per_step": self.needs.growth, "needed_bytes": self.needs.bytes(), "beside_bytes": self.needs.libraries(), "first_buckets_bytes": self.needs.first_buckets(), "steps": self.needs.steps,
            "ended": self.needs.ended(), "compute_capability": self.needs.capability, "devices": self.needs.peaks.iter().map(Peak::json).collect::<Vec<_>>(),
            "cards": self.cards.iter().map(card).collect::<Vec<_>>(), "verdict": self.needs.job.outcome.name(), "reason": self.needs.job.reason,
            "tried": self.changes.iter().map(|c| c.json(&self.needs)).collect::<Vec<_>>(),
        })
    }
}
