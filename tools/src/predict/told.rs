//! The prediction, in words and as JSON.

use super::cards::{Card, Fits};
use super::peak::{BESIDE, Peak};
use super::settled::Why;
use serde_json::{Value, json};
use strandline::detect::JobVerdict;
use strandline::report::{Align, Style, Table, count, plural, size};

/// All that is told.
pub(super) struct Prediction {
    pub(super) peaks: Vec<Peak>,
    pub(super) cards: Vec<Card>,
    pub(super) steps: u32,
    /// Why the job was ended; `None`: it ended by itself.
    pub(super) ended: Option<Why>,
    /// The word on leaks.
    pub(super) job: JobVerdict,
    /// Bytes that every step adds, of the process that grows fastest; 0: nothing grows.
    pub(super) growth: f64,
}

/// What a simulated GPU cannot tell.
const NOT_SIMULATED: &str = "a simulated GPU computes no values, so a branch that depends on one may go the other way; it has no workspaces of \
    cuDNN, buffers of NCCL, compiled code or memory of CUDA graphs: leave room for these";

impl Prediction {
    /// The highest peak of all devices: allocated and reserved.
    fn needs(&self) -> (u64, u64) {
        let most = |of: fn(&Peak) -> u64| self.peaks.iter().map(of).max().unwrap_or(0);
        (most(|p| p.allocated), most(|p| p.reserved))
    }

    /// Whether it fits all the cards that are told.
    pub(super) fn fits_all(&self) -> bool {
        let (allocated, reserved) = self.needs();
        self.cards.iter().all(|c| !matches!(c.fits(allocated, reserved, BESIDE), Fits::No(_)))
    }

    fn because(&self) -> String {
        let steps = plural(i64::from(self.steps), "step");
        match self.ended {
            None => format!("from the whole job, {steps}"),
            Some(Why::Settled) => format!("from {steps}: the later half needed no more than the first"),
            Some(Why::Grows) => format!("from {steps}; it GROWS with every step, so that it will need more"),
            Some(Why::Unsettled) => {
                format!("from {steps}, of which late ones needed a little more than those before")
            }
            Some(Why::Steps) => {
                format!("from {steps}, as many as were asked for; a later step may need more")
            }
        }
    }

    /// For people.
    pub(super) fn text(&self, style: Style) -> String {
        let (allocated, reserved) = self.needs();
        let needed = reserved.saturating_add(BESIDE);
        let mut lines = style.wrap(
            "strandline: ",
            &format!(
                "NEEDS {} of GPU memory: {} that PyTorch reserves, and {} for the CUDA context and kernels. Predicted on a simulated GPU {}.",
                size(needed),
                size(reserved),
                size(BESIDE),
                self.because()
            ),
        );
        for p in self.peaks.iter().take(8) {
            let who = p.process.as_ref().map(|w| format!("{w}, ")).unwrap_or_default();
            let during = if p.phase == "unknown" { String::new() } else { format!(" ({})", p.phase) };
            lines.extend(style.wrap(
                &format!("  {:9}", "peak"),
                &format!(
                    "{who}GPU {}: {} allocated of {} reserved, in step {}{during}",
                    p.device,
                    size(p.allocated),
                    size(p.reserved),
                    count(p.step.into())
                ),
            ));
            let classes: Vec<String> =
                p.classes.iter().map(|(name, b)| format!("{name} {}", size(*b))).collect();
            lines.extend(style.wrap(&format!("  {:9}", ""), &classes.join(" · ")));
        }
        let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
        for card in &self.cards {
            let fits = match card.fits(allocated, reserved, BESIDE) {
                Fits::Yes(spare) if self.growth >= 1.0 => {
                    let more = (spare as f64 / self.growth) as u64;
                    format!("full after about {} steps", count(more + u64::from(self.steps)))
                }
                Fits::Yes(spare) => format!("fits, {} to spare", size(spare)),
                Fits::Tight(cached) => {
                    format!("tight: only if PyTorch gives back {} of cached memory in time", size(cached))
                }
                Fits::No(missing) => format!("does not fit: {} too little", size(missing)),
            };
            table.row([card.name.clone(), size(card.bytes), fits]);
        }
        for (i, row) in table.lines(0).into_iter().enumerate() {
            lines.push(format!("  {:9}{row}", if i == 0 { "cards" } else { "" }));
        }
        let verdict = self.job.outcome.name();
        lines.extend(style.wrap(&format!("  {:9}", "leaks"), &format!("{verdict}: {}", self.job.reason)));
        lines.extend(style.wrap(&format!("  {:9}", "not seen"), NOT_SIMULATED));
        lines.join("\n") + "\n"
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let (allocated, reserved) = self.needs();
        let card = |c: &Card| {
            let (fits, margin) = match c.fits(allocated, reserved, BESIDE) {
                Fits::Yes(spare) => ("yes", i128::from(spare)),
                Fits::Tight(cached) => ("tight", -i128::from(cached)),
                Fits::No(missing) => ("no", -i128::from(missing)),
            };
            json!({ "name": c.name, "bytes": c.bytes, "fits": fits, "margin_bytes": margin as i64 })
        };
        let ended = self.ended.map(|w| match w {
            Why::Settled => "settled",
            Why::Grows => "grows",
            Why::Steps => "steps",
            Why::Unsettled => "unsettled",
        });
        json!({
            "schema": 1, "growth_bytes_per_step": self.growth, "needed_bytes": reserved.saturating_add(BESIDE), "beside_bytes": BESIDE, "steps": self.steps,
            "ended": ended.unwrap_or("exit"), "devices": self.peaks.iter().map(Peak::json).collect::<Vec<_>>(),
            "cards": self.cards.iter().map(card).collect::<Vec<_>>(), "verdict": self.job.outcome.name(), "reason": self.job.reason,
        })
    }
}
