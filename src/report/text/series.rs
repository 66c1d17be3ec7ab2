//! The steps of a run as a few columns and a curve.

use super::super::model::Process;
use super::super::style::{SIGNS, Style, curve};
use super::super::table::{Align, Table};
use super::super::units::{TableUnit, thousands};
use crate::detect::final_oom;
use crate::event::StepRow;
use crate::replay::Device;
use std::ops::Range;

/// Steps that are all shown by number; of more, the first ones, the last ones, and the one that needed most.
const COLUMNS: usize = 7;
/// Fewer steps than this are no series.
const FEWEST: usize = 3;
/// Points of the curve.
const CURVE: usize = 48;

/// Four lines of figures and one of a curve; nothing for a run of fewer than three steps. `is_cut`: nothing came after the last step
/// that would have freed its gradients; `after`: as of [`after`].
pub(super) fn lines(
    d: &Device,
    grain: &str,
    several: bool,
    is_cut: bool,
    after: Option<u64>,
    style: Style,
) -> Vec<String> {
    if d.rows.len() < FEWEST {
        return Vec::new();
    }
    let peaks: Vec<u64> = d.rows.iter().map(|r| r.peak.0).collect();
    let chosen = choose(&peaks);
    let shown = chosen.iter().flatten().map(|&i| &d.rows[i]);
    let cells = shown.flat_map(|r| [r.allocated.0, r.peak.0, r.reserved.0]).chain(after);
    let cells: Vec<u64> = cells.collect();
    let unit = TableUnit::for_cells(&cells);
    let show = |b: u64| match unit.apportion(&[b]).0[0] {
        0 if b > 0 => format!("<{}", unit.show(1)),
        figure => unit.show(figure),
    };
    let columns = chosen.len() + usize::from(after.is_some());
    let mut t = Table::new(std::iter::once(Align::Left).chain((0..columns).map(|_| Align::Right)));
    let gpu = if several { format!("GPU {}, ", d.id.0) } else { String::new() };
    let mut row = |name: String, last: &dyn Fn(u64) -> String, of: &dyn Fn(&StepRow) -> String| {
        let mut cells = vec![name];
        for c in &chosen {
            cells.push(c.map_or_else(|| style.shown("…").into_owned(), |i| of(&d.rows[i])));
        }
        cells.extend(after.map(last));
        t.row(cells);
    };
    let none = |_| "-".to_owned();
    let number = |r: &StepRow| thousands(r.step.into());
    let later = |_| format!("after {}", d.rows.last().map(number).unwrap_or_default());
    row(format!("{grain}s, {gpu}in {}", unit.name()), &later, &number);
    // Where PyTorch's blocks were not recorded, what was allocated is not known: it is not 0.
    let sees_blocks = d.rows.iter().any(|r| r.peak.0 > 0);
    if sees_blocks {
        row("       at the end".into(), &none, &|r| show(r.allocated.0));
        row("       peak".into(), &show, &|r| show(r.peak.0));
    }
    row("       reserved".into(), &none, &|r| show(r.reserved.0));
    if d.rows.iter().any(|r| r.pending.0 > 0) {
        row("       freed, still in use".into(), &none, &|r| show(r.pending.0));
    }
    let mut out = t.lines(2);
    if d.rows.iter().any(|r| r.pending.0 > 0) {
        let text = "freed, waiting: the job freed it, but a stream may still use it (record_stream)";
        out.extend(style.wrap("         ", text));
    }
    let ends: Vec<u64> = d.rows.iter().map(|r| r.allocated.0).collect();
    if ends.len() > COLUMNS && sees_blocks {
        let (head, tail) = ("         ", format!(" at the end of each {grain}"));
        let most = style.width.saturating_sub(head.len() + tail.len()).clamp(SIGNS.len(), CURVE);
        out.push(format!("{head}{}{tail}", curve(&ends, most)));
    }
    if let Some(last) = d.rows.last().filter(|_| is_cut && has_more(&ends)) {
        let text = format!(
            "each step is shown as of the next one's first allocation; step {}, the last one, as of its optimizer.step(): what the job freed later, such as gradients, is still counted",
            thousands(last.step.into())
        );
        out.extend(style.wrap("         ", &text));
    }
    out
}

/// The peak of a device, where it came after the last step, so that no step has it.
pub(super) fn after(p: &Process<'_>, d: &Device) -> Option<u64> {
    let last = d.rows.last()?.step;
    let is_after =
        d.peak_allocated.step > last && p.replay.ended().is_some() && final_oom(p.replay).is_none();
    is_after.then_some(d.peak_allocated.bytes.0)
}

/// Whether the last value has risen by much more than those before did.
fn has_more(ends: &[u64]) -> bool {
    let rises: Vec<u64> = ends.windows(2).map(|w| w[1].saturating_sub(w[0])).collect();
    let [before @ .., last] = rises.as_slice() else { return false };
    let most = before.iter().rev().take(8).max().copied().unwrap_or(u64::MAX);
    *last > most.saturating_mul(2) && *last >= ends[ends.len() - 1] / 20
}

/// Indices of the rows to show, by their peaks; `None` stands for those left out between.
fn choose(peaks: &[u64]) -> Vec<Option<usize>> {
    let n = peaks.len();
    if n <= COLUMNS {
        return (0..n).map(Some).collect();
    }
    let (first, last) = (0..3, n - 3..n);
    let most = |rows: &Range<usize>| peaks[rows.clone()].iter().copied().max().unwrap_or(0);
    // Of several equal ones, the first.
    let highest = (first.end..last.start).rev().max_by_key(|&i| peaks[i]);
    let highest = highest.filter(|&i| peaks[i] / 100 > most(&first).max(most(&last)) / 99);
    let mut shown: Vec<usize> = first.chain(highest).chain(last).collect();
    let mut c = vec![Some(shown.remove(0))];
    for i in shown {
        if c.last().copied().flatten().is_some_and(|before| before + 1 < i) {
            c.push(None);
        }
        c.push(Some(i));
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Bytes;

    #[test]
    fn the_first_steps_are_shown_and_the_last_and_the_one_that_needed_most() {
        assert_eq!(choose(&[5, 9, 5]), [Some(0), Some(1), Some(2)]);
        let mut peaks = [1000; 100];
        let ends = |middle: &[Option<usize>]| {
            let (first, last) = ([0, 1, 2].map(Some), [97, 98, 99].map(Some));
            [&first[..], middle, &last[..]].concat()
        };
        assert_eq!(choose(&peaks), ends(&[None]));
        (peaks[40], peaks[50]) = (1001, 1001);
        assert_eq!(choose(&peaks), ends(&[None]), "hardly more");
        (peaks[40], peaks[50]) = (3000, 3000);
        assert_eq!(choose(&peaks), ends(&[None, Some(40), None]));
        peaks[3] = 4000;
        assert_eq!(choose(&peaks), ends(&[Some(3), None]));
        peaks[99] = 5000;
        assert_eq!(choose(&peaks), ends(&[None]));
    }

    #[test]
    fn a_peak_after_the_last_step_has_a_column_of_its_own() {
        let row = |n: u64| StepRow { step: n as u32, peak: Bytes(n << 20), ..StepRow::default() };
        let mut d = Device::default();
        d.rows = (1..=3).map(row).collect();
        let of = |after| lines(&d, "step", false, false, after, Style::default());
        assert!(of(None)[0].ends_with(" 3") && of(None)[2].ends_with(" 3"));
        let after = of(Some(9 << 20));
        assert!(
            after[0].ends_with("after 3") && after[1].ends_with('-') && after[2].ends_with(" 9"),
            "{after:?}"
        );
    }

    #[test]
    fn a_last_step_that_keeps_its_gradients_stands_out() {
        assert!(has_more(&[100, 100, 100, 130]));
        assert!(has_more(&[100, 110, 120, 150]));
        assert!(!has_more(&[100, 110, 120, 130]), "a leak");
        assert!(!has_more(&[100, 100, 100, 101]), "too little to matter");
        assert!(!has_more(&[100, 200]) && !has_more(&[]));
    }
}
