//! The processes of a job as people are told of them: what each is called, the word on it, and which of them the job is called
//! after. Whatever names a process or weighs it asks here.

use super::model::{Ended, Facts, Process, Report, fatal};
use super::style::Ink;
use crate::detect::{
    End, Finding, JobVerdict, Member, Outcome, PostMortem, final_oom, judge_job, post_mortem,
};
use crate::event::{SIGTERM, signal_name, total};
use std::collections::{BTreeMap, BTreeSet};

/// Longer names of programs are cut.
const LONG: usize = 24;

impl<'a> Facts<'a> {
    /// Its number among the processes of its job, where a launcher gave it one. A recording has 0 where none did, and says that
    /// of nothing else a launcher tells is there.
    pub fn rank(self) -> Option<u64> {
        let rank = self.number("rank")?;
        let is_told = rank > 0 || !(self.is_none("world_size") && self.is_none("local_rank"));
        is_told.then_some(rank)
    }

    /// What runs, in a word: the script, the module of `-m`, `python -c`, or the program.
    pub fn program(self) -> Option<String> {
        let command = self.command();
        let (first, rest) = command.split_first()?;
        let program = last(first);
        let name = match is_python(program).then(|| of_python(rest)) {
            Some(Ran::Code(code)) if code.contains("multiprocessing") => "multiprocessing worker".to_owned(),
            Some(Ran::Code(_)) => format!("{program} -c"),
            Some(Ran::Module(name)) => name.to_owned(),
            Some(Ran::Script(path)) => last(path).to_owned(),
            Some(Ran::Nothing) | None => program.to_owned(),
        };
        // What a report to share has left out is no name.
        let shown = !name.is_empty() && !name.starts_with('…');
        shown.then(|| match name.char_indices().nth(LONG) {
            Some((at, _)) => format!("{}…", &name[..at]),
            None => name,
        })
    }

    /// The path of the script that a Python runs, as it was given.
    pub(super) fn script(self) -> Option<&'a str> {
        let command = self.command();
        let (first, rest) = command.split_first()?;
        match of_python(rest) {
            Ran::Script(path) if is_python(last(first)) => Some(path),
            _ => None,
        }
    }

    /// `rank 1, pid 4712`; without a rank `pid 4711 (train.py)`. No two processes of a machine are called the same.
    pub fn who(self) -> String {
        let pid = self.number("pid").map(|pid| format!("pid {pid}"));
        let rank = self.rank().map(|rank| format!("rank {rank}"));
        match (rank, pid, self.program()) {
            (Some(rank), Some(pid), _) => format!("{rank}, {pid}"),
            (None, Some(pid), Some(program)) => format!("{pid} ({program})"),
            (rank, pid, program) => rank.or(pid).or(program).unwrap_or_else(|| "a process".to_owned()),
        }
    }

    /// Which start of its rank it is, from 1.
    pub(super) fn start(self) -> u64 {
        self.number("restart").unwrap_or(0).saturating_add(1)
    }

    /// What it is called among the processes of its job: `rank 1`, of a rank that was started again `rank 1, start 2`.
    pub fn name(self, others: Namesakes) -> String {
        match (self.rank(), others) {
            (Some(rank), Namesakes::None) => format!("rank {rank}"),
            (Some(rank), Namesakes::Starts) => format!("rank {rank}, start {}", self.start()),
            _ => self.who(),
        }
    }

    /// Which of `all`, which contains this one, have its rank, too.
    pub fn namesakes<'b>(self, all: impl IntoIterator<Item = Facts<'b>>) -> Namesakes {
        let Some(rank) = self.rank() else { return Namesakes::None };
        let of_rank = all.into_iter().filter(|f| f.rank() == Some(rank));
        Namesakes::by_starts(of_rank.map(Facts::start).collect())
    }
}

/// The processes that have the rank of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namesakes {
    /// It alone.
    None,
    /// Its other starts: a launcher started it again after a failure.
    Starts,
    /// Also child processes.
    Children,
}

impl Namesakes {
    /// Of processes of one rank, by which start of it each is.
    fn by_starts(mut starts: Vec<u64>) -> Namesakes {
        let count = starts.len();
        starts.sort_unstable();
        starts.dedup();
        match (count, starts.len()) {
            (0 | 1, _) => Namesakes::None,
            (all, distinct) if all == distinct => Namesakes::Starts,
            _ => Namesakes::Children,
        }
    }
}

/// Without folders; a package's `__main__.py` is the package.
fn last(path: &str) -> &str {
    let path = path.strip_suffix("/__main__.py").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

fn is_python(program: &str) -> bool {
    program.starts_with("python")
}

/// What a Python was told to run.
enum Ran<'a> {
    /// After `-c`: such a process has no file of its own. `multiprocessing` starts its workers so.
    Code(&'a str),
    Module(&'a str),
    Script(&'a str),
    Nothing,
}

fn of_python<'a>(arguments: &[&'a str]) -> Ran<'a> {
    let mut rest = arguments.iter().copied();
    while let Some(word) = rest.next() {
        match word {
            "-c" => return Ran::Code(rest.next().unwrap_or_default()),
            "-m" => return Ran::Module(rest.next().unwrap_or_default()),
            "-W" | "-X" => drop(rest.next()),
            // What a report to share leaves out may be options.
            _ if word.starts_with(['-', '…']) => {}
            _ => return Ran::Script(word),
        }
    }
    Ran::Nothing
}

impl Process<'_> {
    /// Nothing was done with GPU memory, and nothing of its recording is missing: there is nothing to be judged.
    pub fn is_idle(&self) -> bool {
        let is_unknown =
            self.verdict.outcome == Outcome::Unknown && !self.killer.killed() && self.self_fault.is_none();
        let is_unknown = is_unknown && self.replay.failed().is_none();
        is_unknown && self.replay.is_idle() && self.damage.is_empty()
    }

    /// How it ended, for what is said of several processes.
    fn end(&self) -> End {
        match (self.ended, self.replay.exit_status()) {
            _ if self.at_step.is_some() => End::Well,
            (Ended::Signal(SIGTERM), _) => End::Terminated,
            (Ended::Signal(_), _) => End::Failed(self.replay.steps()),
            (Ended::Exit, Some(status)) if status != 0 => End::Failed(self.replay.steps()),
            _ => End::Well,
        }
    }

    /// It did not end well.
    pub(super) fn has_failed(&self) -> bool {
        self.end() != End::Well
    }

    /// How it ended, for a table: `exit 1`, `SIGKILL`, `exit 1, out of memory` where the phrase does not tell that.
    fn ending(&self) -> String {
        let how = match (self.ended, self.replay.exit_status()) {
            _ if self.at_step.is_some() => "-".to_owned(),
            (Ended::Exit, Some(status)) => format!("exit {status}"),
            (Ended::Signal(n), _) => signal_name(n).map_or_else(|| format!("signal {n}"), str::to_owned),
            (Ended::Unknown, _) => "not seen".to_owned(),
            (ended, _) => ended.name(),
        };
        let is_told = self.at_step.is_some() || self.phrase().0.contains(RAN_OUT);
        let oom = if is_told || final_oom(self.replay).is_none() { "" } else { ", out of memory" };
        format!("{how}{oom}")
    }

    /// The phrase that a report begins with, and how it is drawn.
    pub(super) fn phrase(&self) -> (&'static str, Ink) {
        match self.verdict.outcome {
            _ if self.self_fault.is_some() => ("STRANDLINE MAY HAVE FAILED", Ink::Bad),
            _ if self.killer.killed() => ("KILLED BY THE HOST", Ink::Bad),
            _ if self.replay.failed().is_some() => ("CUDA ERROR", Ink::Bad),
            Outcome::Leak if has_filled(self) => ("LEAK, OUT OF MEMORY", Ink::Bad),
            Outcome::Leak => ("LEAK", Ink::Bad),
            Outcome::Growing if has_filled(self) => ("GROWING, OUT OF MEMORY", Ink::Bad),
            Outcome::Growing => ("GROWING", Ink::Doubt),
            // What grows has not filled it, and is told of below.
            Outcome::Oom if self.findings.iter().any(|f| f.grows()) => (RAN_OUT, Ink::Bad),
            Outcome::Oom if out_of_memory(self).is_some_and(|m| m.may_leak) => (RAN_OUT, Ink::Bad),
            // What is suppressed has filled it.
            Outcome::Oom if self.verdict.finding.is_some() => (RAN_OUT, Ink::Bad),
            Outcome::Oom if self.verdict.too_short => (RAN_OUT, Ink::Bad),
            Outcome::Oom => (NO_LEAK, Ink::Bad),
            Outcome::Clean => ("NO LEAK", Ink::Good),
            Outcome::Unknown if self.verdict.too_short => ("TOO SHORT", Ink::Doubt),
            Outcome::Unknown => ("NOT JUDGED", Ink::Doubt),
        }
    }

    /// The same beside other processes: of one that had nothing to be judged, that.
    pub(super) fn phrase_beside(&self) -> &'static str {
        if self.is_idle() { IDLE } else { self.phrase().0 }
    }
}

/// Whether the job died of an allocation that failed where what its verdict is about grew.
fn has_filled(p: &Process<'_>) -> bool {
    p.verdict.finding.and_then(|i| p.findings.get(i)).is_some_and(|f| fatal(p, f).is_some())
}

/// Why memory ran out, on the device where it did last.
pub(super) fn out_of_memory(p: &Process<'_>) -> Option<PostMortem> {
    let device =
        p.replay.devices().filter(|d| !d.ooms.is_empty()).max_by_key(|d| d.ooms.last().map(|o| o.time))?;
    post_mortem(p.replay, device.id)
}

/// The phrase of a job that ran out of memory while something grew that has not filled the device, or too early to say that
/// nothing leaks.
const RAN_OUT: &str = "OUT OF MEMORY";
/// The phrase of one that did not.
const NO_LEAK: &str = "OUT OF MEMORY, NO LEAK";

/// What is said of a process that did nothing with GPU memory.
pub const IDLE: &str = "no GPU memory";

impl<'a> Report<'a> {
    /// What one of its processes is called.
    pub(super) fn name(&self, p: &Process<'_>) -> String {
        let facts = Facts::of(p.replay);
        facts.name(facts.namesakes(self.processes.iter().map(|q| Facts::of(q.replay))))
    }

    /// What each of its processes is called.
    pub(super) fn names(&self) -> Vec<String> {
        let facts = || self.processes.iter().map(|p| Facts::of(p.replay));
        let of_rank: BTreeMap<u64, Namesakes> =
            self.starts().into_iter().map(|(rank, starts)| (rank, Namesakes::by_starts(starts))).collect();
        let namesakes = |f: Facts<'_>| f.rank().and_then(|rank| of_rank.get(&rank)).copied();
        facts().map(|f| f.name(namesakes(f).unwrap_or(Namesakes::None))).collect()
    }

    /// The last start of each rank, from 1.
    pub(super) fn last_starts(&self) -> BTreeMap<u64, u64> {
        self.starts()
            .into_iter()
            .map(|(rank, starts)| (rank, starts.into_iter().max().unwrap_or(1)))
            .collect()
    }

    /// Which starts of each rank there are.
    fn starts(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut of_rank: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for f in self.processes.iter().map(|p| Facts::of(p.replay)) {
            f.rank().into_iter().for_each(|rank| of_rank.entry(rank).or_default().push(f.start()));
        }
        of_rank
    }

    /// The process that the report begins with: one that we may have ended, the host killed or an error of CUDA's ended, else the
    /// gravest.
    pub(super) fn lead(&self) -> Option<&Process<'a>> {
        let job = self.job();
        let all = || job.order.iter().filter_map(|i| self.processes.get(*i));
        let ours = all().find(|p| p.self_fault.is_some());
        let killed = ours.or_else(|| all().find(|p| p.killer.killed()));
        killed.or_else(|| all().find(|p| p.replay.failed().is_some())).or_else(|| all().next())
    }

    /// The phrase of the whole job, and how it is drawn.
    pub(super) fn phrase(&self) -> (&'static str, Ink) {
        let grows = || self.processes.iter().any(|p| p.findings.iter().any(|f| f.grows()));
        match self.lead().map(Process::phrase) {
            Some((NO_LEAK, ink)) if grows() => (RAN_OUT, ink),
            Some(phrase) => phrase,
            None => ("NOT JUDGED", Ink::Doubt),
        }
    }

    /// The word on the job: all that is said of it as a whole is read from this.
    pub fn job(&self) -> JobVerdict {
        let last = self.last_starts();
        let member = |(p, name): (&Process<'a>, String)| Member {
            name,
            is_last: is_last_start(&last, p),
            verdict: p.verdict,
            is_idle: p.is_idle(),
            hides: p.findings.iter().any(Finding::is_suppressed),
            growth: p.verdict.finding.and_then(|i| p.findings.get(i)).map_or(0.0, |f| f.bytes_per_step),
            end: p.end(),
        };
        judge_job(&self.processes.iter().zip(self.names()).map(member).collect::<Vec<_>>())
    }

    /// The process with the gravest verdict.
    pub(super) fn gravest(&self) -> Option<&Process<'a>> {
        self.processes.get(*self.job().order.first()?)
    }

    /// Its processes as a table has them; none where there is only one.
    pub(super) fn rows(&self) -> Vec<Row> {
        let all = if self.processes.len() > 1 { self.processes.as_slice() } else { &[] };
        let working = || all.iter().filter(|p| !p.is_idle());
        let is_one = working().map(Process::ending).collect::<BTreeSet<String>>().len() <= 1;
        let tells_end = !is_one || working().any(Process::has_failed);
        let row = |(p, name): (&Process<'_>, String)| Row {
            name,
            phrase: p.phrase_beside(),
            ended: tells_end.then(|| p.ending()),
            peak: p.replay.devices().map(|d| d.peak_allocated.bytes.0).max().unwrap_or(0),
            left: total(p.findings.iter().filter(|f| f.is_active_leak()).map(|f| f.bytes_now)),
            steps: p.replay.steps(),
            ink: if p.is_idle() { Ink::Faint } else { p.phrase().1 },
        };
        all.iter().zip(self.names()).map(row).collect()
    }
}

/// Whether no later start of its rank is among these.
pub(super) fn is_last_start(last: &BTreeMap<u64, u64>, p: &Process<'_>) -> bool {
    let f = Facts::of(p.replay);
    f.rank().and_then(|rank| last.get(&rank)).is_none_or(|n| *n == f.start())
}

/// A process among others.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) phrase: &'static str,
    /// How it ended, where some failed or not all ended in the same way.
    pub(super) ended: Option<String>,
    /// Most that was ever allocated on one device.
    pub(super) peak: u64,
    /// What its leaks hold.
    pub(super) left: u64,
    pub(super) steps: u32,
    /// How its phrase is drawn.
    pub(super) ink: Ink,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Item, Names};
    use crate::replay::Replay;
    use serde_json::{Value, json};

    fn of(facts: Value) -> Replay {
        let mut replay = Replay::new();
        replay.apply(&Item::Meta(facts), &Names::default());
        replay
    }

    fn who(facts: Value) -> String {
        Facts::of(&of(facts)).who()
    }

    /// A recording says rank 0 of whoever has none.
    #[test]
    fn a_rank_is_one_that_a_launcher_gave() {
        let facts = |rank, local: Value, world: Value| {
            let command = ["python", "/job/train.py"];
            who(
                json!({"rank": rank, "local_rank": local, "world_size": world, "pid": 4711, "command": command}),
            )
        };
        assert_eq!(facts(0, Value::Null, Value::Null), "pid 4711 (train.py)");
        assert_eq!(facts(0, json!(0), Value::Null), "rank 0, pid 4711");
        assert_eq!(facts(0, Value::Null, json!(1)), "rank 0, pid 4711");
        assert_eq!(facts(3, Value::Null, Value::Null), "rank 3, pid 4711");
        assert_eq!(who(json!({})), "a process");
    }

    #[test]
    fn what_runs_is_a_word() {
        let program = |command: &[&str]| Facts::of(&of(json!({ "command": command }))).program();
        let is = |command: &[&str], name: &str| assert_eq!(program(command).as_deref(), Some(name));
        is(&["/env/bin/python3.12", "-u", "-X", "dev", "jobs/train.py", "reward.py"], "train.py");
        is(&["python", "-m", "trl.scripts.sft", "--x", "1"], "trl.scripts.sft");
        is(&["python3", "-c", "from multiprocessing.spawn import spawn_main"], "multiprocessing worker");
        is(&["python3", "-c", "import train"], "python3 -c");
        is(&["python", "/env/torch/_inductor/compile_worker/__main__.py", "--parent=4711"], "compile_worker");
        is(&["./a.out", "-m", "x.py"], "a.out");
        is(&["python"], "python");
        is(&["python", "a_script_with_a_very_long_name.py"], "a_script_with_a_very_lon…");
        is(&["python3", "…", "your/file1.py", "…"], "file1.py");
        assert_eq!(program(&["python", "-m", "…"]), None, "left out of a report to share");
        assert_eq!(program(&[]), None);
    }

    #[test]
    fn a_rank_that_several_have_is_no_name() {
        let of = |rank, pid| of(json!({"rank": rank, "local_rank": rank, "world_size": 2, "pid": pid}));
        let all = [of(0, 1), of(0, 2), of(1, 3)];
        let all = || all.iter().map(Facts::of);
        let names: Vec<String> = all().map(|f| f.name(f.namesakes(all()))).collect();
        assert_eq!(names, ["rank 0, pid 1", "rank 0, pid 2", "rank 1"]);
    }

    #[test]
    fn starts_of_a_rank_are_numbered() {
        let of = |restart, pid| {
            of(json!({"rank": 1, "local_rank": 1, "world_size": 2, "restart": restart, "pid": pid}))
        };
        let all = [of(1, 7), of(0, 9)];
        let all = || all.iter().map(Facts::of);
        let names: Vec<String> = all().map(|f| f.name(f.namesakes(all()))).collect();
        assert_eq!(names, ["rank 1, start 2", "rank 1, start 1"]);
    }
}
