//! The first line: what is the matter, in one sentence.

use super::super::later::later;
use super::super::model::{Ended, Facts, Process, Report, capacity, fatal};
use super::super::processes::out_of_memory;
use super::super::ranks::Ranks;
use super::super::style::Style;
use super::super::units::{plural, size, thousands};
use super::ended::{HowEnded, by_alert};
use super::phrase::{clause, forecast};
use super::place::{at_place, in_phase, kept_by, site};
use crate::detect::{Finding, Outcome, SelfFault, post_mortem};
use crate::event::HostKiller;
use crate::replay::Failed;
use crate::replay::anatomy::At;

/// The first line, wrapped.
pub(super) fn lines(r: &Report<'_>, style: Style) -> Vec<String> {
    let (phrase, ink) = r.phrase();
    let mut lines = style.wrap("strandline: ", &format!("{phrase}{}", r.summary()));
    if let Some(l) = lines.first_mut() {
        *l = l.replacen(phrase, &style.paint(ink, phrase), 1);
    }
    lines
}

/// What GROWING means beside LEAK, and what to do about it, where the first line says that.
pub(in crate::report) fn growing(r: &Report<'_>) -> Option<String> {
    let p = r.lead().filter(|p| p.phrase().0.starts_with("GROWING"))?;
    let f = leak(p).filter(|f| f.kind.is_leak())?;
    let why = "a buffer or cache that is still filling looks the same";
    if fatal(p, f).is_some() {
        return Some(format!(
            "this is not called a leak, because {why}. If your code is meant to free this memory later, it did not do so in time; otherwise this is a leak that you should fix"
        ));
    }
    if later(p, f).is_some_and(|l| l.has_ended()) {
        return Some(format!(
            "at that step it was not clear whether this is a leak, because {why}; later it stopped growing"
        ));
    }
    Some(format!(
        "this is not called a leak yet, because {why}. If your code frees this memory later or limits it, the growth will stop; otherwise this is a leak that you should fix now"
    ))
}

impl Process<'_> {
    /// Why the word on it is what it is, as a clause: the verdict's reason and, of a finding, the statement that keeps it; where
    /// that is not known, the line that allocates it.
    pub fn reason(&self) -> String {
        self.reason_with(&self.verdict.reason)
    }

    /// The same with these words instead of the verdict's reason.
    fn reason_with(&self, why: &str) -> String {
        let finding = self.verdict.finding.and_then(|i| Some((i, self.findings.get(i)?)));
        let place = finding.and_then(|(i, f)| {
            let kept = self.known.get(i).and_then(|known| kept_by(self, known));
            kept.or_else(|| Some(format!("allocated {}", at_place(self, &site(self, f)?))))
        });
        let place = place.map(|p| format!(", {p}")).unwrap_or_default();
        format!("{}{place}", why.trim().trim_end_matches('.'))
    }
}

impl Report<'_> {
    /// The outcome that a gate on growth goes by, and why: of several processes with the name of the one.
    pub fn gated(&self) -> (Outcome, String) {
        let job = self.job();
        match job.gated.and_then(|i| self.processes.get(i)) {
            Some(p) if self.processes.len() > 1 => {
                (p.verdict.outcome, format!("{}: {}", self.name(p), p.reason()))
            }
            Some(p) => (p.verdict.outcome, p.reason()),
            None => (job.outcome, job.reason),
        }
    }

    /// That the same is said of all processes, and how the others ended if not as this one did.
    fn alike(&self, lead: &Process<'_>) -> String {
        let all = match self.processes.len() {
            2 => "both processes".to_owned(),
            n => format!("all {}", plural(n as u64, "process")),
        };
        // Of one that did not fail nothing is said.
        let end = |p: &Process<'_>| p.has_failed().then(|| (p.ended, p.replay.exit_status()));
        if self.processes.iter().all(|p| end(p) == end(lead)) {
            return format!("This is true of {all}.");
        }
        // One is named: each name takes a look at all.
        let mut others =
            self.processes.iter().filter(|p| end(p).is_some_and(|other| Some(other) != end(lead)));
        let how = others
            .next()
            .and_then(|p| HowEnded { process: p, job: self.name(p), by_alert: by_alert(self) }.how());
        match (how, others.count()) {
            (None, _) => format!("The verdict is the same for {all}."),
            (Some(how), 0) => format!("The verdict is the same for {all}; {how}."),
            (Some(how), n) => {
                format!(
                    "The verdict is the same for {all}; {how}, and {} more ended differently.",
                    thousands(n as u64)
                )
            }
        }
    }

    /// That something is missing, where no verdict says so: the line `damage` and JSON say what.
    fn damaged(&self) -> Option<String> {
        let is_told = |p: &Process<'_>| p.verdict.outcome == Outcome::Unknown && !p.verdict.too_short;
        let all = self.processes.iter().filter(|p| !p.damage.is_empty());
        let untold = all.filter(|p| !is_told(p)).count();
        (untold > 0).then(|| match self.processes.len() {
            1 => "Part of the recording is damaged or missing, and is not counted.".to_owned(),
            _ => format!(
                "Part of {} is damaged or missing, and is not counted.",
                plural(untold as u64, "recording")
            ),
        })
    }

    /// What follows the phrase in the first line, with its punctuation: which process it is about, why, and how many of them
    /// the same is said of. It begins with `.`, ` (` or ` in 1 of 2 processes, rank 1:`.
    pub fn summary(&self) -> String {
        let Some(p) = self.lead() else {
            return " (there is no recording of any process).".to_owned();
        };
        let phrase = p.phrase_beside();
        let (alike, all) =
            (self.processes.iter().filter(|q| q.phrase_beside() == phrase).count(), self.processes.len());
        let text = sentence(self, p, alike < all);
        let text = match all {
            1 => text,
            _ if alike == all => format!("{text} {}", self.alike(p)),
            _ => {
                let of = match p.verdict.outcome {
                    Outcome::Clean if !p.killer.killed() && p.replay.failed().is_none() => {
                        format!(
                            " {} of {} have this verdict.",
                            thousands(alike as u64),
                            plural(all as u64, "process")
                        )
                    }
                    _ => String::new(),
                };
                let beside = beside(self, p);
                format!("{text}{of}{}", beside.map(|b| format!(" {b}")).unwrap_or_default())
            }
        };
        let differ = Ranks::of(self).and_then(|ranks| ranks.summary(self));
        [Some(text), differ, numbered_anew(p), as_of(p), self.damaged()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Of a snapshot that begins within the job: which step of the job its first one is.
fn numbered_anew(p: &Process<'_>) -> Option<String> {
    let first = Facts::of(p.replay).number("first_step")?;
    Some(format!("Step 1 of this snapshot is step {} of the job.", thousands(first)))
}

/// Of a past step: that the whole recording has another verdict.
fn as_of(p: &Process<'_>) -> Option<String> {
    let (step, whole, by) = (p.at_step?, p.at_end()?, p.by_end()?);
    let (noun, phrase) = (p.replay.step_source().noun(), whole.phrase().0);
    let step = thousands(step.into());
    let then = if phrase == p.phrase().0 { "the same" } else { phrase };
    Some(format!("This is the verdict as of the end of {noun} {step}; {by}, it is {then}."))
}

/// What is said of a process, with its punctuation; `alone`: others differ, and it is named.
fn sentence(r: &Report<'_>, p: &Process<'_>, alone: bool) -> String {
    let reason = clause(&p.reason());
    let gpu = || match p.verdict.outcome {
        Outcome::Leak | Outcome::Growing => format!(" On the GPU: {}.", growth(p).unwrap_or(reason.clone())),
        Outcome::Oom => format!(" On the GPU: {reason}."),
        Outcome::Clean => " No leak of GPU memory was found.".to_owned(),
        Outcome::Unknown => String::new(),
    };
    if let Some(fault @ SelfFault { place, signal, .. }) = &p.self_fault {
        return format!(
            " in {place}: a thread of {} was running strandline's code there when the process died of {signal}. {}.{}",
            r.name(p),
            clause(&fault.advice()),
            gpu()
        );
    }
    if p.killer.killed() {
        let ran_out = match p.killer {
            HostKiller::KilledAtLimit { limit } => {
                let limit = limit.map(|bytes| format!(" ({})", size(bytes))).unwrap_or_default();
                format!("The job's control group (for example, its container) reached its limit of host memory{limit}, which is RAM, not GPU memory")
            }
            _ => "The machine, or the container that the job runs in, ran out of host memory (RAM, not GPU memory)".to_owned(),
        };
        return format!(". {ran_out}, and Linux's out-of-memory killer ended {}.{}", r.name(p), gpu());
    }
    // What the sentence goes on with.
    let after = match alone {
        true => {
            let alike = r.processes.iter().filter(|q| q.phrase_beside() == p.phrase_beside()).count();
            let all = plural(r.processes.len() as u64, "process");
            match alike {
                1 => format!(" in 1 of {all}, {}: ", r.name(p)),
                n => format!(" in {} of {all}. The worst is {}: ", thousands(n as u64), r.name(p)),
            }
        }
        false => ". ".to_owned(),
    };
    if let Some(f) = p.replay.failed() {
        let memory = match p.verdict.outcome {
            Outcome::Leak => format!("The job also leaks: {}", growth(p).unwrap_or(reason)),
            Outcome::Growing => format!("Also, {}", growth(p).unwrap_or(reason)),
            Outcome::Oom => format!("Before that, the job ran out of memory: {reason}"),
            Outcome::Clean => format!("There was no leak until then: {}", p.reason()),
            Outcome::Unknown => format!("It was not judged whether the job leaks: {}", p.reason()),
        };
        return format!(
            "{after}{}, and every later CUDA call failed too. {}.",
            clause(&cuda_error(p, f)),
            memory.trim_end_matches('.')
        );
    }
    let job = if r.processes.len() > 1 { r.name(p) } else { "the job".to_owned() };
    let ended = HowEnded { process: p, job, by_alert: by_alert(r) };
    match p.verdict.outcome {
        Outcome::Leak | Outcome::Growing => match filled(p) {
            Some(text) => format!("{after}{text} {reason}."),
            None => {
                let said = growth(p).unwrap_or(reason);
                let said = if alone { said } else { clause(&said) };
                format!("{after}{said}.{}", ended.after())
            }
        },
        // Where what is suppressed has filled it, the reason says that.
        Outcome::Oom => match out_of_memory(p).filter(|_| p.verdict.finding.is_none()) {
            Some(m) if alone => format!(" ({}){after}{}.", m.short, m.explain.trim_end_matches('.')),
            Some(m) => format!(" ({}){after}{}.", m.short, clause(&m.explain)),
            None if reason.is_empty() => ".".to_owned(),
            None if alone => format!("{after}{}.", p.reason()),
            None => format!("{after}{reason}."),
        },
        Outcome::Clean if reason.is_empty() => ".".to_owned(),
        Outcome::Clean => match ended.how() {
            Some(how) => format!(". {}. Until then, {}.{}", clause(&how), p.reason(), ended.caught()),
            None => format!(". {reason}.{}", ended.caught()),
        },
        Outcome::Unknown if reason.is_empty() => ".".to_owned(),
        Outcome::Unknown if alone => format!("{after}{}.{}", p.reason(), ended.after()),
        Outcome::Unknown => format!(" ({}).{}", p.reason(), ended.after()),
    }
}

/// What broke a context: `in step 1, a failed assertion in a kernel on GPU 0: cudaDeviceSynchronize returned error 710`.
pub(super) fn cuda_error(p: &Process<'_>, f: &Failed) -> String {
    format!(
        "in {} {}{}, CUDA reported {} on GPU {}: {} returned error {}",
        p.replay.step_source().noun(),
        thousands(f.step.into()),
        in_phase(f.phase),
        f.fault.words(),
        f.fault.device.0,
        f.fault.name(),
        f.fault.status,
    )
}

/// Where the first line is not about what grows, as of a job that the host killed or that ran out of memory: what does.
fn beside(r: &Report<'_>, lead: &Process<'_>) -> Option<String> {
    let (outcome, reason) = r.gated();
    let said = !lead.killer.killed() && lead.verdict.outcome == outcome;
    let word = match outcome {
        Outcome::Leak => "LEAK",
        Outcome::Growing => "GROWING",
        _ => return None,
    };
    let of_lead = reason.starts_with(&format!("{}: ", r.name(lead)));
    (!said && !of_lead).then(|| format!("{word} in {reason}."))
}

/// The finding that the verdict is about.
fn leak<'p>(p: &'p Process<'_>) -> Option<&'p Finding> {
    p.findings.get(p.verdict.finding?)
}

/// Where what grows has filled the device.
fn filled(p: &Process<'_>) -> Option<String> {
    let f = leak(p)?;
    let oom = fatal(p, f)?;
    let without = p.anatomies.iter().find(|m| m.device == f.device && m.at == At::Oom && !f.is_remade());
    // Where nothing else was allocated there is no peak to speak of.
    let without = without.and_then(|m| m.anatomy.peak_without).filter(|b| b.0 > 0);
    let without = without.map(|b| format!("without this memory, the job would peak at {}", size(b.0)));
    let what = if f.is_remade() {
        "A block that is replaced by larger and larger ones"
    } else {
        "Memory that was not freed"
    };
    let when =
        format!("in {} {}{}", p.replay.step_source().noun(), thousands(oom.step.into()), in_phase(oom.phase));
    // What is not PyTorch's, where that is more: the smaller part did not fill the GPU alone.
    let others = post_mortem(p.replay, f.device).filter(|m| m.outside.is_some_and(|b| b > f.bytes_now));
    if let Some((m, total)) = others.zip(capacity(p, f.device)) {
        return Some(format!(
            "GPU {} was full {when}: {} of its {} was used outside of PyTorch, by {}, and {} by {}{}.",
            f.device.0,
            size(m.outside.unwrap_or(0)),
            size(total),
            m.outsiders(),
            size(f.bytes_now),
            if f.is_remade() {
                "a block that is replaced by larger ones"
            } else {
                "memory that was not freed"
            },
            without.map(|w| format!(" ({w})")).unwrap_or_default()
        ));
    }
    Some(format!(
        "{what} filled GPU {} {when}{}.",
        f.device.0,
        without.map(|w| format!("; {w}")).unwrap_or_default()
    ))
}

/// How fast it grows, where, and what comes of it.
fn growth(p: &Process<'_>) -> Option<String> {
    let f = leak(p)?;
    let when = forecast(p, f);
    let gpu = format!("GPU {}", f.device.0);
    // The GPU is named once: where it is said when it is full.
    let why = p.verdict.reason.strip_suffix(&format!(" on {gpu}")).filter(|_| when.is_some());
    let mut text = why.map_or_else(|| p.reason(), |why| p.reason_with(why));
    if let Some((label, when)) = when {
        let verb = if p.ended == Ended::Running { "will" } else { "would" };
        text.push_str(&format!("; {gpu} {verb} be {label} {when}"));
    }
    Some(text)
}
