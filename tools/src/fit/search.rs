//! Between which two values a job stops fitting a card.

/// What is known of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// The job fits.
    pub(super) fits: bool,
    /// Bytes that it needs.
    pub(super) needs: u64,
}

/// Which of the values fit, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Border {
    /// All, as far as was tried.
    All,
    /// None, as far as was tried.
    None,
    /// This is the largest one that fits; of values that were searched, the next one does not.
    UpTo(usize),
    /// From this one on, and the one before does not: a larger value needs less.
    From(usize),
}

/// Searches `count` values, from the smallest to the largest, of which both ends are tried first. What is needed is taken to rise or
/// to fall with the value; where it does neither, the two values at the border are still what they are said to be.
///
/// # Errors
/// Those of `look`.
pub(super) fn search<E>(
    count: usize,
    room: u64,
    mut look: impl FnMut(usize) -> Result<Point, E>,
) -> Result<Border, E> {
    let last = count.saturating_sub(1);
    let (first_point, last_point) = (look(0)?, look(last)?);
    match (first_point.fits, last_point.fits) {
        (true, true) => return Ok(Border::All),
        (false, false) => return Ok(Border::None),
        _ => {}
    }
    // One fits, the other one does not; both move towards each other.
    let mut fits = if first_point.fits { (0, first_point) } else { (last, last_point) };
    let mut fails = if first_point.fits { (last, last_point) } else { (0, first_point) };
    let mut tries = 0;
    while fits.0.abs_diff(fails.0) > 1 {
        let (low, high) = (fits.0.min(fails.0), fits.0.max(fails.0));
        // A straight line between the two says where the room ends; a curve is halved now and then, so that the end is near.
        let at = if tries % 3 == 2 { low + (high - low) / 2 } else { guess(fits, fails, room) };
        let at = at.clamp(low + 1, high - 1);
        let point = look(at)?;
        if point.fits {
            fits = (at, point)
        } else {
            fails = (at, point)
        }
        tries += 1;
    }
    Ok(if first_point.fits { Border::UpTo(fits.0) } else { Border::From(fits.0) })
}

/// The same of values that were all tried. Where what is needed neither rises nor falls, the largest one that fits is told.
pub(super) fn listed(fits: &[bool]) -> Border {
    let Some(largest) = fits.iter().rposition(|f| *f) else { return Border::None };
    let smallest = fits.iter().position(|f| *f).unwrap_or(largest);
    let rest_fits = fits[smallest..].iter().all(|f| *f);
    match (rest_fits, smallest) {
        (true, 0) => Border::All,
        (true, _) if largest + 1 == fits.len() => Border::From(smallest),
        _ => Border::UpTo(largest),
    }
}

/// The value nearest to where the room ends that would fit, if what is needed were a straight line.
fn guess(fits: (usize, Point), fails: (usize, Point), room: u64) -> usize {
    let rise = fails.1.needs.saturating_sub(fits.1.needs).max(1) as f64;
    let part = (room.saturating_sub(fits.1.needs) as f64 / rise).min(1.0);
    let steps = (part * fits.0.abs_diff(fails.0) as f64) as usize;
    if fits.0 < fails.0 { fits.0 + steps } else { fits.0 - steps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// The border, and how many values were tried.
    fn border(needs: &[u64], room: u64) -> (Border, usize) {
        let mut tried = 0;
        let found: Result<_, Infallible> = search(needs.len(), room, |i| {
            tried += 1;
            Ok(Point { fits: needs[i] <= room, needs: needs[i] })
        });
        (found.unwrap_or(Border::None), tried)
    }

    #[test]
    fn the_border_is_found_on_lines_and_curves_that_rise_and_fall() {
        let curves: [fn(u64) -> u64; 4] =
            [|n| 100 + 7 * n, |n| n * n, |n| 1 << (n / 16), |n| 1_000_000 / (n + 1)];
        for (number, curve) in curves.iter().enumerate() {
            let needs: Vec<u64> = (0..512).map(curve).collect();
            for at in [0, 1, 100, 255, 400, 510] {
                let room = needs[at].max(needs[at + 1]) - 1;
                let count = needs.iter().filter(|n| **n <= room).count();
                let wanted = match count {
                    0 => Border::None,
                    512 => Border::All,
                    n if number == 3 => Border::From(512 - n),
                    n => Border::UpTo(n - 1),
                };
                let (found, tried) = border(&needs, room);
                assert_eq!(found, wanted, "curve {number}, room {room}");
                assert!(tried <= 26, "curve {number}, room {room}: {tried}");
            }
        }
    }

    #[test]
    fn values_that_were_all_tried_need_no_order() {
        assert_eq!(listed(&[true, true, true]), Border::All);
        assert_eq!(listed(&[false, false]), Border::None);
        assert_eq!(listed(&[true, true, false]), Border::UpTo(1));
        assert_eq!(listed(&[false, true, true]), Border::From(1));
        assert_eq!(listed(&[false, true, false]), Border::UpTo(1), "one in the middle fits");
        assert_eq!(listed(&[true, false, true]), Border::UpTo(2), "not all of them fit");
        assert_eq!(listed(&[false, true, false, true]), Border::UpTo(3));
    }

    #[test]
    fn a_straight_line_takes_four_runs() {
        let needs: Vec<u64> = (1..=64).map(|n| 1000 + 250 * n).collect();
        assert_eq!(border(&needs, 9_100), (Border::UpTo(31), 4));
        assert_eq!(border(&needs, 100), (Border::None, 2));
        assert_eq!(border(&needs, 100_000), (Border::All, 2));
        assert_eq!(border(&[5], 5), (Border::All, 2));
    }
}
