//! Which moment a snapshot shows: as it is asked for, and where it lies in the recording.

use super::judged::Judged;
use crate::error::{Error, status};
use crate::say::shown;
use std::fmt;
use std::str::FromStr;
use strandline::event::{Body, DeviceId, Item};
use strandline::replay::Replay;
use strandline::report::thousands;

/// A moment as a person names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The end of the last step; of a job that still runs, of one without steps, and of a snapshot, the last event.
    End,
    /// The last event.
    Now,
    /// The highest peak of allocated memory.
    Peak,
    /// The first allocation that failed.
    Oom,
    /// The end of this step.
    Step(u32),
    /// The last mark of this name.
    Mark(String),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        Ok(match text {
            "end" => Moment::End,
            "now" => Moment::Now,
            "peak" => Moment::Peak,
            "oom" => Moment::Oom,
            _ => match text.split_once(':') {
                Some(("mark", name)) if !name.is_empty() => Moment::Mark(name.into()),
                Some(("step", n)) => {
                    Moment::Step(n.parse().map_err(|_| format!("\"{n}\" is not a step number"))?)
                }
                _ => return Err("write end, now, peak, oom, step:N or mark:NAME".into()),
            },
        })
    }
}

impl fmt::Display for Moment {
    /// For the name of a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::End => f.write_str("end"),
            Moment::Now => f.write_str("now"),
            Moment::Peak => f.write_str("peak"),
            Moment::Oom => f.write_str("oom"),
            Moment::Step(n) => write!(f, "step{n}"),
            Moment::Mark(name) => {
                let plain = |c: char| if c.is_alphanumeric() || "-_".contains(c) { c } else { '-' };
                write!(f, "mark-{}", name.chars().map(plain).collect::<String>())
            }
        }
    }
}

/// A moment in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// So many events are before it.
    pub(crate) events: u64,
    /// In words.
    pub(crate) words: String,
}

impl Moment {
    /// Where it lies.
    ///
    /// # Errors
    /// There is no such moment, or the recording cannot be read again.
    pub(crate) fn find(&self, judged: &Judged) -> Result<Place, Error> {
        let replay = &judged.replay;
        let all = replay.events();
        let missing = |what: String| Error::new(what).status(status::USAGE);
        let at = |events: u64, words: String| Ok(Place { events, words });
        match self {
            Moment::End if judged.is_running() => at(all, "now (the job is still running)".into()),
            // As reports have it: what a process frees on its way out says nothing about the job.
            Moment::End if replay.steps() > 0 && !judged.read.is_snapshot => {
                Moment::Step(replay.steps()).find(judged)
            }
            Moment::End if judged.read.is_snapshot => at(all, "the end of the snapshot".into()),
            Moment::End => at(all, "the end of the run".into()),
            Moment::Now if judged.is_running() => at(all, "this moment".into()),
            Moment::Now => at(all, "the last event".into()),
            Moment::Peak => {
                let Some(d) = replay.devices().max_by_key(|d| d.peak_allocated.bytes) else {
                    return Err(nothing(judged));
                };
                at(d.peak_allocated.event + 1, format!("the peak{}", of_device(d.id, replay)))
            }
            Moment::Oom => {
                let ooms = replay.devices().filter_map(|d| Some((d.ooms.first()?.event, d.id)));
                let Some((event, device)) = ooms.min() else {
                    return Err(missing("memory did not run out in this recording".into())
                        .hint("to see the peak: --at peak"));
                };
                at(event + 1, format!("the failed allocation{}", of_device(device, replay)))
            }
            Moment::Step(n) => match judged.steps.end_of(*n) {
                Some(event) => at(event, format!("the end of step {}", thousands((*n).into()))),
                // The last step may have ended with the process: before that freed what it held.
                None if *n > 0 && replay.steps() == *n => at(
                    replay.torn_down_from().unwrap_or(all),
                    format!("the end of step {}", thousands((*n).into())),
                ),
                None => Err(missing(no_step(*n, judged)).hint(range(judged))),
            },
            Moment::Mark(name) => marked(judged, name)?
                .map(|(events, times)| Place { events, words: words_of_mark(name, times) })
                .ok_or_else(|| missing(format!("there is no mark \"{name}\" in this recording"))),
        }
    }
}

fn words_of_mark(name: &str, times: u64) -> String {
    match times {
        1 => format!("mark \"{name}\""),
        n => format!("the last of {n} marks \"{name}\""),
    }
}

fn of_device(device: DeviceId, replay: &Replay) -> String {
    if replay.devices().count() > 1 { format!(" of GPU {}", device.0) } else { String::new() }
}

/// The steps that can be asked for.
fn range(judged: &Judged) -> String {
    match judged.steps.ended() {
        Some((first, to)) => {
            let last = u64::from(to.max(judged.replay.steps()));
            let noun = judged.replay.step_source().noun();
            format!(
                "this recording goes from {noun} {} to {noun} {}",
                thousands(first.into()),
                thousands(last)
            )
        }
        None => "no step has ended in this recording".into(),
    }
}

/// There is nothing to show, and why.
pub(crate) fn nothing(judged: &Judged) -> Error {
    let path = shown(&judged.path);
    let text = match judged.read.damage.first() {
        Some(damage) if judged.replay.events() == 0 => {
            format!("{path} is damaged, and none of its events can be read: {damage}")
        }
        _ => format!("nothing was allocated in {path}"),
    };
    Error::new(text).status(status::USAGE)
}

/// Why there is no moment at which this step ended.
fn no_step(n: u32, judged: &Judged) -> String {
    let step = format!("{} {}", judged.replay.step_source().noun(), thousands(n.into()));
    // The one after the last may have begun.
    match n == judged.replay.steps() + 1 {
        true => format!("{step} did not end in {}", shown(&judged.path)),
        false => format!("{} has no {step}", shown(&judged.path)),
    }
}

/// The number of the last mark's event, and how many marks have that name.
fn marked(judged: &Judged, name: &str) -> Result<Option<(u64, u64)>, Error> {
    let mut feed = judged.again()?;
    let (mut seen, mut found, mut times) = (0, None, 0);
    feed.each(|item, names| {
        let Item::Event(e) = item else { return };
        if let Body::Mark { name: n, phase: false } = e.body
            && names.text(n) == Some(name)
        {
            found = Some(seen);
            times += 1;
        }
        seen += 1;
    });
    Ok(found.map(|at| (at, times)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<Moment>();
        assert_eq!(read("step:12"), Ok(Moment::Step(12)));
        assert_eq!(read("mark:before eval:2"), Ok(Moment::Mark("before eval:2".into())));
        assert_eq!(read("oom"), Ok(Moment::Oom));
        for wrong in ["", "step", "step:", "step:x", "mark:", "start"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Moment::Mark("a b/c".into()).to_string(), "mark-a-b-c");
    }
}
