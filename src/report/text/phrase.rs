//! How much and how soon, in words that the parts of the report share.

use super::super::units::{count, duration, plural, size_f};
use crate::detect::{Finding, GrainName, SecondsToOom, StepsToOom};

/// `a step`.
pub(super) fn per(grain: GrainName) -> &'static str {
    match grain {
        GrainName::Step => "a step",
        GrainName::Microbatch => "a microbatch",
        GrainName::Tick => "a second",
    }
}

/// A reason as a sentence: a capital, no full stop.
pub(super) fn clause(reason: &str) -> String {
    let mut c = reason.trim().trim_end_matches('.').chars();
    c.next().map_or_else(String::new, |first| first.to_uppercase().chain(c).collect())
}

/// The current rate, where it is another one than that of the whole run.
pub(super) fn lately(f: &Finding) -> Option<String> {
    let recent = f.current_bytes_per_step;
    ((recent - f.bytes_per_step).abs() > 0.2 * f.bytes_per_step.abs()).then(|| size_f(recent))
}

/// `about 62 steps (54 to 89), 41 s from now`.
pub(super) fn forecast(when: StepsToOom, time: Option<SecondsToOom>, grain: &str) -> String {
    let about = if when.mid == u64::MAX {
        "a time that cannot be told".to_owned()
    } else {
        format!("about {}", plural(when.mid.min(i64::MAX as u64) as i64, grain))
    };
    let time = time.map(|t| t.mid).filter(|s| *s != u64::MAX && grain != "second");
    let time = time.map(|s| format!(", {} from now", duration(s.saturating_mul(1_000_000_000))));
    let time = time.unwrap_or_default();
    match (when.low, when.high) {
        (l, h) if l == h => format!("{about}{time}"),
        (l, u64::MAX) => format!("{about}{time} ({} at the earliest; it may level off before)", count(l)),
        (l, h) => format!("{about} ({} to {}){time}", count(l), count(h)),
    }
}
