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
}

/// The word on a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobVerdict {
    /// The gravest of its processes' outcomes.
    pub outcome: Outcome,
    /// Why; of several processes of which only some have that outcome, with the name of the first of those.
    pub reason: String,
    /// Its processes by falling gravity, as indices of what [`judge_job`] was given; of equals the first one first.
    pub order: Vec<usize>,
    /// How many of them have the job's outcome.
    pub alike: usize,
    /// The smallest growth that would have been seen in every process that was judged, where the job is clean.
    pub detectable: Option<f64>,
}

/// Judges a job by its processes. Without any it is unknown.
pub fn judge_job(members: &[Member<'_>]) -> JobVerdict {
    let gravity = |i: &usize| members[*i].verdict.outcome.gravity(members[*i].is_idle);
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(gravity(i)));
    let Some(worst) = order.first().map(|i| &members[*i]) else {
        return JobVerdict {
            outcome: Outcome::Unknown,
            reason: "there is no recording of any process".to_owned(),
            order,
            alike: 0,
            detectable: None,
        };
    };
    let outcome = worst.verdict.outcome;
    let alike = members.iter().filter(|m| m.verdict.outcome == outcome).count();
    let reason = match alike < members.len() && outcome != Outcome::Clean {
        true => format!("{}: {}", worst.name, worst.verdict.reason),
        false => worst.verdict.reason.clone(),
    };
    let clean = outcome == Outcome::Clean;
    let all = members.iter().filter_map(|m| m.verdict.detectable);
    let detectable = if clean { all.reduce(f64::max) } else { None };
    JobVerdict { outcome, reason, order, alike, detectable }
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
        let member = |(i, verdict)| Member { name: format!("rank {i}"), verdict, is_idle: i == 2 };
        let members: Vec<Member<'_>> = verdicts.iter().enumerate().map(member).collect();
        let job = judge_job(&members);
        assert_eq!((job.outcome, job.order.as_slice(), job.alike), (Outcome::Growing, &[1, 0, 2][..], 1));
        assert_eq!(job.reason, "rank 1: growing");
        let both = judge_job(&[members[0].clone(), members[2].clone()]);
        assert_eq!((both.outcome, both.detectable), (Outcome::Clean, Some(3.0)));
        assert_eq!(judge_job(&[]).outcome, Outcome::Unknown);
    }
}
