//! Several runs in one table: variants of a job, each with its repeats, against the first.

use crate::detect::{Certainty, GrainName, final_oom};
use crate::report::{Process, percent, plural, quantity, size, size_f, thousands};
use serde_json::{Value, json};

/// The part of the base's peak below which a difference is never an effect, however alike the repeats are.
const SMALLEST: f64 = 0.005;
/// Two rates of growth differ where one is so much less than the other.
const SLOWER: f64 = 0.8;

/// What is compared of one run of a job, which may have several processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Where it lies.
    pub path: String,
    /// Steps of the process that made most.
    pub steps: u32,
    /// The most that tensors took on a device at any moment, in bytes: of the fullest device of all processes.
    pub peak: u64,
    /// Bytes that every step leaves behind, in the process that grows fastest; 0 where none does.
    pub growth: f64,
    /// What the growth is counted by.
    pub per: Option<GrainName>,
    /// The step in which it ran out of memory and ended.
    pub died_in: Option<u32>,
}

impl Run {
    /// A run by its judged processes.
    pub fn of(path: String, processes: &[Process<'_>]) -> Run {
        let mut run = Run { path, ..Run::default() };
        for p in processes {
            run.steps = run.steps.max(p.replay.steps());
            let peaks = p.replay.devices().map(|d| d.peak_allocated.bytes.0);
            run.peak = peaks.fold(run.peak, u64::max);
            let grows = |c| matches!(c, Certainty::Leak | Certainty::Growing);
            let active = p.findings.iter().filter(|f| f.is_active_leak() && grows(f.certainty));
            let growth: f64 = active.clone().map(|f| f.bytes_per_step).sum();
            if growth > run.growth {
                (run.growth, run.per) = (growth, active.map(|f| f.grain).next());
            }
            let died = final_oom(p.replay).map(|(_, oom)| oom.step);
            run.died_in = run.died_in.into_iter().chain(died).min();
        }
        run
    }
}

/// A variant of a job: runs that should be alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// What it is called.
    pub name: String,
    /// Its runs.
    pub runs: Vec<Run>,
}

impl Variant {
    fn median(&self, of: impl Fn(&Run) -> f64) -> f64 {
        let mut all: Vec<f64> = self.runs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        match (all.len(), all.len() / 2) {
            (0, _) => 0.0,
            (n, half) if n % 2 == 0 => (all[half - 1] + all[half]) / 2.0,
            (_, half) => all[half],
        }
    }

    /// Its peak, of its middle run.
    pub fn peak(&self) -> u64 {
        self.median(|r| r.peak as f64) as u64
    }

    /// By how much the peaks of its runs differ.
    pub fn noise(&self) -> u64 {
        let peaks = || self.runs.iter().map(|r| r.peak);
        peaks().max().unwrap_or(0) - peaks().min().unwrap_or(0)
    }

    fn growth(&self) -> f64 {
        self.median(|r| r.growth)
    }

    fn steps(&self) -> u32 {
        self.median(|r| f64::from(r.steps)) as u32
    }

    /// How many steps its runs had: `40`, or `40 to 100`.
    fn all_steps(&self) -> String {
        let all = || self.runs.iter().map(|r| r.steps);
        let (least, most) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
        let from = if least < most { format!("{} to ", thousands(least.into())) } else { String::new() };
        format!("{from}{}", thousands(most.into()))
    }

    fn deaths(&self) -> usize {
        self.runs.iter().filter(|r| r.died_in.is_some()).count()
    }

    /// The step in which its runs die, where most do.
    fn dies_in(&self) -> Option<u32> {
        let mut steps: Vec<u32> = self.runs.iter().filter_map(|r| r.died_in).collect();
        steps.sort_unstable();
        (2 * steps.len() > self.runs.len()).then(|| steps[steps.len() / 2])
    }

    /// `300 MiB a step`; empty where it does not grow.
    fn growing(&self) -> String {
        let per = self.runs.iter().find_map(|r| r.per).unwrap_or(GrainName::Step);
        if self.growth() > 0.0 { format!("{} {}", size_f(self.growth()), per.per()) } else { String::new() }
    }
}

/// What a variant does to the job, against the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is the base.
    Base,
    /// Its peak is lower, by so many bytes.
    Saved(u64),
    /// Its peak differs by no more than its repeats do, or by less than half a percent.
    NoneSeen,
    /// Its peak is lower, but it ran less than half as many steps.
    TooShort,
    /// Its peak is higher, by so many bytes.
    Worse(u64),
    /// It leaves memory behind at every step, and the base does not.
    Grows,
    /// It ends, where the base ran out of memory.
    Ends,
    /// It runs out of memory in this step, and the base does not, or later.
    Died(u32),
    /// It runs out of memory in this step, as the base does about then, or earlier.
    DiesAsWell(u32),
}

impl Effect {
    /// As JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Effect::Base => "base",
            Effect::Saved(_) => "saved",
            Effect::NoneSeen => "no_measurable_effect",
            Effect::TooShort => "too_short",
            Effect::Worse(_) | Effect::Grows => "worse",
            Effect::Ends => "ends",
            Effect::Died(_) => "died",
            Effect::DiesAsWell(_) => "dies_as_well",
        }
    }

    /// The order of rows: the best first.
    fn rank(self) -> u8 {
        match self {
            Effect::Base | Effect::Ends | Effect::Saved(_) => 0,
            Effect::NoneSeen | Effect::TooShort => 1,
            Effect::Worse(_) | Effect::Grows => 2,
            Effect::DiesAsWell(_) => 3,
            Effect::Died(_) => 4,
        }
    }
}

/// Variants, compared with the first.
#[derive(Clone, Debug)]
pub struct Runs {
    base: Variant,
    /// The others, the best first.
    others: Vec<(Variant, Effect)>,
}

impl Runs {
    /// Compares variants with the first of them; `None` where there is none. Those without a run are left out.
    pub fn of(variants: Vec<Variant>) -> Option<Runs> {
        let mut all = variants.into_iter().filter(|v| !v.runs.is_empty());
        let base = all.next()?;
        let mut others: Vec<(Variant, Effect)> = all.map(|v| (v.clone(), effect(&base, &v))).collect();
        others.sort_by_key(|(v, effect)| (effect.rank(), v.peak()));
        Some(Runs { base, others })
    }

    /// Each variant and its effect: the base, then the best first.
    pub fn rows(&self) -> impl Iterator<Item = (&Variant, Effect)> {
        std::iter::once((&self.base, Effect::Base)).chain(self.others.iter().map(|(v, e)| (v, *e)))
    }

    /// Variants that are worse than the base: they die or grow and it does not, or their peak is higher by more than a part of it and so many
    /// bytes, and by more than repeats differ.
    pub fn worse(&self, part: f64, bytes: u64) -> Vec<&str> {
        let allowed = ((self.base.peak() as f64 * part) as u64).saturating_add(bytes);
        let is_worse = |e: &Effect| match e {
            Effect::Worse(by) => *by > allowed,
            Effect::Grows | Effect::Died(_) => true,
            _ => false,
        };
        self.others.iter().filter(|(_, e)| is_worse(e)).map(|(v, _)| v.name.as_str()).collect()
    }

    /// The first line: the best of them, or that none differs.
    pub fn verdict(&self) -> String {
        let base = &self.base.name;
        match self.others.first() {
            None => format!("there is nothing to compare with {base}"),
            Some((best, effect)) if effect.rank() == 0 => {
                format!("{} is best: {}", best.name, self.words(best, *effect))
            }
            Some((_, Effect::NoneSeen | Effect::TooShort)) => {
                format!("no run needs measurably less memory than {base}{}", self.worst())
            }
            Some(_) => format!("no run is better than {base}{}", self.worst()),
        }
    }

    /// After a verdict that names none: the worst of those that are worse.
    fn worst(&self) -> String {
        let last = self
            .others
            .last()
            .filter(|(_, e)| matches!(e, Effect::Worse(_) | Effect::Grows | Effect::Died(_)));
        last.map_or_else(String::new, |(v, e)| {
            format!("; the worst is {}: {}", v.name, self.words(v, *e).trim_start_matches("worse: "))
        })
    }

    /// The effect of a variant, in words.
    pub fn words(&self, v: &Variant, effect: Effect) -> String {
        let base = self.base.peak();
        let part = |by: u64| format!("{} ({})", size(by), percent(by as f64 / base.max(1) as f64));
        let runs =
            |n| if v.runs.len() > 1 { format!(" ({n} of {} runs)", v.runs.len()) } else { String::new() };
        let died =
            |step: u32| format!("out of memory in step {}{}", thousands(step.into()), runs(v.deaths()));
        let mut said = match effect {
            Effect::Base => v.dies_in().map(died).unwrap_or_default(),
            Effect::Saved(by) => format!("saved {}", part(by)),
            Effect::NoneSeen => "no measurable effect".to_owned(),
            Effect::TooShort => {
                let (ran, of) = (plural(v.steps().into(), "step"), thousands(self.base.steps().into()));
                return format!("cannot be compared: it ran {ran}, the base {of}");
            }
            Effect::Worse(by) if by >= base && base > 0 => {
                let times = quantity(v.peak() as f64 / base as f64);
                format!("worse: {} more ({times}× as much)", size(by))
            }
            Effect::Worse(by) => format!("worse: {} more", part(by)),
            Effect::Grows => format!("worse: grows {}", v.growing()),
            Effect::Ends => match self.base.dies_in() {
                Some(step) => {
                    format!(
                        "runs to its end, while the base ran out of memory in step {}",
                        thousands(step.into())
                    )
                }
                None => "ends".to_owned(),
            },
            Effect::Died(step) | Effect::DiesAsWell(step) => died(step),
        };
        if effect != Effect::Base && effect != Effect::Grows {
            if let Some(more) = grows(&self.base, v) {
                said += &format!("; {more}");
            }
            // What grows needs more, the longer it runs.
            let is_uneven = v.steps() != self.base.steps() && self.base.growth().max(v.growth()) > 0.0;
            if is_uneven && matches!(effect, Effect::Saved(_) | Effect::Worse(_) | Effect::NoneSeen) {
                said += &format!(
                    " (it ran {}, the base {})",
                    plural(v.steps().into(), "step"),
                    thousands(self.base.steps().into())
                );
            }
        }
        said
    }

    /// The cells of the table's rows.
    pub(super) fn cells(&self) -> impl Iterator<Item = [String; 6]> {
        self.rows().map(|(v, effect): (&Variant, Effect)| {
            let noise =
                if v.runs.len() > 1 { format!(" ± {}", size(v.noise().div_ceil(2))) } else { String::new() };
            let words = self.words(v, effect);
            let words = match (effect, words.is_empty()) {
                (Effect::Base, true) => "the base".to_owned(),
                (Effect::Base, false) => format!("the base; {words}"),
                _ => words,
            };
            let growing = v.growing();
            let growing = if growing.is_empty() { "-".to_owned() } else { growing };
            [
                v.name.clone(),
                v.runs.len().to_string(),
                v.all_steps(),
                format!("{}{noise}", size(v.peak())),
                growing,
                words,
            ]
        })
    }

    /// Each variant as JSON has it, of the mode with this name.
    pub(super) fn values(&self, mode: &str) -> impl Iterator<Item = Value> {
        let run = |r: &Run| {
            json!({
                "path": r.path, "steps": r.steps, "peak_bytes": r.peak, "growth_bytes_per_step": r.growth,
                "growth_grain": r.per.map(GrainName::name), "died_in_step": r.died_in,
            })
        };
        self.rows().map(move |(v, effect)| {
            let saved = (self.base.peak() as i64).saturating_sub(v.peak() as i64);
            json!({
                "name": v.name, "mode": (!mode.is_empty()).then_some(mode),
                "peak_bytes": v.peak(), "peak_noise_bytes": v.noise(), "steps": v.steps(),
                "growth_bytes_per_step": v.growth(), "died": v.deaths(), "saved_bytes": saved,
                "effect": effect.name(), "words": self.words(v, effect),
                "runs": v.runs.iter().map(run).collect::<Vec<_>>(),
            })
        })
    }

    /// The variant that the others are compared with.
    pub(super) fn base(&self) -> &Variant {
        &self.base
    }
}

fn effect(base: &Variant, v: &Variant) -> Effect {
    match (base.dies_in(), v.dies_in()) {
        (Some(_), None) => return Effect::Ends,
        (None, Some(step)) => return Effect::Died(step),
        (Some(_), Some(step)) => return Effect::DiesAsWell(step),
        (None, None) => {}
    }
    let (was, is) = (base.peak(), v.peak());
    let noise = base.noise().max(v.noise()).max((was as f64 * SMALLEST) as u64);
    match (was.abs_diff(is) > noise, is < was) {
        _ if base.growth() == 0.0 && v.growth() > 0.0 => Effect::Grows,
        (false, _) => Effect::NoneSeen,
        (true, true) if 2 * v.steps() < base.steps() => Effect::TooShort,
        (true, true) => Effect::Saved(was - is),
        (true, false) => Effect::Worse(is - was),
    }
}

/// How a variant grows, where that differs from how the base does.
fn grows(base: &Variant, v: &Variant) -> Option<String> {
    let (was, is) = (base.growth(), v.growth());
    match (was > 0.0, is > 0.0) {
        (true, false) => Some("does not grow".to_owned()),
        (false, true) => Some(format!("grows {}", v.growing())),
        (true, true) if is < was * SLOWER || was < is * SLOWER => {
            Some(format!("grows {}, not {}", v.growing(), size_f(was)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn variant(name: &str, peaks: &[u64], growth: f64, died: Option<u32>) -> Variant {
        let run = |peak: &u64| {
            let per = (growth > 0.0).then_some(GrainName::Step);
            Run { path: name.into(), steps: 40, peak: *peak, growth, per, died_in: died }
        };
        Variant { name: name.into(), runs: peaks.iter().map(run).collect() }
    }

    fn said(variants: Vec<Variant>) -> Vec<(String, String)> {
        let runs = Runs::of(variants).expect("a base");
        runs.rows().map(|(v, e)| (v.name.clone(), runs.words(v, e))).collect()
    }

    #[test]
    fn five_variants_of_three_runs_are_ranked() {
        let gib = |tenths: [u64; 3]| tenths.map(|t| t * GIB / 10);
        let told = said(vec![
            variant("as it was", &gib([220, 221, 219]), 0.0, None),
            variant("larger batch", &gib([231, 230, 230]), 0.0, Some(19)),
            variant("no effect", &gib([219, 220, 221]), 0.0, None),
            variant("offload", &gib([150, 150, 151]), 0.0, None),
            variant("cache", &gib([240, 241, 240]), 0.0, None),
        ]);
        let told: Vec<_> = told.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(
            told,
            [
                ("as it was", ""),
                ("offload", "saved 7.0 GiB (32 %)"),
                ("no effect", "no measurable effect"),
                ("cache", "worse: 2.0 GiB (9.1 %) more"),
                ("larger batch", "out of memory in step 19 (3 of 3 runs)"),
            ]
        );
    }

    #[test]
    fn a_run_that_ended_early_saves_nothing() {
        let mut early = variant("early", &[GIB], 0.0, None);
        early.runs.iter_mut().for_each(|r| r.steps = 4);
        let runs = Runs::of(vec![variant("base", &[20 * GIB], 0.0, None), early]).expect("a base");
        let told: Vec<_> = runs.rows().map(|(v, e)| runs.words(v, e)).collect();
        assert_eq!(told[1], "cannot be compared: it ran 4 steps, the base 40");
        assert_eq!(runs.verdict(), "no run needs measurably less memory than base");
    }

    #[test]
    fn a_difference_within_the_noise_of_repeats_is_no_effect() {
        let noisy = variant("base", &[20 * GIB, 22 * GIB, 21 * GIB], 0.0, None);
        let told = said(vec![noisy, variant("patch", &[20 * GIB; 3], 0.0, None)]);
        assert_eq!(told[1].1, "no measurable effect");
        let told =
            said(vec![variant("base", &[20 * GIB], 0.0, None), variant("patch", &[19 * GIB], 0.0, None)]);
        assert_eq!(told[1].1, "saved 1.0 GiB (5.0 %)");
    }

    #[test]
    fn growth_that_goes_or_comes_is_said() {
        let step = f64::from(300 << 20);
        let leaks = || variant("leaks", &[22 * GIB], step, None);
        let mended = || variant("mended", &[10 * GIB], 0.0, None);
        assert_eq!(said(vec![leaks(), mended()])[1].1, "saved 12.0 GiB (55 %); does not grow");
        assert_eq!(said(vec![mended(), leaks()])[1].1, "worse: grows 300 MiB a step");
        let slower = variant("slower", &[22 * GIB], step / 3.0, None);
        assert_eq!(
            said(vec![leaks(), slower])[1].1,
            "no measurable effect; grows 100 MiB a step, not 300 MiB"
        );
        let dies = variant("dies", &[22 * GIB], step, Some(19));
        assert_eq!(
            said(vec![dies.clone(), mended()])[1].1,
            "runs to its end, while the base ran out of memory in step 19; does not grow"
        );
        assert_eq!(said(vec![mended(), dies])[1].1, "out of memory in step 19; grows 300 MiB a step");
    }

    #[test]
    fn only_what_is_worse_than_allowed_fails() {
        let all = vec![
            variant("base", &[10 * GIB], 0.0, None),
            variant("a little", &[10 * GIB + GIB / 10], 0.0, None),
            variant("much", &[12 * GIB], 0.0, None),
            variant("dead", &[12 * GIB], 0.0, Some(3)),
        ];
        let runs = Runs::of(all).expect("a base");
        assert_eq!(runs.worse(0.02, 0), ["much", "dead"]);
        assert_eq!(runs.worse(0.0, 0), ["a little", "much", "dead"]);
    }
}
