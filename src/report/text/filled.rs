//! What filled a device at a moment, as a table that adds up.

use super::super::anatomy::{Part, context, parts};
use super::super::model::{Facts, Moment, Process};
use super::super::style::{GLUE, Ink, Style};
use super::super::units::{TableUnit, thousands};
use super::place::in_step;
use crate::detect::{Finding, GrainName, Outcome};
use crate::replay::GRACE;
use crate::replay::anatomy::At;

/// Columns of the rows' names.
const NAMES: usize = 17;

/// The table, three to five lines.
pub(super) fn lines(p: &Process<'_>, m: &Moment, style: Style) -> Vec<String> {
    let t = parts(p, m);
    let unit = TableUnit::for_part(m.anatomy.reserved.0.max(m.anatomy.allocated.0));
    // What is printed adds up, and what was allocated and what was left behind are the figures that other tables have.
    let bytes = |parts: &[Part]| -> Vec<u64> { parts.iter().map(|x| x.bytes).collect() };
    let sum = |parts: &[u64]| parts.iter().map(|b| u128::from(*b)).sum::<u128>();
    let (job, rest) = (bytes(&t.job), bytes(&t.rest));
    let found = [t.left_behind, t.growing, t.suppressed];
    let allocated = sum(&job) + sum(&found);
    let total = unit.round(allocated + sum(&rest));
    let [left, growing, suppressed] = found.map(|b| unit.round(b.into()));
    let job = &unit.apportion_to(&job, unit.round(allocated).saturating_sub(left + growing + suppressed))[..];
    let rest = &unit.apportion_to(&rest, total - unit.round(allocated))[..];

    let mut out = title(p, m, unit, total, t.whole_device, style);
    let wide = [job.iter().sum(), rest.iter().sum(), left].map(|v: u64| unit.show(v).len());
    let wide = wide.into_iter().max().unwrap_or(0).max(5);
    let mut row = |name: &str, figure: u64, text: &str, ink: Option<Ink>| {
        // What is there, and too little for a figure.
        let figure = if figure > 0 { unit.show(figure) } else { format!("<{}", unit.show(1)) };
        let head = format!("    {name:NAMES$}{figure:>wide$}  ");
        let lines = style.wrap(&head, text);
        out.extend(lines.into_iter().map(|l| ink.map_or_else(|| l.clone(), |i| style.paint(i, &l))));
    };
    if t.job.iter().any(|x| x.bytes > 0) {
        row("normal use", job.iter().sum(), &list(&t.job, job, unit), None);
    }
    if t.left_behind > 0 {
        row("left behind", left, &by_whom(p, m), Some(Ink::Bad));
    }
    if t.growing > 0 {
        row(
            "growing",
            growing,
            &format!("blocks that are replaced by larger ones again and again, old and new{}", arrow(p, m)),
            Some(Ink::Bad),
        );
    }
    if t.suppressed > 0 {
        row("suppressed", suppressed, "growth that you chose to ignore (see the note)", None);
    }
    if rest.iter().any(|f| *f > 0) {
        row("the rest", rest.iter().sum(), &list(&t.rest, rest, unit), None);
    }
    if let Some(c) = context(p, m).and(p.contexts.get(&m.device)) {
        // Under the list that it explains.
        let head = " ".repeat(4 + NAMES + wide + 2);
        let text =
            format!("CUDA context: measured in an empty process on {}, driver {}", c.measured, c.driver);
        out.extend(style.wrap(&head, &text));
    }
    out
}

/// What was found to be left behind on the device.
fn blamed<'p>(p: &'p Process<'_>, m: &Moment) -> impl Iterator<Item = &'p Finding> + Clone + use<'p> {
    let device = m.device;
    p.findings.iter().filter(move |f| f.is_active_leak() && f.device == device)
}

/// `GPU 0 (RTX 3090), in GiB, when the allocation failed in step 19    card 23.7`.
fn title(p: &Process<'_>, m: &Moment, unit: TableUnit, total: u64, whole: bool, style: Style) -> Vec<String> {
    let step = p.replay.step_source().noun();
    let within = format!("in {step} {}", thousands(m.anatomy.step.into()));
    let when = match m.at {
        At::Oom => format!("when the allocation failed {within}"),
        At::Peak => format!("at its peak {}", in_step(p, m.anatomy.step)),
        At::Event => format!("at the end of {step} {}", thousands(m.anatomy.step.into())),
    };
    let facts = Facts::of(p.replay);
    let name = facts.device_name(m.device).map(|n| format!(" ({n})")).unwrap_or_default();
    let renumbered = facts.visible_as(m.device).map(|n| format!(" (GPU {n} of the machine)"));
    let gpu = format!("  GPU {}{}", m.device.0, renumbered.unwrap_or_default());
    let rest = format!(", in {}, {when}", unit.name());
    let sum = match whole {
        true => format!("card {}", unit.show(total)),
        false => format!("reserved by PyTorch {}", unit.show(total)),
    };
    let by = if whole { "" } else { " (the card's size is not known)" };
    // The fullest line that fits.
    let choices = [(name.as_str(), by), ("", by), ("", "")];
    let line = |(name, by): (&str, &str)| {
        let left = format!("{gpu}{name}{rest}");
        format!("{left}{}{sum}{by}", " ".repeat(2.max(58usize.saturating_sub(left.chars().count()))))
    };
    let fits = choices.into_iter().map(line).find(|l| l.chars().count() <= style.width);
    fits.map_or_else(|| style.wrap("  ", &format!("{gpu}{rest}; {sum}")), |line| vec![line])
}

/// `weights 6.1 · gradients 0.1`; what rounds to nothing is left out.
fn list(parts: &[Part], figures: &[u64], unit: TableUnit) -> String {
    let shown: Vec<String> = (parts.iter().zip(figures))
        .filter(|(_, f)| **f > 0)
        .map(|(p, &f)| {
            // A short name stays in one piece; of a long one the last word stays with its figure.
            let name =
                if p.name.len() > 24 { p.name.clone() } else { p.name.replace(' ', &GLUE.to_string()) };
            format!("{name}{GLUE}{}", unit.show(f))
        })
        .collect();
    shown.join(" · ")
}

/// That the verdict is about this: a finding that it does not stand on is not called the leak.
fn arrow(p: &Process<'_>, m: &Moment) -> &'static str {
    match p.verdict.outcome {
        Outcome::Leak if blamed(p, m).count() > 1 => " ← the leaks",
        Outcome::Leak => " ← the leak",
        Outcome::Growing => " ← what grows",
        _ => "",
    }
}

/// `by steps 1 to 18   ← the leak`.
fn by_whom(p: &Process<'_>, m: &Moment) -> String {
    let arrow = arrow(p, m);
    let Some(first) = blamed(p, m).min_by_key(|f| f.first_step) else { return arrow.trim_start().to_owned() };
    let n = first.first_step;
    // Blocks of the last steps are too young to be called left behind.
    let last = m.anatomy.step.saturating_sub(1).min(p.replay.steps().saturating_sub(GRACE)).max(n);
    let who = match first.grain {
        GrainName::Microbatch => format!("since microbatch {}", thousands(n.into())),
        grain if last == n => format!("by {} {}", grain.noun(), thousands(n.into())),
        grain => format!("by {}s {} to {}", grain.noun(), thousands(n.into()), thousands(last.into())),
    };
    // Of a job that goes on to allocate there, the newest are not counted yet.
    let young =
        if last < m.anatomy.step.min(p.replay.steps()) { " (newer blocks are too new to judge)" } else { "" };
    format!("{who}{young}{arrow}")
}
