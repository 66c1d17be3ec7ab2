//! The judgement of a job: of its processes' verdicts the one that it is called after. Headline, table of ranks, alerts,
//! page, metrics, JSON and exit status all read this, so that they cannot contradict each other.

use super::verdict::{Outcome, Verdict};

/// One process of a job, as [`judge_job`] is told of it.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// What it is called: `rank 1`.
    pub name: String,
    /// The word on it.
    pub verdict: &'a Verdict,
    /// It did nothing with GPU memory, and nothing of its recording is missing.
    pub is_idle: bool,
    /// Something that it keeps is suppressed.
    pub hides: bool,
    /// Bytes that each mark adds to what its verdict is about; 0 where that is no growth.
    pub growth: f64,
    /// How it ended.
    pub end: End,
    /// No later start of its rank is there.
    pub is_last: bool,
}

/// How a process of a job ended, of which the others often end, too. In the order in which they are told of: the first to fail is why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// It failed after so many steps. Where processes wait for each other, the first to fail has done the fewest.
    Failed(u32),
    /// SIGTERM, which launchers send to the others.
    Terminated,
    /// It runs, or ended well.
    Well,
}

impl Member<'_> {
    /// The same is said of both.
    fn is_like(&self, other: &Member<'_>) -> bool {
        self.verdict.outcome == other.verdict.outcome && self.is_idle == other.is_idle
    }
}

/// The word on a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobVerdict {
    /// The gravest of its processes' outcomes.
    pub outcome: Outcome,
    /// Why; of several processes of which only some have that outcome, with the name of the first of those.
    pub reason: String,
    /// Its processes by falling gravity, as indices of what [`judge_job`] was given; of equals those that were not started again, the one that grows faster, then the first to fail, then the first one, but for clean ones,
    /// of which those come first that something is suppressed of: what is said of the job is not true of less than all of it.
    pub order: Vec<usize>,
    /// How many of them have the job's outcome.
    pub alike: usize,
    /// The process that a gate on growth goes by, as an index of what was given: the gravest one but for those that ran out of memory
    /// without a leak, which hide nothing of another, and those that had nothing to be judged.
    pub gated: Option<usize>,
    /// Too few steps ended in its gravest process.
    pub too_short: bool,
    /// The smallest growth that would have been seen in every process that was judged, where the job is clean.
    pub detectable: Option<f64>,
}

/// Judges a job by its processes. Without any it is unknown.
pub fn judge_job(members: &[Member<'_>]) -> JobVerdict {
    let gravity = |i: &usize| members[*i].verdict.outcome.gravity(members[*i].is_idle);
    let mut order: Vec<usize> = (0..members.len()).collect();
    let whole = |i: &usize| members[*i].verdict.outcome == Outcome::Clean && !members[*i].hides;
    // Of those of which the same is said the one that grows fastest comes first.
    let (growth, end) = (|i: usize| members[i].growth, |i: usize| members[i].end);
    order.sort_by(|a, b| growth(*b).total_cmp(&growth(*a)).then(end(*a).cmp(&end(*b))));
    order.sort_by_key(|i| (std::cmp::Reverse(gravity(i)), whole(i), !members[*i].is_last));
    let Some(first) = order.first().copied() else {
        return JobVerdict {
            outcome: Outcome::Unknown,
            reason: "there is no recording of any process".to_owned(),
            order,
            alike: 0,
            gated: None,
            too_short: false,
            detectable: None,
        };
    };
    let worst = &members[first];
    let outcome = worst.verdict.outcome;
    let alike = members.iter().filter(|m| m.is_like(worst)).count();
    let reason = match alike < members.len() && outcome != Outcome::Clean {
        true => format!("{}: {}", worst.name, worst.verdict.reason),
        false => worst.verdict.reason.clone(),
    };
    let counts = |i: &usize| members[*i].verdict.outcome != Outcome::Oom && !members[*i].is_idle;
    let gated = order.iter().copied().find(counts).unwrap_or(first);
    let clean = outcome == Outcome::Clean;
    let all = members.iter().filter_map(|m| m.verdict.detectable);
    let detectable = if clean { all.reduce(f64::max) } else { None };
    JobVerdict {
        outcome,
        reason,
        order,
        alike,
        gated: Some(gated),
        too_short: worst.verdict.too_short,
        detectable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(outcome: Outcome, detectable: Option<f64>) -> Verdict {
        Verdict { reason: outcome.name().to_owned(), detectable, ..Verdict::new(outcome, "") }
    }

    #[test]
    fn a_job_is_called_after_its_gravest_process_which_is_named() {
        let verdicts = [
            verdict(Outcome::Clean, Some(3.0)),
            verdict(Outcome::Growing, None),
            verdict(Outcome::Unknown, None),
        ];
        let member = |(i, verdict)| Member {
            name: format!("rank {i}"),
            verdict,
            is_idle: i == 2,
            hides: false,
            growth: 0.0,
            end: End::Well,
            is_last: true,
        };
        let members: Vec<Member<'_>> = verdicts.iter().enumerate().map(member).collect();
        let job = judge_job(&members);
        assert_eq!((job.outcome, job.order.as_slice(), job.alike), (Outcome::Growing, &[1, 0, 2][..], 1));
        assert_eq!(job.reason, "rank 1: growing");
        let both = judge_job(&[members[0].clone(), members[2].clone()]);
        assert_eq!((both.outcome, both.detectable), (Outcome::Clean, Some(3.0)));
        assert_eq!(judge_job(&[]).outcome, Outcome::Unknown);
    }

    /// The first line is about all of it: of two clean processes the one that hides something has the words for that.
    #[test]
    fn a_clean_job_is_told_in_the_words_of_the_process_that_hides_something() {
        let verdict = |reason: &str| Verdict::new(Outcome::Clean, reason);
        let (plain, other) = (verdict("no line"), verdict("no other line"));
        let member = |verdict, hides| Member {
            name: String::new(),
            verdict,
            is_idle: false,
            hides,
            growth: 0.0,
            end: End::Well,
            is_last: true,
        };
        let job = judge_job(&[member(&plain, false), member(&other, true)]);
        assert_eq!((job.reason.as_str(), job.order.as_slice()), ("no other line", &[1, 0][..]));
    }

    #[test]
    fn of_two_that_grow_the_faster_one_comes_first() {
        let verdict = verdict(Outcome::Growing, None);
        let member = |(i, growth)| Member {
            name: format!("rank {i}"),
            verdict: &verdict,
            is_idle: false,
            hides: false,
            growth,
            end: End::Well,
            is_last: true,
        };
        let members: Vec<Member<'_>> = [1.0, 7.0, 7.0, 3.0].into_iter().enumerate().map(member).collect();
        let job = judge_job(&members);
        assert_eq!((job.order.as_slice(), job.reason.as_str()), (&[1, 2, 3, 0][..], "growing"));
    }

    /// What a launcher then did to the others is not why.
    #[test]
    fn of_alike_processes_the_first_to_fail_comes_first() {
        let verdict = verdict(Outcome::Clean, None);
        let member = |end| Member {
            name: String::new(),
            verdict: &verdict,
            is_idle: false,
            hides: false,
            growth: 0.0,
            end,
            is_last: true,
        };
        let ends = [End::Terminated, End::Well, End::Failed(14), End::Failed(13)];
        assert_eq!(judge_job(&ends.map(member)).order, [3, 2, 0, 1]);
    }

    #[test]
    fn of_starts_alike_the_last_one_is_told() {
        let verdict = verdict(Outcome::Growing, None);
        let member = |(growth, is_last)| Member {
            name: String::new(),
            verdict: &verdict,
            is_idle: false,
            hides: false,
            growth,
            end: End::Well,
            is_last,
        };
        let starts: Vec<Member<'_>> = [(9.0, false), (7.0, true)].into_iter().map(member).collect();
        assert_eq!(judge_job(&starts).order, [1, 0]);
    }

    #[test]
    fn a_gate_goes_by_what_grows_and_an_out_of_memory_hides_nothing() {
        let gated = |outcomes: &[(Outcome, bool)]| {
            let verdicts: Vec<Verdict> = outcomes.iter().map(|(o, _)| verdict(*o, None)).collect();
            let mut members = Vec::new();
            for (verdict, (_, is_idle)) in verdicts.iter().zip(outcomes) {
                members.push(Member {
                    name: String::new(),
                    verdict,
                    is_idle: *is_idle,
                    hides: false,
                    growth: 0.0,
                    end: End::Well,
                    is_last: true,
                });
            }
            let job = judge_job(&members);
            (job.outcome, job.gated.map(|i| outcomes[i].0))
        };
        use Outcome::{Clean, Growing, Leak, Oom, Unknown};
        assert_eq!(gated(&[(Oom, false), (Growing, false)]), (Oom, Some(Growing)));
        assert_eq!(gated(&[(Oom, false), (Leak, false)]), (Leak, Some(Leak)));
        assert_eq!(gated(&[(Oom, false), (Clean, false)]), (Oom, Some(Clean)));
        assert_eq!(gated(&[(Oom, false), (Unknown, true)]), (Oom, Some(Oom)));
        assert_eq!(gated(&[(Clean, false), (Unknown, true)]), (Clean, Some(Clean)));
        assert_eq!(gated(&[(Clean, false), (Unknown, false)]), (Unknown, Some(Unknown)));
        assert_eq!(gated(&[(Unknown, true)]), (Unknown, Some(Unknown)));
        assert_eq!(gated(&[]), (Unknown, None));
    }
}
