//! What a report is made from. A command fills it from reader, replay and detect; text and JSON print it.

use super::held::{HeldBy, Holder, KeptAt};
use crate::detect::{Finding, GrainName, SelfFault, UNCOLLECTED, Verdict, final_oom};
use crate::event::{Bytes, DeviceId, Frame, HostKiller, Names, StackId};
use crate::replay::anatomy::{Anatomy, At};
use crate::replay::device_fact;
use crate::replay::{Coverage, Device, OomEvent, Replay, SiteKind};
use serde_json::Value;
use std::collections::BTreeMap;

/// A job: its processes, and what is known of it as a whole.
#[derive(Clone, Debug, Default)]
pub struct Report<'a> {
    /// Its processes, by rank where they have one.
    pub processes: Vec<Process<'a>>,
    /// How the command that was run ended, where we ran it.
    pub exit: Option<Exit>,
    /// Commands worth typing next, each with what it is for.
    pub next: Vec<(String, String)>,
    /// Links to files, on the page.
    pub source_links: Option<SourceLinks>,
}

/// How links to the lines of files are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLinks {
    /// What they begin with.
    pub before: String,
    /// The folder whose files they are for, absolute; its name is no part of a link, and packages below it have none. Empty: all files.
    pub root: String,
    /// What stands before a line's number.
    pub line: &'static str,
}

/// One recorded process.
#[derive(Clone, Debug)]
pub struct Process<'a> {
    /// Its state at the end of the recording.
    pub replay: &'a Replay,
    /// Its stacks.
    pub names: &'a Names,
    /// The word on it.
    pub verdict: &'a Verdict,
    /// What was found, worst first; what was withdrawn, too.
    pub findings: &'a [Finding],
    /// What is known about each finding beyond the recording, in the same order; may be shorter.
    pub known: Vec<Known>,
    /// What filled a device, at moments worth a table.
    pub anatomies: Vec<Moment>,
    /// What the reader could not read, one sentence each.
    pub damage: Vec<String>,
    /// How it ended.
    pub ended: Ended,
    /// What is said is said of the end of this step; `None`: of the end of the recording.
    pub at_step: Option<u32>,
    /// The same process as its whole recording has it, where `at_step` is one of its steps.
    pub whole: Option<Box<Process<'a>>>,
    /// Whether the host's out-of-memory killer ended it.
    pub killer: HostKiller,
    /// What of strandline it may have died of.
    pub self_fault: Option<SelfFault>,
    /// What recording it cost, where that was measured.
    pub cost: Cost,
    /// Native frames of stacks that findings name, looked up: functions innermost first, with those that were inlined.
    pub native: BTreeMap<StackId, Native>,
    /// What a CUDA context takes on its devices, where that was measured.
    pub contexts: BTreeMap<DeviceId, Context>,
}

/// What a CUDA context takes on a device, as it was measured in a process that did nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// So much.
    pub bytes: Bytes,
    /// With this driver.
    pub driver: String,
    /// On this day, as `2026-11-22`.
    pub measured: String,
}

/// The native frames of a stack.
#[derive(Clone, Debug, Default)]
pub struct Native {
    /// All of them.
    pub frames: Vec<Frame>,
    /// The one that says most (see `replay::reached`).
    pub reached: usize,
}

impl<'a> Process<'a> {
    /// A process of which nothing more is known than what replay and detect say.
    pub fn new(
        replay: &'a Replay,
        names: &'a Names,
        verdict: &'a Verdict,
        findings: &'a [Finding],
    ) -> Process<'a> {
        Process {
            replay,
            names,
            verdict,
            findings,
            known: Vec::new(),
            anatomies: Vec::new(),
            damage: Vec::new(),
            ended: Ended::Unknown,
            at_step: None,
            whole: None,
            killer: HostKiller::default(),
            self_fault: None,
            cost: Cost::default(),
            native: BTreeMap::new(),
            contexts: BTreeMap::new(),
        }
    }
}

/// The anatomy of a device at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// Device.
    pub device: DeviceId,
    /// Peak, or an allocation that failed.
    pub at: At,
    /// What filled it.
    pub anatomy: Anatomy,
}

/// What is known of a finding beyond the recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Who holds the blocks.
    pub held_by: HeldBy,
    /// The statement of the user's that keeps them.
    pub kept_at: Option<KeptAt>,
    /// Others that keep good parts of them, and these parts, 0 to 1.
    pub kept_too: Vec<(KeptAt, f64)>,
    /// A file that was not searched for such a statement, because it was modified after the recording had begun.
    pub modified: Option<String>,
    /// The remedy, where the leak is a known one.
    pub fix: Option<Fix>,
}

/// Why something is said to be a leak. Of one that is known, or whose holder was found, it is no question any more what keeps it.
pub(super) fn because<'a>(p: &Process<'_>, f: &'a Finding, known: Option<&Known>) -> &'a str {
    let is_found = |h: &HeldBy| matches!(h, HeldBy::Found(all) if !all.iter().all(Holder::may_be_garbage));
    let is_kept = known.is_some_and(|k| k.fix.is_some() || is_found(&k.held_by));
    // What is missing of the recording may be a collection.
    let is_open = !is_kept && p.damage.is_empty();
    f.explain.strip_suffix(UNCOLLECTED).filter(|_| !is_open).unwrap_or(&f.explain)
}

/// A known leak.
#[derive(Clone, Debug, PartialEq)]
pub struct Fix {
    /// Where it is known: `huggingface/trl#5700`.
    pub known: String,
    /// What to do.
    pub text: String,
}

impl Fix {
    /// After `fix`: where it is known, and what helps.
    pub(super) fn in_words(&self) -> String {
        format!("known: {}, {}", self.known, self.text)
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Exit,
    /// By a signal.
    Signal(i32),
    /// It has not.
    Running,
    /// Nobody knows: the program ended its recording before.
    Stopped,
    /// Nobody saw it.
    #[default]
    Unknown,
}

impl Ended {
    /// As JSON has it.
    pub fn name(self) -> String {
        match self {
            Ended::Exit => "exit".into(),
            Ended::Signal(n) => format!("signal {n}"),
            Ended::Running => "running".into(),
            Ended::Stopped => "stopped".into(),
            Ended::Unknown => "unknown".into(),
        }
    }
}

/// The exit status that `run` will end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The number.
    pub status: i32,
    /// It is the job's own (else: ours, because the job ended with 0).
    pub own: bool,
}

/// What recording cost. `None` where it was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Of the time of a step.
    pub step_time_fraction: Option<f64>,
    /// Host memory.
    pub host: Option<Bytes>,
    /// Disk.
    pub disk: Option<Bytes>,
    /// What looking for holders took, where that was asked for.
    pub probe: Option<ProbeCost>,
}

/// What looking for holders cost the job, of all questions together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProbeCost {
    /// Questions that were answered.
    pub questions: u64,
    /// Pauses.
    pub pauses: u64,
    /// All of them, in nanoseconds.
    pub paused: u64,
    /// The longest, in nanoseconds.
    pub longest: u64,
    /// Objects that were looked at, of the largest question.
    pub objects: u64,
}

impl ProbeCost {
    /// What the fact `holders` says; `None` where nothing was asked.
    fn of(replay: &Replay) -> Option<ProbeCost> {
        let answers = replay.meta()["holders"].as_array()?;
        let mut all = ProbeCost { questions: answers.len() as u64, ..ProbeCost::default() };
        for answer in answers {
            let number = |key: &str| answer["cost"][key].as_u64().unwrap_or_default();
            all.pauses += number("slices");
            all.paused += number("pause_ns");
            all.longest = all.longest.max(number("longest_ns"));
            all.objects = all.objects.max(number("objects"));
        }
        Some(all)
    }
}

impl Cost {
    /// What the fact `cost` of a recording says (docs/recording.md), and what the recording takes on disk.
    pub fn of(replay: &Replay, disk: Option<Bytes>) -> Cost {
        let number = |key: &str| replay.meta()["cost"][key].as_f64().filter(|n| *n >= 0.0);
        let fraction = || {
            // No hook was timed: unknown, not nothing.
            number("timed_hooks").filter(|n| *n > 0.0)?;
            let elapsed = number("elapsed_ns").filter(|n| *n > 0.0)?;
            // What looked for holders paused the job for all of its time.
            Some((number("timed_ns")? * number("one_in")? + number("probe_ns").unwrap_or(0.0)) / elapsed)
        };
        let host = number("host_bytes").map(|b| Bytes(b as u64));
        Cost { step_time_fraction: fraction(), host, disk, probe: ProbeCost::of(replay) }
    }
}

/// Facts of a process that its recording states, read from the replay's `meta` (docs/recording.md has its keys).
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a>(&'a Value);

impl<'a> Facts<'a> {
    /// The facts of a process.
    pub fn of(replay: &'a Replay) -> Facts<'a> {
        Facts(replay.meta())
    }

    /// The recording says that there is none of it.
    pub(super) fn is_none(self, key: &str) -> bool {
        self.0.get(key).is_some_and(Value::is_null)
    }

    /// A text.
    pub fn text(self, key: &str) -> Option<&'a str> {
        self.0[key].as_str()
    }

    /// A number.
    pub fn number(self, key: &str) -> Option<u64> {
        self.0[key].as_u64()
    }

    /// Of which findings the job can be asked who holds their blocks: `Some(true)`: of all, `Some(false)`: of those that are established, `None`: of
    /// none.
    pub fn searches(self) -> Option<bool> {
        match &self.0["probe"] {
            Value::Bool(true) => Some(true),
            Value::String(what) if what == "leaks" => Some(false),
            _ => None,
        }
    }

    /// The command line.
    pub fn command(self) -> Vec<&'a str> {
        self.0["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// What the machine calls a device that this process knows by another number, by its `CUDA_VISIBLE_DEVICES`.
    pub fn visible_as(self, device: DeviceId) -> Option<&'a str> {
        let name = self.text("visible_devices")?.split(',').nth(usize::from(device.0))?.trim();
        (!name.is_empty() && name != device.0.to_string()).then_some(name)
    }

    /// The name of a device.
    pub fn device_name(self, device: DeviceId) -> Option<&'a str> {
        device_fact(self.0, device)["name"].as_str()
    }

    /// Total memory of a device, as the program was told.
    pub fn device_capacity(self, device: DeviceId) -> Option<u64> {
        device_fact(self.0, device)["capacity_bytes"].as_u64().filter(|&b| b > 0)
    }

    /// Why not all was seen, where the recording says; of blocks only what it says of them.
    pub fn coverage_reason(self, seen: Coverage) -> Option<&'a str> {
        let coverage = &self.0["coverage"];
        let is_of_it = seen != Coverage::Blocks || coverage["level"].as_str() == Some(seen.name());
        coverage["reason"].as_str().filter(|_| is_of_it)
    }
}

/// The failed allocation that what a finding is about ended in: the job did not go on after it.
pub(super) fn fatal<'p>(p: &'p Process<'_>, f: &Finding) -> Option<&'p OomEvent> {
    let (device, oom) = final_oom(p.replay)?;
    (device == f.device && (f.grain != GrainName::Step || oom.step >= f.first_step)).then_some(oom)
}

/// Devices on which the job had anything; those it only asked about are not worth a word.
pub fn used<'p>(p: &'p Process<'_>) -> impl Iterator<Item = &'p Device> {
    p.replay.devices().filter(|d| d.peak_reserved.bytes.0 > 0 || d.peak_allocated.bytes.0 > 0)
}

/// What helps where a notebook keeps what its cells returned.
const OF_CELLS: &str = "end the cell with a semicolon, or with print(…), so that its result is not kept; %reset -f out frees the results kept so far";

/// What helps where reference cycles are kept that Python's collector has not come by to free.
const OF_CYCLES: &str = "call gc.collect() every few steps, or break the reference cycle by keeping one of its references as a weakref.ref(…)";

/// What that begins with where the collector never comes by.
const COLLECTOR_OFF: &str = "the job has switched Python's garbage collector off (gc.disable()): ";

/// What helps where gradients stay.
const OF_GRADIENTS: &str = "zero_grad() frees gradients; each parameter gets a gradient when it is first used, so this growth stops when all parameters have one";

/// What helps where an optimizer, or a module, has what grows, and nothing is known of the statement: to clear these would end the training.
const OF_OPTIMIZERS: &str = "an optimizer keeps a state for each of its parameters: remove parameters that are no longer trained from param_groups, and pop() them from state; if you wrote the optimizer, limit what its step() adds";
const OF_MODULES: &str =
    "remove the modules and parameters that are no longer used, or create them once and reuse them";

/// Whether a holder is a part of an optimizer or a module, or has such; and no list of them, which may be cleared.
fn is_in_training(h: &Holder) -> bool {
    const OWN: [&str; 5] = ["state", "param_groups", "_parameters", "_buffers", "_modules"];
    h.name.rsplit_once('.').is_some_and(|(_, attribute)| OWN.contains(&attribute)) || !h.is_plain()
}

/// What helps against a finding: at the statement that keeps it, where that is known; else what fits its holder; else in the words of
/// whatever allocates in this process.
pub(super) fn remedy(p: &Process<'_>, f: &Finding, known: Option<&Known>) -> Option<String> {
    let holders = known.and_then(|k| match &k.held_by {
        HeldBy::Found(holders) => Some(holders),
        _ => None,
    });
    if holders.is_some() && because(p, f, known).ends_with(UNCOLLECTED) {
        let is_off = p.replay.meta()["holders"].as_array().and_then(|all| all.last());
        let is_off = is_off.is_some_and(|answer| answer["collector"] == "off");
        return Some(if is_off { format!("{COLLECTOR_OFF}{OF_CYCLES}") } else { OF_CYCLES.to_owned() });
    }
    if let Some(kept) = known.and_then(|k| k.kept_at.as_ref()) {
        // Of a graph, or of what takes part in training, the statement tells more than what helps with any container.
        let is_plain = holders.is_some_and(|all| all.iter().all(|h| !h.graph && h.part.is_none()));
        let of_any = f.kind.info().remedy_without_graph.filter(|_| is_plain);
        let remedy = kept.remedy.clone().or_else(|| of_any.map(str::to_owned))?;
        return Some(with_others(kept, remedy, known.map_or(&[], |k| &k.kept_too)));
    }
    if let Some(holders) = holders {
        if holders.first().is_some_and(Holder::is_of_cells) {
            return Some(OF_CELLS.to_owned());
        }
        if holders.first().is_some_and(|h| h.gradient && !h.graph) {
            return Some(OF_GRADIENTS.to_owned());
        }
        let part = holders.first().filter(|h| !h.graph && is_in_training(h)).and_then(|h| h.part.as_deref());
        match part.filter(|_| f.kind.info().remedy_without_graph.is_some()) {
            Some("optimizer") => return Some(OF_OPTIMIZERS.to_owned()),
            Some("module") => return Some(OF_MODULES.to_owned()),
            _ => {}
        }
        let info = f.kind.info();
        let of = match holders.iter().any(|h| h.graph) {
            true => info.remedy_with_graph,
            false => info.remedy_without_graph,
        };
        if let Some(remedy) = of {
            return Some(remedy.to_owned());
        }
    } else if let Some(remedy) = unknown(p, f) {
        return Some(remedy.to_owned());
    }
    let general = general_remedy(p, f)?;
    // Nobody was found who holds them, and the collector has not run.
    let cycle = if because(p, f, known).ends_with(UNCOLLECTED) {
        "; if gc.collect() frees the memory, break the reference cycle"
    } else {
        ""
    };
    Some(format!("{general}{cycle}"))
}

/// What helps at a statement, and at the others that keep a good part, where that is something else.
fn with_others(kept: &KeptAt, remedy: String, others: &[(KeptAt, f64)]) -> String {
    others.iter().fold(remedy, |all, (other, _)| match &other.remedy {
        Some(remedy) if !all.contains(remedy.as_str()) && !all.contains(container(&other.source)) => {
            let file = other.file.rsplit('/').next().filter(|_| other.file != kept.file);
            let of_file = file.map_or_else(String::new, |file| format!(" of {file}"));
            format!("{all}; at line {}{of_file}: {remedy}", other.line)
        }
        _ => all,
    })
}

/// What a statement fills, as it names it: `self.rows` of `self.rows.append(row)`, `grads` of `grads[step] = grad`.
fn container(statement: &str) -> &str {
    let end = statement.find(['(', '[', '=', '+']).unwrap_or(statement.len());
    let (name, is_call) = (statement[..end].trim_end(), statement[end..].starts_with('('));
    name.rsplit_once('.').filter(|_| is_call).map_or(name, |(object, _)| object)
}

/// Where neither a line nor a holder is known: how to come to know one.
fn unknown(p: &Process<'_>, f: &Finding) -> Option<&'static str> {
    let site = p.replay.site(f.sites.first()?.site)?;
    let facts = Facts::of(p.replay);
    match (site.kind, facts.text("stacks")?) {
        (SiteKind::Unknown, "none") if f.kind.is_leak() && facts.is_none("python") => {
            Some("record the job with --stacks native to see the function that allocates this memory")
        }
        (SiteKind::Unknown, "none") if f.kind.is_leak() => Some(
            "record the job with Python stacks (without --stacks none) to see the line that allocates this memory and what holds it",
        ),
        (SiteKind::Unknown | SiteKind::Native, "native") if f.kind.is_leak() && facts.is_none("python") => {
            Some(
                "find where these tensors are stored: release them when they are no longer needed, or limit their number",
            )
        }
        (SiteKind::Unknown | SiteKind::Native, "native") if f.kind.is_leak() => Some(
            "record the job with --stacks both to see the Python line that allocates this memory and what holds it",
        ),
        _ => None,
    }
}

fn general_remedy(p: &Process<'_>, f: &Finding) -> Option<&'static str> {
    let without_torch = ["CUDA", "CuPy", "XLA"].map(Some).contains(&Facts::of(p.replay).text("allocator"));
    if without_torch { f.kind.remedy_without_torch() } else { f.kind.remedy() }
}

/// Size of a device, by whatever told.
pub(super) fn capacity(p: &Process<'_>, device: DeviceId) -> Option<u64> {
    let told = p.replay.device(device).and_then(|d| d.capacity).map(|c| c.total.0);
    told.or_else(|| Facts::of(p.replay).device_capacity(device))
}

/// What PyTorch's own message calls the request; `None` where another allocator gave up.
pub(super) fn tried(p: &Process<'_>, o: &OomEvent) -> Option<Bytes> {
    let own = Facts::of(p.replay).text("allocator") == Some("native");
    (own && o.call.is_none()).then(|| o.tried())
}
