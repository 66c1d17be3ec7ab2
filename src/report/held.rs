//! Who holds what was flagged: the words for what the job's probe has answered.

use super::units::{count, percent};
use serde_json::Value;

/// What the holder probe said.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum HeldBy {
    /// It did not run, for this reason (may be empty).
    #[default]
    NotRun,
    /// It did not run, and this is why.
    Skipped(String),
    /// It ran and found no holder, for this reason.
    NotFound(String),
    /// It found these.
    Found(Vec<Holder>),
}

/// A place with a name that keeps blocks. Types and names of attributes, never values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holder {
    /// The place: `OffloadActivations.bwd_tensor_stash`.
    pub name: String,
    /// The type of what is there.
    pub kind: String,
    /// How many things are in it, where it is a container.
    pub entries: Option<u64>,
    /// It keeps the blocks through the autograd graphs of tensors in it.
    pub graph: bool,
    /// The nearest name on the way from the blocks to it, where that is another one.
    pub through: Option<String>,
    /// Its part of the blocks that were asked about, 0 to 1.
    pub share: f64,
}

impl HeldBy {
    /// Understands a finding's part of the fact `holders` (docs/recording.md).
    pub fn of(answer: &Value) -> HeldBy {
        let text = |v: &Value, key: &str| v.get(key).and_then(Value::as_str).map(str::to_owned);
        let reason = text(answer, "reason").unwrap_or_default();
        let all = answer.get("holders").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let asked = answer.get("blocks").and_then(Value::as_u64).unwrap_or(0);
        let holder = |v: &Value| {
            let blocks = v.get("blocks").and_then(Value::as_u64).unwrap_or(0);
            Some(Holder {
                name: text(v, "name")?,
                kind: text(v, "type").unwrap_or_default(),
                entries: v.get("entries").and_then(Value::as_u64),
                graph: v.get("graph").and_then(Value::as_bool).unwrap_or(false),
                through: text(v, "through"),
                share: if asked == 0 { 1.0 } else { blocks as f64 / asked as f64 },
            })
        };
        match text(answer, "status").as_deref() {
            Some("found") => HeldBy::Found(all.iter().filter_map(holder).collect()),
            Some("not_found") => HeldBy::NotFound(reason),
            _ => HeldBy::Skipped(reason),
        }
    }
}

impl Holder {
    /// For a person: `OffloadActivations.bwd_tensor_stash, a dict with 1,116 entries`.
    pub fn in_words(&self) -> String {
        let mut said = if self.graph { "the autograd graphs of " } else { "" }.to_owned();
        said.push_str(&self.name);
        if !self.kind.is_empty() {
            let article = if self.kind.starts_with(|c: char| "aeiouAEIOU".contains(c)) { "an" } else { "a" };
            said.push_str(&format!(", {article} {}", self.kind));
        }
        if let Some(n) = self.entries {
            said.push_str(&format!(" with {}", entries(n)));
        }
        if let Some(through) = &self.through {
            said.push_str(&format!(", through {through}"));
        }
        if self.share < 0.995 {
            said.push_str(&format!(": {} of the blocks that were looked for", percent(self.share)));
        }
        said
    }

    /// For a program: `OffloadActivations.bwd_tensor_stash (dict, 1859 entries)`.
    pub fn in_short(&self) -> String {
        let graph = if self.graph { "autograd graphs of " } else { "" };
        let entries = self.entries.map(|n| format!(", {n} {}", if n == 1 { "entry" } else { "entries" }));
        let through = self.through.as_ref().map(|t| format!(" through {t}"));
        let (name, kind) = (&self.name, &self.kind);
        format!("{graph}{name} ({kind}{}){}", entries.unwrap_or_default(), through.unwrap_or_default())
    }
}

fn entries(n: u64) -> String {
    format!("{} {}", count(n), if n == 1 { "entry" } else { "entries" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_are_worded_for_people_and_for_programs() {
        let one = json!({ "name": "OffloadActivations.bwd_tensor_stash", "type": "dict", "entries": 1116, "graph": false, "through": null, "blocks": 30 });
        let other = json!({ "name": "__main__.losses", "type": "dict", "entries": 1, "graph": true, "through": "FunctionBackward.context", "blocks": 2 });
        let answer = json!({ "status": "found", "holders": [one, other], "blocks": 32 });
        let HeldBy::Found(holders) = HeldBy::of(&answer) else { panic!("found") };
        let words: Vec<String> = holders.iter().map(Holder::in_words).collect();
        assert_eq!(
            words,
            [
                "OffloadActivations.bwd_tensor_stash, a dict with 1,116 entries: 94 % of the blocks that were looked for",
                "the autograd graphs of __main__.losses, a dict with 1 entry, through FunctionBackward.context: 6.2 % of the blocks that were looked for"
            ]
        );
        assert_eq!(holders[0].in_short(), "OffloadActivations.bwd_tensor_stash (dict, 1116 entries)");
        assert_eq!(
            holders[1].in_short(),
            "autograd graphs of __main__.losses (dict, 1 entry) through FunctionBackward.context"
        );
    }

    #[test]
    fn what_was_not_found_says_why() {
        let answer = |status: &str| json!({ "status": status, "holders": [], "reason": "because" });
        assert_eq!(HeldBy::of(&answer("not_found")), HeldBy::NotFound("because".into()));
        assert_eq!(HeldBy::of(&answer("not_run")), HeldBy::Skipped("because".into()));
        assert_eq!(HeldBy::of(&Value::Null), HeldBy::Skipped(String::new()));
    }
}
