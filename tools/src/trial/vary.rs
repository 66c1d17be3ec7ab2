//! What of a job is varied: a name and its values, as `--vary` takes them.

use std::str::FromStr;

/// Values at most: a list that nobody would wait for is a typing error.
const MOST: u64 = 100_000;

/// A name and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vary {
    /// The placeholder, option or environment variable.
    pub(crate) name: String,
    /// The values as they were given.
    pub(crate) given: String,
    /// From the smallest to the largest, each once.
    pub(crate) values: Vec<u64>,
    /// All of them are tried, as they were listed one by one.
    pub(crate) each: bool,
}

impl FromStr for Vary {
    type Err = String;

    /// Reads `NAME=1..64`, `NAME=1..64x2`, `NAME=8..64+8`, or `NAME=1,2,4`.
    fn from_str(text: &str) -> Result<Vary, String> {
        let (name, given) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
            format!("\"{text}\" has no values: write NAME=VALUES, such as batch_size=1..64")
        })?;
        let (mut values, each) = match given.split_once("..") {
            Some((from, to)) => (range(from, to)?, false),
            None => (given.split(',').map(number).collect::<Result<Vec<u64>, String>>()?, true),
        };
        values.sort_unstable();
        values.dedup();
        let name = name.trim_start_matches('-').to_owned();
        Ok(Vary { name, given: given.to_owned(), values, each })
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| {
        format!("\"{text}\" is not a whole number; write the values like 1..64, 1..64x2, 8..64+8 or 1,2,4")
    })
}

/// Numbers from one to another, both included, each one more than the one before, or so many more, or so many times it.
fn range(from: &str, to: &str) -> Result<Vec<u64>, String> {
    let (to, by): (_, Box<dyn Fn(u64) -> u64>) = if let Some((to, times)) = to.split_once('x') {
        let times = number(times)
            .ok()
            .filter(|t| *t > 1)
            .ok_or("what follows x must be a factor of 2 or more, as in 1..64x2")?;
        (to, Box::new(move |n| n.max(1).saturating_mul(times)))
    } else if let Some((to, more)) = to.split_once('+') {
        let more =
            number(more).ok().filter(|m| *m > 0).ok_or("the number after + must be a step of 1 or more")?;
        (to, Box::new(move |n| n.saturating_add(more)))
    } else {
        (to, Box::new(|n| n.saturating_add(1)))
    };
    let (from, to) = (number(from)?, number(to)?);
    if from > to {
        return Err(format!("{from} is more than {to}: write the smaller one first"));
    }
    let mut values = vec![from];
    while let Some(next) = values.last().map(|n| by(*n)).filter(|n| *n <= to) {
        if values.len() as u64 >= MOST {
            return Err(format!("that is more than {MOST} values; take steps, such as {from}..{to}x2"));
        }
        values.push(next);
        if next == u64::MAX {
            break;
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_a_range_steps_or_a_list() {
        let values = |text: &str| text.parse::<Vary>().map(|v| v.values);
        assert_eq!(values("b=1..4"), Ok(vec![1, 2, 3, 4]));
        assert_eq!(values("b=1..40x2"), Ok(vec![1, 2, 4, 8, 16, 32]));
        assert_eq!(values("b=0..4x2"), Ok(vec![0, 2, 4]));
        assert_eq!(values("b=8..30+8"), Ok(vec![8, 16, 24]));
        assert_eq!(values("b=4, 1,4"), Ok(vec![1, 4]));
        assert_eq!("--b=7..7".parse::<Vary>().map(|v| (v.name, v.each)), Ok(("b".to_owned(), false)));
        assert_eq!(values("b=18446744073709551614..18446744073709551615").map(|v| v.len()), Ok(2));
    }

    #[test]
    fn what_means_nothing_is_told() {
        for bad in ["b", "=1", "b=", "b=1..", "b=4..1", "b=1..8x1", "b=1..8+0", "b=0.5", "b=1..9999999"] {
            assert!(bad.parse::<Vary>().is_err(), "{bad}");
        }
    }
}
