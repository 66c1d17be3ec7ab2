//! What was announced, and what is news: the ranks of a job are one job, and nothing is said twice.

use super::rules::Rules;
use crate::live::Live;
use crate::process::Target;
use crate::{holder, known};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use strandline::detect::{Finding, Kind};
use strandline::event::named;
use strandline::report::text::{Spread, alert, headline, held, withdrawn};
use strandline::report::{Facts, HeldBy, Known, Namesakes, Process, Style, json as print};

/// How long a finding of one rank waits for the others, so that all of them are one line.
const HOLD: Duration = Duration::from_millis(400);
/// Sites of a finding that a verdict tells; the report has all.
const SITES: usize = 4;

named! {
    /// What the news are.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Matter {
        /// A finding stands.
        Alert = "alert",
        /// Who holds it is known now, which it was not when it was told.
        Held = "held",
        /// It does no longer.
        Withdrawn = "withdrawn",
    }
}

/// Something to be told.
#[derive(Clone, Debug)]
pub(crate) struct News {
    /// What they are.
    pub(crate) matter: Matter,
    /// Lines for a person.
    pub(crate) block: String,
    /// For programs.
    pub(crate) verdict: Value,
    /// The recording of the process where it is worst.
    pub(crate) recording: PathBuf,
    /// It ends the job now, where that is asked for.
    pub(crate) ends: bool,
    /// The processes that it was found in.
    pub(crate) targets: Vec<Target>,
    /// All processes of the job that are recorded and run.
    pub(crate) all: Vec<Target>,
}

/// A finding within a process, by its number, which stays the same while everything else of it changes.
type Subject = (usize, u32);
/// The same leak in whichever process: file and line, whatever kind it is by now (that a stream was left may be seen later); the
/// kind where no line is known.
type Place = Result<(String, u32), Kind>;

struct Case {
    group: usize,
    stands: bool,
}

struct Group {
    place: Place,
    announced: bool,
    /// Who holds it was told.
    held: bool,
    /// It ends the job, where that is asked for.
    ends: bool,
    /// Since when there is something to announce.
    since: Instant,
}

/// Memory of what was said.
pub(crate) struct Cases {
    rules: Rules,
    style: Style,
    cases: HashMap<Subject, Case>,
    groups: Vec<Group>,
}

impl Cases {
    /// Nothing was said yet.
    pub(crate) fn new(rules: Rules, style: Style) -> Cases {
        Cases { rules, style, cases: HashMap::new(), groups: Vec::new() }
    }

    /// Looks at a process that has just passed a mark.
    pub(crate) fn look(&mut self, live: &Live) {
        for finding in live.findings.iter().filter(|f| f.id > 0) {
            let subject = (live.id, finding.id);
            let wanted = self.rules.want(finding, live.replay);
            match self.cases.get_mut(&subject) {
                None if wanted => {
                    let group = self.group(place(finding, live));
                    self.begins(group);
                    self.cases.insert(subject, Case { group, stands: true });
                }
                Some(case) if case.stands && finding.withdrawn_step.is_some() => case.stands = false,
                Some(case) if !case.stands && wanted => {
                    case.stands = true;
                    let group = case.group;
                    self.begins(group);
                }
                _ => {}
            }
        }
    }

    /// Whether something that was announced, and did not end the job then, does so now.
    pub(crate) fn ends_now(&mut self, lives: &[&Live]) -> bool {
        let mut ends = false;
        for (number, group) in self.groups.iter_mut().enumerate().filter(|(_, g)| g.announced && !g.ends) {
            let mine = self.cases.iter().filter(|(_, c)| c.group == number && c.stands);
            group.ends = mine
                .flat_map(|((id, finding), _)| {
                    let live = lives.iter().find(|l| l.id == *id)?;
                    live.findings.iter().find(|f| f.id == *finding)
                })
                .any(|f| self.rules.ends(f));
            ends |= group.ends;
        }
        ends
    }

    fn group(&mut self, place: Place) -> usize {
        self.groups.iter().position(|g| g.place == place).unwrap_or_else(|| {
            self.groups.push(Group {
                place,
                announced: false,
                held: false,
                ends: false,
                since: Instant::now(),
            });
            self.groups.len() - 1
        })
    }

    /// The clock of a group starts with its first member that stands.
    fn begins(&mut self, group: usize) {
        if !self.cases.values().any(|c| c.group == group && c.stands) {
            self.groups[group].since = Instant::now();
        }
    }

    /// What is to be told now. `last`: nothing more will come, so nothing is waited for.
    pub(crate) fn settle(&mut self, lives: &[&Live], last: bool) -> Vec<News> {
        let mut news = Vec::new();
        for (number, group) in self.groups.iter_mut().enumerate() {
            let mut members = Vec::new();
            let mut gone = Vec::new();
            for ((id, finding), case) in self.cases.iter().filter(|(_, c)| c.group == number) {
                let Some(live) = lives.iter().find(|l| l.id == *id) else { continue };
                let Some(finding) = live.findings.iter().find(|f| f.id == *finding) else { continue };
                if case.stands { &mut members } else { &mut gone }.push((*live, finding));
            }
            // A process may have several devices with the same leak: it counts once.
            let mut found: Vec<usize> = members.iter().map(|(live, _)| live.id).collect();
            found.sort_unstable();
            found.dedup();
            let spread = Spread { found: found.len(), all: lives.len(), namesakes: Namesakes::None };
            // Where nothing tells when, the fastest; of equals always the same one.
            let worst = |(live, f): &&(&Live, &Finding)| {
                let rate = std::cmp::Reverse(f.current_bytes_per_step.max(0.0) as u64);
                (f.steps_to_oom.map_or(u64::MAX, |s| s.mid), rate, live.id)
            };
            if !group.announced && (spread.found == spread.all || last || group.since.elapsed() >= HOLD) {
                if let Some((live, finding)) = members.iter().min_by_key(worst) {
                    group.announced = true;
                    group.held = matches!(holder::held_by(finding, live.replay), HeldBy::Found(_));
                    group.ends = members.iter().any(|(_, f)| self.rules.ends(f));
                    let targets = members.iter().map(|(l, _)| l.target).collect();
                    let told = announced(live, finding, spread, targets, lives, self.style);
                    news.push(News { ends: group.ends, ..told });
                }
            } else if group.announced && !group.held && !members.is_empty() {
                let is_found =
                    |(l, f): &&(&Live, &Finding)| matches!(holder::held_by(f, l.replay), HeldBy::Found(_));
                if let Some((live, finding)) = members.iter().find(is_found) {
                    group.held = true;
                    news.push(now_held(live, finding, spread, self.style));
                }
            } else if group.announced && members.is_empty() {
                // Processes that have ended take nothing back, and what others find after them is no news.
                if let Some((live, finding)) = gone.first() {
                    group.announced = false;
                    news.push(taken_back(live, finding, lives));
                }
            }
        }
        if last {
            // Whatever is started next in this folder is another attempt, and told anew.
            self.cases.clear();
            self.groups.clear();
        }
        news
    }
}

fn place(finding: &Finding, live: &Live) -> Place {
    let site = finding.sites.first().and_then(|s| live.replay.site(s.site));
    site.map(|s| (s.frame.file.clone(), s.frame.line)).ok_or(finding.kind)
}

fn announced(
    live: &Live,
    finding: &Finding,
    spread: Spread,
    targets: Vec<Target>,
    lives: &[&Live],
    style: Style,
) -> News {
    let known = known::about(finding, live.replay, live.names, live.began, None);
    let all = lives.iter().map(|l| Facts::of(l.replay));
    let spread = Spread { namesakes: Facts::of(live.replay).namesakes(all), ..spread };
    let mut news = news(Matter::Alert, live, finding, Some(&known), spread, |p| {
        let text = format!("strandline: {}", headline(p, finding, Some(&known), spread));
        (text, alert(p, finding, Some(&known), spread, style))
    });
    news.verdict["seconds_to_oom"] = news.verdict["finding"]["seconds_to_oom"]["mid"].clone();
    News { targets, all: lives.iter().map(|l| l.target).collect(), ..news }
}

fn now_held(live: &Live, finding: &Finding, spread: Spread, style: Style) -> News {
    let known = known::about(finding, live.replay, live.names, live.began, None);
    news(Matter::Held, live, finding, Some(&known), spread, |p| {
        let lines = held(p, finding, &known, style);
        (lines.first().cloned().unwrap_or_default(), lines)
    })
}

fn taken_back(live: &Live, finding: &Finding, lives: &[&Live]) -> News {
    let spread = Spread { found: 0, all: lives.len(), namesakes: Namesakes::None };
    news(Matter::Withdrawn, live, finding, None, spread, |p| {
        let text = format!("strandline: {}", withdrawn(p, finding));
        (text.clone(), vec![text])
    })
}

/// What is told of a finding. `say`: its text for programs, and the lines for a person.
fn news(
    matter: Matter,
    live: &Live,
    finding: &Finding,
    known: Option<&Known>,
    spread: Spread,
    say: impl FnOnce(&Process<'_>) -> (String, Vec<String>),
) -> News {
    live.process(|p| {
        let (text, lines) = say(p);
        let facts = Facts::of(p.replay);
        let told = &Finding { sites: finding.sites.iter().take(SITES).copied().collect(), ..finding.clone() };
        let verdict = json!({
            "schema": 1,
            "tool": format!("strandline {}", strandline::VERSION),
            "event": matter.name(),
            "text": text,
            "command": facts.command(),
            "host": facts.text("host"),
            "pid": facts.number("pid"),
            "rank": facts.number("rank"),
            "processes_found": spread.found,
            "processes": spread.all,
            "recording": live.path,
            "steps": p.replay.steps(),
            "microbatches": p.replay.microbatches(),
            "finding": print::finding(p, told, known),
        });
        let (block, recording) = (lines.join("\n") + "\n", live.path.into());
        News { matter, block, verdict, recording, ends: false, targets: Vec::new(), all: Vec::new() }
    })
}
