//! How much and how soon, in words that the parts of the report share.

use super::super::model::{Ended, Process};
use super::super::units::{plural, rounded, seconds, size_f, thousands};
use crate::detect::{Finding, GrainName, SecondsToOom};

/// A reason as a sentence: a capital, no full stop.
pub(in crate::report) fn clause(reason: &str) -> String {
    let mut c = reason.trim().trim_end_matches('.').chars();
    c.next().map_or_else(String::new, |first| first.to_uppercase().chain(c).collect())
}

/// The current rate, if it differs by more than a fifth from the rate of the whole run.
pub(super) fn current_rate(f: &Finding) -> Option<String> {
    f.current_rate().map(size_f)
}

/// Steps beyond which only their order of magnitude is told, where that is also more than a week away: what is so slow has other reasons to end
/// first.
const FAR_STEPS: u64 = 10_000;
const FAR_SECONDS: u64 = 7 * 24 * 3600;

/// When the device will be full, in two parts: of a job that runs `full in` and `about 62 steps (90 % interval 54 to 89), 41 s from now`; of
/// one that has ended `full after` and `about 62 further steps (90 % interval 54 to 89) or 41 s at this rate`, which is said where it is not that of all
/// the run.
/// A device is full once: of several findings that fill it, the one that does so first tells when, or the one that gains most.
pub(super) fn forecast(p: &Process<'_>, f: &Finding) -> Option<(&'static str, String)> {
    let when = f.steps_to_oom?;
    let is_other = |g: &&Finding| g.grows() && (g.device, g.grain) == (f.device, f.grain) && g.id != f.id;
    let is_first = |g: &Finding| {
        let gains_more = (g.bytes_per_step, f.id) > (f.bytes_per_step, g.id);
        g.steps_to_oom.is_some_and(|other| other.mid < when.mid || other.mid == when.mid && gains_more)
    };
    if p.findings.iter().filter(is_other).any(is_first) {
        return None;
    }
    let (grain, runs) = (f.grain.noun(), p.ended == Ended::Running);
    // A reader divides what is left by the rate that is printed.
    let current =
        f.current_beyond(0.02).map(|rate| format!(" at the current {} {}", size_f(rate), f.grain.per()));
    let current = current.unwrap_or_else(|| " at this rate".to_owned());
    let (label, noun, rate) = match runs {
        true => ("full in", grain.to_owned(), ""),
        false if f.with_others && p.findings.iter().any(|g| is_other(&g)) => {
            ("full after", format!("further {grain}"), " at the combined rate of all growth")
        }
        // Its peaks, which have both blocks, grow faster than what stays.
        false if f.with_others && f.is_remade() => (
            "full after",
            format!("further {grain}"),
            " at this rate, as the old and the new block must both fit",
        ),
        false if f.with_others => (
            "full after",
            format!("further {grain}"),
            "; this counts reserved memory, which grows faster than allocated memory",
        ),
        false if f.speeds_up => {
            ("full after", format!("further {grain}"), " if the growth keeps speeding up")
        }
        false => ("full after", format!("further {grain}"), current.as_str()),
    };
    if f.grain == GrainName::Tick {
        // A second that is counted ends with the first event after it, so it is a little longer.
        let as_counted = SecondsToOom { low: when.low, mid: when.mid, high: when.high };
        return Some((label, in_time(f.seconds_to_oom.unwrap_or(as_counted), rate)));
    }
    let time = f.seconds_to_oom.map(|t| t.mid).filter(|s| *s != u64::MAX);
    if when.low > FAR_STEPS && time.is_none_or(|s| s > FAR_SECONDS) {
        return Some((label, format!("more than {}{rate}", plural(first_digit(when.low), &noun))));
    }
    let about = if when.mid == u64::MAX {
        "an unknown time".to_owned()
    } else if when.mid == 0 {
        return Some((label, format!("less than one {noun}{rate}")));
    } else {
        format!("about {}", plural(rounded(when.mid), &noun))
    };
    let rate = if when.mid == u64::MAX { "" } else { rate };
    let or_time = match time {
        Some(s) if runs => format!(", {} from now", seconds(s)),
        Some(s) if when.mid != u64::MAX => format!(", in {}", seconds(s)),
        _ => String::new(),
    };
    let text = match (when.low, when.high) {
        (l, h) if l == h => format!("{about}{or_time}{rate}"),
        (l, u64::MAX) => {
            let least = rounded(l);
            let least = if when.mid == u64::MAX { plural(least, &noun) } else { thousands(least) };
            format!("{about}{or_time} ({least} at the earliest, or never if the growth stops){rate}")
        }
        (l, h) => {
            let (least, most) = (thousands(rounded(l)), thousands(rounded(h)));
            format!("{about} (90 % interval {least} to {most}){or_time}{rate}")
        }
    };
    Some((label, text))
}

/// A number down to its first digit.
fn first_digit(n: u64) -> u64 {
    let unit = 10u64.pow(n.checked_ilog10().unwrap_or(0));
    n / unit * unit
}

/// The same of a job that is judged second by second: `about 1 h 31 min (90 % interval 1 h 12 min to 2 h 19 min) at this rate`.
fn in_time(when: SecondsToOom, rate: &str) -> String {
    if when.low > FAR_SECONDS {
        const DAY: u64 = 24 * 3600;
        return format!("more than {}{rate}", seconds(first_digit(when.low / DAY) * DAY));
    }
    let about = match when.mid {
        u64::MAX => "an unknown time".to_owned(),
        0 => return format!("less than one second{rate}"),
        mid => format!("about {}", seconds(mid)),
    };
    let range = match (when.low, when.high) {
        (l, h) if l == h => String::new(),
        (l, u64::MAX) => format!(" ({} at the earliest, or never if the growth stops)", seconds(l)),
        (l, h) => format!(" (90 % interval {} to {})", seconds(l), seconds(h)),
    };
    format!("{about}{range}{rate}")
}
