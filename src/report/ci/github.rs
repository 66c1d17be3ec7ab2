//! Annotations, as a workflow on GitHub takes them from what its steps print: `::error file=…,line=…,title=…::…`.

use super::remark::{Remark, Spot, failed, remarks, word};
use crate::report::model::Report;
use std::io::{self, Write};

/// Prints one for the job, at the line whose allocation failed, if one did, and one for each finding; what several processes share is said once. `root`: the folder that files are named
/// from.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, r: &Report<'_>, root: &str) -> io::Result<()> {
    let (level, text) = word(r);
    let properties = properties(failed(r, root).as_ref(), "strandline");
    writeln!(out, "::{} {properties}::{}", level.name(), data(&text))?;
    let mut said: Vec<String> = Vec::new();
    for remark in remarks(r, root) {
        let line = annotation(&remark);
        // The number of a finding differs from process to process.
        let same = format!("{:?} {:?} {}", remark.level, remark.spot, remark.finding.kind.name());
        if remark.spot.is_some() && said.contains(&same) {
            continue;
        }
        said.push(same);
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn annotation(remark: &Remark<'_>) -> String {
    let of = remark.name.as_ref().map(|n| format!(", {n}")).unwrap_or_default();
    let properties = properties(remark.spot.as_ref(), &format!("strandline{of}"));
    format!("::{} {properties}::{}", remark.level.name(), data(&remark.told.text()))
}

fn properties(spot: Option<&Spot>, title: &str) -> String {
    let at = spot.map(|spot| format!("file={},line={},", property(&spot.file), spot.line));
    format!("{}title={}", at.unwrap_or_default(), property(title))
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the runner's own toolkit escapes them.
    #[test]
    fn what_a_command_is_made_of_is_escaped() {
        assert_eq!(data("70 %\nand: more, ::error::"), "70 %25%0Aand: more, ::error::");
        assert_eq!(property("a,b:c%\r"), "a%2Cb%3Ac%25%0D");
    }
}
