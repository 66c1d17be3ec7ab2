//! How quantities are written for people: one place, so that every report says them the same way.
//!
//! Sizes in binary units with one decimal from MiB upwards, counts with thousands separators, durations in the two
//! largest units that matter. Bytes only where they are exact and few.

use crate::event::named;

pub use crate::detect::{numbered, plural, size, size_f, thousands};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// A number of things that need not be whole: `62`, `0.25`, `14.5`.
pub fn quantity(v: f64) -> String {
    let a = v.abs();
    let s = match a {
        a if a >= 100.0 || (a - a.round()).abs() < 0.05 && a >= 1.0 => {
            return thousands(v.round().max(0.0) as u64);
        }
        a if a >= 1.0 => format!("{v:.1}"),
        _ => format!("{v:.2}"),
    };
    s.strip_suffix(".00").unwrap_or(&s).to_owned()
}

/// The same with its noun: `1 block`, `0.25 blocks`, `14.5 blocks`.
pub(super) fn plural_f(v: f64, noun: &str) -> String {
    let number = quantity(v);
    let noun = numbered(u64::from(number == "1"), noun);
    format!("{number} {noun}")
}

/// `0.8 s`, `41 s`, `3 min 37 s`, `5 h 12 min`, `2 d 3 h`.
pub fn duration(nanos: u64) -> String {
    let seconds = nanos as f64 / 1e9;
    let whole = seconds.round() as u64;
    match whole {
        _ if nanos < 1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        _ if seconds < 0.0995 => format!("{:.1} ms", seconds * 1e3),
        _ if seconds < 9.95 => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..3600 => two(whole / 60, "min", whole % 60, "s"),
        3600..86400 => two(whole / 3600, "h", whole % 3600 / 60, "min"),
        _ => two(whole / 86400, "d", whole % 86400 / 3600, "h"),
    }
}

/// The same of whole seconds; of none, as of what is about to happen, `less than a second`.
pub fn seconds(n: u64) -> String {
    match n {
        0 => "less than a second".to_owned(),
        1..10 => format!("{n} s"),
        _ => duration(n.saturating_mul(1_000_000_000)),
    }
}

fn two(a: u64, unit_a: &str, b: u64, unit_b: &str) -> String {
    if b == 0 { format!("{a} {unit_a}") } else { format!("{a} {unit_a} {b} {unit_b}") }
}

/// `0.3 %`, `12 %`.
pub fn percent(fraction: f64) -> String {
    let p = fraction * 100.0;
    if p.abs() < 9.95 { format!("{p:.1} %") } else { format!("{p:.0} %") }
}

/// Parts of a whole as whole percents that add up to what the parts do.
pub(super) fn whole_percents(parts: &[f64]) -> Vec<u64> {
    /// Billionths.
    const PERCENT: u128 = 10_000_000;
    let parts: Vec<u128> = parts.iter().map(|p| (p.max(0.0) * 1e9).round() as u128).collect();
    apportion(&parts, PERCENT, (parts.iter().sum::<u128>() + PERCENT / 2) / PERCENT)
}

/// Rounds parts to figures of so much each that add up to `total`: those with the largest remainders are rounded up.
fn apportion(parts: &[u128], grain: u128, total: u128) -> Vec<u64> {
    let mut out: Vec<u128> = parts.iter().map(|p| p / grain).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(parts[i] % grain));
    // Fewer than one unit per part can be missing, as each was rounded down by less than one.
    let missing = total.saturating_sub(out.iter().sum()) as usize;
    for &i in order.iter().take(missing) {
        out[i] += 1;
    }
    out.into_iter().map(|v| v as u64).collect()
}

named! {
    /// The unit of a table whose figures must add up.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TableUnit {
        /// Tenths of a GiB.
        GiB = "GiB",
        /// Whole MiB.
        MiB = "MiB",
        /// Whole KiB.
        KiB = "KiB",
    }
}

impl TableUnit {
    /// GiB, or MiB where the part that matters would drown in tenths of a GiB.
    pub fn for_part(bytes: u64) -> TableUnit {
        if bytes as f64 >= 2.0 * GIB { TableUnit::GiB } else { TableUnit::MiB }
    }

    /// The unit of a table with these figures: that of the largest, unless most of the others would read 0 in it.
    pub fn for_cells(cells: &[u64]) -> TableUnit {
        let largest = TableUnit::for_part(cells.iter().copied().max().unwrap_or(0));
        let finer = [TableUnit::GiB, TableUnit::MiB].into_iter().skip_while(|u| *u != largest);
        let some = || cells.iter().filter(|c| **c > 0);
        let is_mostly_zero =
            |u: &TableUnit| some().filter(|c| **c < u.grain() / 2).count() * 2 > some().count();
        match finer.take_while(is_mostly_zero).last() {
            None => largest,
            Some(TableUnit::GiB) => TableUnit::MiB,
            Some(_) => TableUnit::KiB,
        }
    }

    /// Bytes of one printed digit.
    fn grain(self) -> u64 {
        match self {
            TableUnit::GiB => (1 << 30) / 10,
            TableUnit::MiB => 1 << 20,
            TableUnit::KiB => 1 << 10,
        }
    }

    /// A figure that [`TableUnit::apportion`] gave, as text.
    pub fn show(self, figure: u64) -> String {
        match self {
            TableUnit::GiB => format!("{}.{}", thousands(figure / 10), figure % 10),
            TableUnit::MiB | TableUnit::KiB => thousands(figure),
        }
    }

    /// Rounds parts so that the printed figures sum to the printed total (the largest remainders are rounded up).
    /// The total is the rounded sum of the parts; it is returned last.
    pub fn apportion(self, parts: &[u64]) -> (Vec<u64>, u64) {
        let total = self.round(parts.iter().map(|&p| u128::from(p)).sum());
        (self.apportion_to(parts, total), total)
    }

    /// Bytes as the nearest figure.
    pub fn round(self, bytes: u128) -> u64 {
        let grain = u128::from(self.grain());
        ((bytes + grain / 2) / grain) as u64
    }

    /// The same as [`TableUnit::apportion`] for a total that is printed elsewhere; it is no less than the whole units of the parts' sum.
    pub fn apportion_to(self, parts: &[u64], total: u64) -> Vec<u64> {
        let parts: Vec<u128> = parts.iter().map(|&p| u128::from(p)).collect();
        apportion(&parts, self.grain().into(), total.into())
    }
}

/// A forecast in three figures: nobody knows more.
pub fn rounded(n: u64) -> u64 {
    rounded_as(n, n)
}

/// The same, with as many figures as three of another number have.
pub(super) fn rounded_as(n: u64, other: u64) -> u64 {
    let unit = 10u64.pow(other.checked_ilog10().unwrap_or(0).saturating_sub(2));
    n.saturating_add(unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_quantities() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(411_208), "411,208");
        assert_eq!(thousands(1_000_000), "1,000,000");
        assert_eq!(quantity(62.02), "62");
        assert_eq!(quantity(14.5), "14.5");
        assert_eq!(quantity(0.25), "0.25");
        assert_eq!(quantity(0.0), "0");
        assert_eq!(quantity(1234.5), "1,235");
        assert_eq!([0.25, 1.0, 62.02].map(|v| plural_f(v, "block")), ["0.25 blocks", "1 block", "62 blocks"]);
    }

    #[test]
    fn parts_of_a_whole_add_up_to_it() {
        assert_eq!(whole_percents(&[0.7022, 0.1084, 0.1084, 0.081]), [70, 11, 11, 8]);
        assert_eq!(whole_percents(&[1.0 / 3.0; 3]), [34, 33, 33]);
        assert_eq!(whole_percents(&[0.998, 0.002]), [100, 0]);
        assert_eq!(whole_percents(&[]), [0u64; 0]);
    }

    #[test]
    fn durations_name_two_units() {
        let s = 1_000_000_000u64;
        for (nanos, text) in [
            (900, "0.9 µs"),
            (12_300_000, "12.3 ms"),
            (s / 2, "0.5 s"),
            (41 * s, "41 s"),
            (217 * s, "3 min 37 s"),
            (3600 * s, "1 h"),
            (18_720 * s, "5 h 12 min"),
            (183_600 * s, "2 d 3 h"),
        ] {
            assert_eq!(duration(nanos), text);
        }
    }

    #[test]
    fn a_tables_unit_is_one_in_which_most_of_it_can_be_read() {
        let (kib, mib, gib) = (1u64 << 10, 1u64 << 20, 1u64 << 30);
        for (cells, unit) in [
            (vec![], TableUnit::MiB),
            (vec![0, 3 * gib, 2 * gib], TableUnit::GiB),
            (vec![8 * gib, 17 * mib, 18 * mib, 22 * mib], TableUnit::MiB),
            (vec![300 * mib, 20 * mib], TableUnit::MiB),
            (vec![2 * mib, 100 * kib, 90 * kib, 80 * kib], TableUnit::KiB),
            (vec![8 * gib, 100 * kib, 90 * kib], TableUnit::KiB),
        ] {
            assert_eq!(TableUnit::for_cells(&cells), unit, "{cells:?}");
        }
    }

    #[test]
    fn printed_parts_sum_to_the_printed_total() {
        let mut seed = 88172645463325252u64;
        for unit in [TableUnit::GiB, TableUnit::MiB] {
            for n in 1..12 {
                for _ in 0..200 {
                    let parts: Vec<u64> = (0..n)
                        .map(|_| {
                            seed ^= seed << 13;
                            seed ^= seed >> 7;
                            seed ^= seed << 17;
                            seed >> (20 + seed % 24)
                        })
                        .collect();
                    let (shown, total) = unit.apportion(&parts);
                    assert_eq!(shown.iter().sum::<u64>(), total, "{parts:?}");
                    for (p, s) in parts.iter().zip(&shown) {
                        assert!(s.abs_diff(p / unit.grain()) <= 1, "{p} shown as {s}");
                    }
                }
            }
        }
        assert_eq!(TableUnit::GiB.show(174), "17.4");
        assert_eq!(TableUnit::MiB.show(143_771), "143,771");
    }
}
