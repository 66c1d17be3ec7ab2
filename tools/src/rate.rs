//! Rates as people write them: `50MiB/step`, `10MiB/microbatch`, `50MiB/min`, `1%/100steps`.

use crate::size::Size;
use std::fmt;
use std::str::FromStr;
use strandline::detect::{Finding, GrainName};
use strandline::replay::Replay;
use strandline::report::size;

/// How fast is too fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Threshold {
    amount: Amount,
    /// So many units.
    per: f64,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Bytes(u64),
    /// Of the device, 0 to 1.
    Share(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Step,
    Microbatch,
    Second,
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Threshold, String> {
        let bad = |why: &str| {
            format!(
                "\"{text}\" is not a rate: {why}; write it as 50MiB/step, 10MiB/microbatch, 50MiB/min or 1%/100steps"
            )
        };
        let (amount, per) = text.split_once('/').ok_or_else(|| bad("it has no slash and unit"))?;
        let amount = match amount.trim().strip_suffix('%') {
            Some(percent) => match percent.trim().parse::<f64>() {
                Ok(p) if p > 0.0 && p <= 100.0 => Amount::Share(p / 100.0),
                _ => return Err(bad("the percentage is not between 0 and 100")),
            },
            None => Amount::Bytes(amount.parse::<Size>().map_err(|e| bad(&e))?.0),
        };
        let per = per.trim();
        let digits = per.find(|c: char| !c.is_ascii_digit()).unwrap_or(per.len());
        let (number, unit) = per.split_at(digits);
        let number =
            if number.is_empty() { 1 } else { number.parse::<u32>().map_err(|_| bad("too many units"))? };
        let (unit, seconds) = match unit.trim().trim_end_matches('s') {
            "step" => (Unit::Step, 1.0),
            "microbatch" | "microbatche" => (Unit::Microbatch, 1.0),
            "" | "ec" | "second" if !unit.trim().is_empty() => (Unit::Second, 1.0),
            "min" | "minute" => (Unit::Second, 60.0),
            "h" | "hour" => (Unit::Second, 3600.0),
            _ => return Err(bad("the unit must be step, microbatch, s, min or h")),
        };
        if number == 0 {
            return Err(bad("the number of units is 0"));
        }
        Ok(Threshold { amount, per: f64::from(number) * seconds, unit })
    }
}

impl fmt::Display for Threshold {
    /// As people write it: `1 MiB/step`, `100 KiB/min`, `1 %/100 steps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.amount {
            Amount::Bytes(bytes) => write!(f, "{}/", size(bytes))?,
            Amount::Share(share) => write!(f, "{} %/", share * 100.0)?,
        }
        match (self.unit, self.per) {
            (Unit::Second, 1.0) => write!(f, "s"),
            (Unit::Second, 60.0) => write!(f, "min"),
            (Unit::Second, 3600.0) => write!(f, "h"),
            (Unit::Second, n) => write!(f, "{n} s"),
            (Unit::Step, 1.0) => write!(f, "step"),
            (Unit::Step, n) => write!(f, "{n} steps"),
            (Unit::Microbatch, 1.0) => write!(f, "microbatch"),
            (Unit::Microbatch, n) => write!(f, "{n} microbatches"),
        }
    }
}

impl Threshold {
    /// Whether a finding grows as fast as this, or faster, at its present pace. Where the pace cannot be told in this unit, or
    /// a share of a device whose size is not known, it does not.
    pub(crate) fn is_reached(&self, finding: &Finding, replay: &Replay) -> bool {
        let now = self.compared(finding.current_bytes_per_step, finding, replay);
        now.is_some_and(|(rate, limit)| rate > 0.0 && rate >= limit)
    }

    /// Whether a finding grows no faster than this, at its present pace and over the whole run. Where that cannot be told, it is not so.
    pub(crate) fn covers(&self, finding: &Finding, replay: &Replay) -> bool {
        let rates = [finding.current_bytes_per_step, finding.bytes_per_step];
        rates.iter().all(|r| self.compared(*r, finding, replay).is_some_and(|(rate, limit)| rate <= limit))
    }

    /// A finding's rate, given in bytes a mark, in this unit; and the bytes that this allows.
    fn compared(&self, rate: f64, finding: &Finding, replay: &Replay) -> Option<(f64, f64)> {
        let (steps, microbatches) = (f64::from(replay.steps()), f64::from(replay.microbatches()));
        let marks = if finding.grain == GrainName::Microbatch { microbatches } else { steps };
        let units = match self.unit {
            Unit::Step => steps,
            Unit::Microbatch => microbatches,
            Unit::Second => replay.last_step_time().0 as f64 / 1e9,
        };
        let capacity = || replay.device(finding.device)?.capacity.map(|c| c.total.0 as f64);
        let limit = match self.amount {
            Amount::Bytes(bytes) => Some(bytes as f64),
            Amount::Share(share) => capacity().map(|total| total * share),
        };
        (units > 0.0).then(|| rate * marks / units * self.per).zip(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        let rate = |text: &str| text.parse::<Threshold>().unwrap();
        let bytes = |b: u64, per, unit| Threshold { amount: Amount::Bytes(b), per, unit };
        assert_eq!(rate("50MiB/step"), bytes(50 << 20, 1.0, Unit::Step));
        assert_eq!(rate("10 MiB / microbatch"), bytes(10 << 20, 1.0, Unit::Microbatch));
        assert_eq!(rate("1GiB/8microbatches"), bytes(1 << 30, 8.0, Unit::Microbatch));
        assert_eq!(rate("50MiB/min"), bytes(50 << 20, 60.0, Unit::Second));
        assert_eq!(rate("1KiB/s"), bytes(1 << 10, 1.0, Unit::Second));
        assert_eq!(rate("2GiB/hour"), bytes(2 << 30, 3600.0, Unit::Second));
        let share = Threshold { amount: Amount::Share(0.01), per: 100.0, unit: Unit::Step };
        assert_eq!(rate("1%/100steps"), share);
    }

    #[test]
    fn a_rate_that_is_written_is_read_as_the_same() {
        for text in ["64 MiB/step", "1.0 GiB/8 microbatches", "50 MiB/min", "1 %/100 steps", "2.0 GiB/h"] {
            let rate: Threshold = text.parse().unwrap();
            assert_eq!((rate.to_string().as_str(), rate.to_string().parse()), (text, Ok(rate)));
        }
    }

    #[test]
    fn what_is_no_rate_is_refused_with_the_reason_and_an_example() {
        for (text, why) in [
            ("50MiB", "it has no slash and unit"),
            ("50 gallons/step", "is not a size"),
            ("0%/step", "between 0 and 100"),
            ("50MiB/epoch", "unit must be step"),
            ("50MiB/", "unit must be step"),
            ("50MiB/0steps", "number of units is 0"),
        ] {
            let said = text.parse::<Threshold>().unwrap_err();
            assert!(said.contains(why) && said.contains("50MiB/step"), "{text}: {said}");
        }
    }
}
