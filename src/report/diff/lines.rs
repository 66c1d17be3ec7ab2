//! Which line of one version of a file is which of another: by function and order, since what is inserted moves all that follows.
//!
//! A recording has no source text. Lines that allocate are matched in their order within a file, only within functions of one name,
//! and so that as many as possible have moved by as much as their neighbours. What several answers fit equally has not moved.

use std::collections::BTreeMap;

/// A pair counts so much.
const PAIR: i64 = 4;
/// It moved as far as the pair before it.
const SAME: i64 = 3;
/// It has not moved.
const STAYS: i64 = 1;
/// Files with more pairs to try are matched by number alone.
const MOST: usize = 4_000_000;

/// Line and function.
pub(super) type Place = (u32, String);

/// The lines of `base`, with the line of `new` that each is; both by line. A line of `base` that is none of `new` is not in it.
pub(super) fn matched(base: &[Place], new: &[Place]) -> BTreeMap<Place, Place> {
    let mut found = in_order(base, new);
    // A function that was moved past another is not in the order of the file: those that are left are matched by themselves.
    let left = |all: &[Place], taken: &dyn Fn(&Place) -> bool| -> BTreeMap<String, Vec<Place>> {
        let mut by_function: BTreeMap<String, Vec<Place>> = BTreeMap::new();
        for place in all.iter().filter(|p| !taken(p)) {
            by_function.entry(place.1.clone()).or_default().push(place.clone());
        }
        by_function
    };
    let here = left(base, &|p| found.contains_key(p));
    let there = left(new, &|p| found.values().any(|q| q == p));
    for (function, lines) in here {
        if let Some(others) = there.get(&function) {
            found.extend(in_order(&lines, others));
        }
    }
    found
}

/// The best pairs that keep their order.
fn in_order(base: &[Place], new: &[Place]) -> BTreeMap<Place, Place> {
    let same = || base.iter().filter(|p| new.contains(p)).map(|p| (p.clone(), p.clone())).collect();
    if base.len().saturating_mul(new.len()) > MOST {
        return same();
    }
    let width = new.len() + 1;
    // Of all pairs before these two numbers: the best sum, and the pair that it ends with.
    let mut best: Vec<(i64, Option<(usize, usize)>)> = vec![(0, None); (base.len() + 1) * width];
    // By how far they moved: the last pair, and its sum.
    let mut last: BTreeMap<i64, (usize, usize, i64)> = BTreeMap::new();
    let mut before: BTreeMap<(usize, usize), (usize, usize)> = BTreeMap::new();
    for (i, (line, function)) in base.iter().enumerate() {
        for (j, (other, _)) in new.iter().enumerate().filter(|(_, n)| n.1 == *function) {
            let moved = i64::from(*other) - i64::from(*line);
            let own = PAIR + if moved == 0 { STAYS } else { 0 };
            let (mut sum, mut from) = best[i * width + j];
            if let Some(&(a, b, score)) = last.get(&moved)
                && score + SAME > sum
            {
                (sum, from) = (score + SAME, Some((a, b)));
            }
            sum += own;
            if let Some(from) = from {
                before.insert((i, j), from);
            }
            last.insert(moved, (i, j, sum));
            let at = &mut best[(i + 1) * width + j + 1];
            if sum > at.0 {
                *at = (sum, Some((i, j)));
            }
        }
        for j in 0..width {
            let above = best[i * width + j];
            let left = if j > 0 { best[(i + 1) * width + j - 1] } else { (0, None) };
            let at = &mut best[(i + 1) * width + j];
            for other in [above, left] {
                if other.0 > at.0 {
                    *at = other;
                }
            }
        }
    }
    let mut pairs = BTreeMap::new();
    let mut at = best.last().and_then(|b| b.1);
    while let Some((i, j)) = at {
        pairs.insert(base[i].clone(), new[j].clone());
        at = before.get(&(i, j)).copied();
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(all: &[(u32, &str)]) -> Vec<Place> {
        all.iter().map(|(line, function)| (*line, (*function).to_owned())).collect()
    }

    #[track_caller]
    fn moves(base: &[(u32, &str)], new: &[(u32, &str)], want: &[(u32, u32)]) {
        let found = matched(&places(base), &places(new));
        let lines: Vec<(u32, u32)> = found.iter().map(|((a, _), (b, _))| (*a, *b)).collect();
        assert_eq!(lines, want, "{base:?} {new:?}");
    }

    #[test]
    fn lines_are_followed_through_edits() {
        let before = [(10, "f"), (12, "f"), (14, "f"), (20, "g"), (30, "<module>")];
        moves(&before, &before, &[(10, 10), (12, 12), (14, 14), (20, 20), (30, 30)]);
        // Two lines above everything: no line is taken for the one whose number it has now.
        let below = [(12, "f"), (14, "f"), (16, "f"), (22, "g"), (32, "<module>")];
        moves(&before, &below, &[(10, 12), (12, 14), (14, 16), (20, 22), (30, 32)]);
        // Two lines within `f`, one of which allocates.
        let within = [(10, "f"), (11, "f"), (14, "f"), (16, "f"), (22, "g"), (32, "<module>")];
        moves(&before, &within, &[(10, 10), (12, 14), (14, 16), (20, 22), (30, 32)]);
        // One is gone.
        let shorter = [(10, "f"), (13, "f"), (19, "g"), (29, "<module>")];
        moves(&before, &shorter, &[(10, 10), (14, 13), (20, 19), (30, 29)]);
        // `g` has moved above `f`.
        let turned = [(5, "g"), (13, "f"), (15, "f"), (17, "f"), (30, "<module>")];
        moves(&before, &turned, &[(10, 13), (12, 15), (14, 17), (20, 5), (30, 30)]);
    }

    #[test]
    fn what_cannot_be_told_has_not_moved_and_functions_are_not_mixed() {
        moves(&[(10, "f")], &[(10, "f"), (12, "f")], &[(10, 10)]);
        moves(&[(10, "f")], &[(10, "g")], &[]);
        moves(&[], &[(10, "g")], &[]);
    }
}
