//! SARIF 2.1.0: a result for each finding, a rule for each kind of it, the word on the job as a notification.

use super::remark::{Level, Remark, Spot, failed, remarks, word};
use crate::detect::Kind;
use crate::event::Frame;
use crate::report::model::{Ended, Facts, Process, Report, remedy};
use crate::report::text::clause;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::io::{self, Write};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// The folder that files are named from.
const ROOT: &str = "SRCROOT";

/// Prints it. `root`: the folder that files are named from.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, r: &Report<'_>, root: &str) -> io::Result<()> {
    let all = remarks(r, root);
    let mut kinds: Vec<Kind> = Vec::new();
    for remark in &all {
        if !kinds.contains(&remark.finding.kind) {
            kinds.push(remark.finding.kind);
        }
    }
    let results: Vec<Value> = all.iter().map(|m| result(m, &kinds)).collect();
    let (level, text) = word(r);
    let mut notification =
        json!({ "level": name(level), "message": { "text": text }, "descriptor": { "id": "verdict" } });
    if let Some(spot) = failed(r, root) {
        notification["locations"] = json!([location(&spot)]);
    }
    let invocations: Vec<Value> = r.processes.iter().map(|p| invocation(r, p, &notification)).collect();
    let driver = json!({
        "name": "strandline",
        "version": crate::VERSION,
        "semanticVersion": crate::VERSION,
        "rules": kinds.iter().map(|k| rule(*k)).collect::<Vec<_>>(),
        "notifications": [{ "id": "verdict", "shortDescription": { "text": "The verdict on the job." } }],
    });
    let mut run = json!({
        "tool": { "driver": driver },
        "invocations": invocations,
        "columnKind": "unicodeCodePoints",
        "results": results,
    });
    if !root.is_empty() {
        let uri = format!("file://{}/", encoded(root.trim_end_matches('/')));
        run["originalUriBaseIds"] = json!({ ROOT: { "uri": uri } });
    }
    let log = json!({ "$schema": SCHEMA, "version": "2.1.0", "runs": [run] });
    serde_json::to_writer_pretty(&mut *out, &log)?;
    writeln!(out)
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Notice => "note",
        level => level.name(),
    }
}

fn rule(kind: Kind) -> Value {
    let info = kind.info();
    let short = info.headline.replace("{grain}", "step");
    let mut rule = json!({
        "id": info.name,
        "shortDescription": { "text": format!("{}.", clause(&short)) },
    });
    if let Some(remedy) = info.remedy {
        rule["help"] =
            json!({ "text": format!("{remedy}. This is general advice; each result has its own.") });
    }
    rule
}

fn invocation(r: &Report<'_>, p: &Process<'_>, word: &Value) -> Value {
    let facts = Facts::of(p.replay);
    let mut v = json!({
        // What the job itself came to is its own matter: this is whether it was analysed.
        "executionSuccessful": true,
        "toolExecutionNotifications": [word],
        "properties": { "process": r.name(p), "verdict": p.verdict.outcome.name(), "reason": p.verdict.reason },
    });
    let command = facts.command();
    if let Some((first, rest)) = command.split_first() {
        v["commandLine"] = json!(command.join(" "));
        if first.starts_with('/') {
            v["executableLocation"] = artifact(first, false);
        }
        v["arguments"] = json!(rest);
    }
    if let Some(pid) = facts.number("pid") {
        v["processId"] = json!(pid);
    }
    if let Ended::Signal(n) = p.ended {
        v["exitSignalNumber"] = json!(n);
    }
    v
}

fn result(remark: &Remark<'_>, kinds: &[Kind]) -> Value {
    let (f, p) = (remark.finding, remark.process);
    let mut v = json!({
        "ruleId": f.kind.name(),
        "ruleIndex": kinds.iter().position(|k| *k == f.kind),
        "level": name(remark.level),
        "message": { "text": remark.told.text() },
        "locations": remark.spot.iter().map(location).collect::<Vec<_>>(),
        // Without the line's number: what moves stays the same result.
        "partialFingerprints": { "place/v1": fingerprint(remark) },
        "properties": {
            "process": remark.name,
            "certainty": f.certainty.name(),
            "severity": f.severity.name(),
            "bytesPerStep": f.bytes_per_step,
            "bytesNow": f.bytes_now,
            "remedy": remedy(p, f, p.known.get(remark.told.index)),
        },
    });
    if let Some(stack) = f.sites.first().and_then(|s| s.site(p.replay)).map(|s| s.stack) {
        let frames: Vec<Value> = p.names.frames(stack).map(frame).collect();
        if !frames.is_empty() {
            v["stacks"] = json!([{ "message": { "text": "Where it was allocated." }, "frames": frames }]);
        }
    }
    if let Some(by) = &f.suppressed_by {
        v["suppressions"] = json!([{ "kind": "external", "justification": by }]);
    }
    v
}

fn location(spot: &Spot) -> Value {
    let mut region = json!({ "startLine": spot.line });
    if let Some(source) = &spot.source {
        region["snippet"] = json!({ "text": source });
    }
    let mut v = json!({ "physicalLocation": { "artifactLocation": artifact(&spot.file, spot.is_below), "region": region } });
    if !spot.function.is_empty() {
        v["logicalLocations"] = json!([{ "fullyQualifiedName": spot.function, "kind": "function" }]);
    }
    v
}

fn artifact(file: &str, is_below: bool) -> Value {
    match is_below {
        true => json!({ "uri": encoded(file), "uriBaseId": ROOT }),
        false => json!({ "uri": format!("file://{}", encoded(file)) }),
    }
}

fn frame(f: &Frame) -> Value {
    let mut at = json!({ "logicalLocations": [{ "fullyQualifiedName": f.function, "kind": "function" }] });
    if f.file.starts_with('/') {
        at["physicalLocation"] = json!({ "artifactLocation": artifact(&f.file, false) });
        if f.line > 0 {
            at["physicalLocation"]["region"] = json!({ "startLine": f.line });
        }
    }
    json!({ "location": at })
}

/// What is the same of the same finding in the next run.
fn fingerprint(remark: &Remark<'_>) -> String {
    let at = remark
        .spot
        .as_ref()
        .map(|s| format!("{}:{}:{}", s.file, s.function, s.source.as_deref().unwrap_or_default()));
    format!("{}:{}", remark.finding.kind.name(), at.unwrap_or_default())
}

/// A path as a part of a URI.
fn encoded(path: &str) -> String {
    const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');
    utf8_percent_encode(path, &PLAIN).to_string()
}

#[cfg(test)]
mod tests {
    use super::encoded;

    #[test]
    fn a_path_is_a_part_of_a_uri() {
        assert_eq!(encoded("/a b/ü#1.py"), "/a%20b/%C3%BC%231.py");
    }
}
