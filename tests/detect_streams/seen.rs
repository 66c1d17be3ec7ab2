//! What is said of a drawn job from step to step, against what its events say is true.

use crate::evident::Evident;
use crate::synthetic::Drawn;
use std::collections::BTreeMap;
use strandline::detect::{Certainty, Detector, Finding, Policy, Severity};
use strandline::event::{Body, Event, Frame, Item};
use strandline::replay::Replay;

/// What was said of a job.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// A leak at any step: when, and of which lines.
    pub(crate) leak: Option<(u32, String)>,
    /// An alert at any step.
    pub(crate) alert: Option<(u32, String)>,
    /// At the end something grows of which no line does.
    pub(crate) idle: Option<String>,
    /// The step at which the guilty lines (of `leak.py`) were named first, and one of the last third at which they were not though they must be.
    pub(crate) named: Option<u32>,
    pub(crate) lost: Option<u32>,
    /// The same where nobody could tell that it goes on.
    pub(crate) silent: Option<u32>,
    /// Of the steps from then on, at how many they were named, and at how many not.
    pub(crate) stood: [u32; 2],
    /// Something that was named begins anew: when, and of which lines.
    pub(crate) again: Option<(u32, String)>,
    /// A line that two findings name at once: when, and which.
    pub(crate) twice: Option<(u32, String)>,
    /// Different steps that left blocks of guilty lines which live at the end, and are old by then; and how many bytes live there.
    pub(crate) left: usize,
    pub(crate) left_bytes: i64,
    /// From which step to which one guilty lines were named.
    pub(crate) when: Vec<(u32, u32)>,
    /// Steps of the job.
    pub(crate) steps: u32,
}

/// A line, as text.
pub(crate) fn text(f: &Frame) -> String {
    format!("{}:{}", f.file, f.line)
}

impl Seen {
    pub(crate) fn of(d: &Drawn) -> Seen {
        let (mut replay, mut detector) = (Replay::new(), Detector::new(Policy::default()));
        let mut seen = Seen::default();
        let evident = Evident::of(d);
        let mut stood: BTreeMap<u32, u32> = BTreeMap::new();
        for item in &d.items {
            let p = replay.apply(item, &d.names);
            detector.after(p, &replay);
            let Some(step) = p.step else { continue };
            seen.steps = step;
            let lines = |f: &Finding| -> Vec<String> {
                f.sites.iter().filter_map(|s| replay.site(s.site)).map(|s| text(&s.frame)).collect()
            };
            let mut guilty = false;
            let mut named = std::collections::BTreeSet::new();
            for f in detector.findings().iter().filter(|f| f.is_active_leak()) {
                let lines = lines(f);
                guilty |= lines.iter().any(|l| l.starts_with("leak.py"));
                if let Some(line) =
                    lines.iter().find(|l| !named.insert((f.device, f.stream.map(|s| s.id), (*l).clone())))
                {
                    seen.twice = seen.twice.or(Some((step, line.clone())));
                }
                let told = || format!("{lines:?} {}", f.explain);
                if f.certainty == Certainty::Leak && seen.leak.is_none() {
                    seen.leak = Some((step, told()));
                }
                if f.severity == Severity::Alert && seen.alert.is_none() {
                    seen.alert = Some((step, told()));
                }
                let before = stood.insert(f.id, step);
                if before.is_some_and(|b| b + 1 < step) && seen.again.is_none() {
                    seen.again = Some((step, format!("after {before:?} {}", told())));
                }
            }
            if guilty || seen.named.is_some() {
                seen.stood[usize::from(!guilty)] += 1;
            }
            match seen.when.last_mut().filter(|w| w.1 + 1 == step) {
                Some(w) if guilty => w.1 = step,
                _ if guilty => seen.when.push((step, step)),
                _ => {}
            }
            match (guilty, seen.named) {
                (true, None) => seen.named = Some(step),
                (false, Some(_)) if u64::from(step) > d.steps * 2 / 3 => {
                    let lost = if evident.at(step) { &mut seen.lost } else { &mut seen.silent };
                    *lost = lost.or(Some(step));
                }
                _ => {}
            }
        }
        detector.at_step(&replay);
        let truth = Truth::of(d);
        seen.left = truth.left;
        let last = truth.lines.iter().filter(|l| l.0.starts_with("leak.py")).filter_map(|l| l.1.last());
        seen.left_bytes = last.map(|held| held.1).sum();
        let idle = |f: &&Finding| {
            let sites = f.sites.iter().filter_map(|s| replay.site(s.site));
            let anew = f.explain.contains("freed and allocated again");
            f.is_active_leak() && !sites.map(|s| text(&s.frame)).any(|l| truth.grows(&l, anew))
        };
        seen.idle = detector.findings().iter().find(idle).map(|f| {
            let sites = f.sites.iter().filter_map(|s| replay.site(s.site)).map(|s| text(&s.frame));
            format!("{:?} since {}: {}", sites.collect::<Vec<_>>(), f.detected_step, f.explain)
        });
        seen
    }
}

/// Of each line (and stream), the steps from which blocks live at the end, and how many others lived for three steps or more.
pub(crate) fn kept_by_line(d: &Drawn) -> BTreeMap<String, (String, usize)> {
    let (mut live, mut died) = (BTreeMap::new(), BTreeMap::<String, usize>::new());
    let mut step = 0u32;
    for item in &d.items {
        match item {
            Item::Event(Event { body: Body::Alloc(b), .. }) => {
                let line = d.names.frames(b.stack).next().map(text).unwrap_or_default();
                live.insert(b.addr.0, (format!("{line}@{}", b.stream.0), step));
            }
            Item::Event(Event { body: Body::FreeRequested(b), .. }) => {
                if let Some((line, born)) = live.remove(&b.addr.0) {
                    *died.entry(line).or_default() += usize::from(born + 2 < step);
                }
            }
            Item::Event(Event { body: Body::ManualStep(_), .. }) => step += 1,
            _ => {}
        }
    }
    let mut kept: BTreeMap<String, BTreeMap<u32, u32>> = BTreeMap::new();
    live.into_values().for_each(|(line, born)| {
        *kept.entry(line).or_default().entry(born + 1).or_default() += 1;
    });
    let say = |(step, n): (&u32, &u32)| if *n > 1 { format!("{step}x{n}") } else { step.to_string() };
    let all = kept.into_iter().map(|(line, births)| {
        let died = died.get(&line).copied().unwrap_or(0);
        let births: Vec<String> = births.iter().map(say).collect();
        (line, (births.join(" "), died))
    });
    all.collect()
}

/// Blocks and bytes.
type Held = (i64, i64);

/// Live blocks of each line at the end of each step.
struct Truth {
    lines: BTreeMap<String, Vec<Held>>,
    steps: usize,
    /// Different steps that left blocks of guilty lines to the end.
    left: usize,
}

impl Truth {
    fn of(d: &Drawn) -> Truth {
        let mut line_of: BTreeMap<u64, (String, usize)> = BTreeMap::new();
        let mut now: BTreeMap<String, Held> = BTreeMap::new();
        let mut t = Truth { lines: BTreeMap::new(), steps: 0, left: 0 };
        for item in &d.items {
            let Item::Event(Event { body, .. }) = item else { continue };
            match body {
                Body::Alloc(b) => {
                    let line = d.names.frames(b.stack).next().map(text).unwrap_or_default();
                    let held = now.entry(line.clone()).or_default();
                    *held = (held.0 + 1, held.1 + b.size.0 as i64);
                    line_of.insert(b.addr.0, (line, t.steps));
                }
                Body::FreeRequested(b) => {
                    let (line, _) = line_of.remove(&b.addr.0).unwrap_or_default();
                    let held = now.entry(line).or_default();
                    *held = (held.0 - 1, held.1 - b.size.0 as i64);
                }
                Body::ManualStep(_) => {
                    for (line, n) in &now {
                        let all = t.lines.entry(line.clone()).or_default();
                        all.resize(t.steps, Held::default());
                        all.push(*n);
                    }
                    t.steps += 1;
                }
                _ => {}
            }
        }
        let guilty = line_of.values().filter(|(l, born)| l.starts_with("leak.py") && born + 3 <= t.steps);
        t.left = guilty.map(|(_, born)| born).collect::<std::collections::BTreeSet<_>>().len();
        t
    }

    /// More (blocks; of what is made anew and larger, bytes) live there in the last steps than at some moment of the last third of the run, or of its last 28 steps: sooner nobody
    /// can tell that it has ended.
    fn grows(&self, line: &str, anew: bool) -> bool {
        let Some(all) = self.lines.get(line) else { return false };
        let floor = |from: usize, to: usize| {
            let of = |h: &Held| if anew { h.1 } else { h.0 };
            (from..to).map(|i| all.get(i).map_or(0, of)).min()
        };
        let begin = self.steps.saturating_sub((self.steps / 3).max(28));
        floor(self.steps.saturating_sub(3), self.steps) > floor(begin, self.steps.saturating_sub(3))
    }
}
