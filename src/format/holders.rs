//! What a watcher asks a job's holder probe, and what that answers: JSON, both ways.
//!
//! The question lies in a file beside the job's tail, `<tail>.ask`, or beside its recording where the tail is no file:
//! `{"number":1,"findings":[{"about":…,"blocks":[…],"weights":[…]}],"last":false}`, with the addresses of flagged blocks. A job that begins to end says so
//! (the fact `ending`) and waits for a moment for the last question, which may be about nothing. The job takes the file away as it reads it,
//! and answers in the fact `holders` of its recording
//! (docs/recording.md): all its answers so far, each with the number of its question and with `about` as it was asked.

use super::tail::Place;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Longest question in bytes.
pub const LONGEST: u64 = 1 << 20;
/// Most findings of a question.
pub const FINDINGS: usize = 8;
/// Most blocks of a finding.
pub const BLOCKS: usize = 512;

/// Where the question to a job lies whose tail and recording are these.
pub fn place(tail: &Place, recording: &Path) -> PathBuf {
    let mut name = tail.file().map_or(recording.as_os_str(), AsRef::as_ref).to_owned();
    name.push(".ask");
    name.into()
}

/// A question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ask {
    /// Counts the questions to a job, from 1.
    pub number: u64,
    /// What is asked about.
    pub findings: Vec<Flagged>,
    /// Nothing more will be asked.
    pub last: bool,
}

/// Blocks of a finding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flagged {
    /// What tells the finding from others; the job hands it back as it is.
    pub about: Value,
    /// Addresses of its live blocks.
    pub blocks: Vec<u64>,
    /// For how much of its memory each of these stands, in any unit; empty where that is not known.
    pub weights: Vec<u64>,
}

impl Ask {
    /// As the file has it.
    pub fn to_json(&self) -> Value {
        let finding = |f: &Flagged| json!({ "about": f.about, "blocks": f.blocks, "weights": f.weights });
        let findings: Vec<Value> = self.findings.iter().map(finding).collect();
        json!({ "number": self.number, "findings": findings, "last": self.last })
    }

    /// Reads it; `None` where it is no question. What is beyond the bounds is left out.
    pub fn parse(text: &[u8]) -> Option<Ask> {
        let all: Value = serde_json::from_slice(text).ok()?;
        let finding = |f: &Value| {
            let numbers =
                |name: &str| f[name].as_array().into_iter().flatten().take(BLOCKS).map(Value::as_u64);
            let blocks: Vec<u64> = f["blocks"].is_array().then(|| numbers("blocks").flatten().collect())?;
            // A weight whose block is not known would shift the others.
            let weights: Vec<u64> = numbers("weights").flatten().collect();
            let weights = if weights.len() == blocks.len() { weights } else { Vec::new() };
            Some(Flagged { about: f.get("about")?.clone(), blocks, weights })
        };
        let findings = all["findings"].as_array()?.iter().take(FINDINGS).map(finding);
        let findings = findings.collect::<Option<_>>()?;
        Some(Ask { number: all["number"].as_u64()?, findings, last: all["last"] == true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_comes_back_and_nonsense_is_none() {
        let flagged = Flagged {
            about: json!({ "kind": "step-growth" }),
            blocks: vec![0x7f00_0000_0200, 1 << 40],
            weights: vec![3, 0],
        };
        let ask = Ask { number: 3, findings: vec![flagged.clone(); 2], last: true };
        assert_eq!(Ask::parse(ask.to_json().to_string().as_bytes()), Some(ask));
        let many = Ask {
            number: 1,
            findings: vec![Flagged { blocks: vec![1; 9999], weights: vec![1; 9999], ..flagged }; 99],
            last: false,
        };
        let read = Ask::parse(many.to_json().to_string().as_bytes()).expect("a question");
        assert_eq!((read.findings.len(), read.findings[0].blocks.len()), (FINDINGS, BLOCKS));
        assert_eq!(read.findings[0].weights.len(), BLOCKS);
        for text in ["", "{}", "[]", "{\"number\":-1,\"findings\":[]}", "{\"number\":1,\"findings\":[{}]}"] {
            assert_eq!(Ask::parse(text.as_bytes()), None, "{text}");
        }
    }
}
