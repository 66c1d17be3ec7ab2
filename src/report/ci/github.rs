//! Annotations, as a workflow on GitHub takes them from what its steps print: `::error file=…,line=…,title=…::…`.

use super::remark::{Remark, remarks, word};
use crate::report::model::Report;
use std::io::{self, Write};

/// Prints one for the job and one for each finding; what several processes share is said once. `root`: the folder that files are named
/// from.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, r: &Report<'_>, root: &str) -> io::Result<()> {
    let (level, text) = word(r);
    writeln!(out, "::{} title=strandline::{}", level.name(), data(&text))?;
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
    let mut properties = Vec::new();
    if let Some(spot) = &remark.spot {
        properties.push(format!("file={}", property(&spot.file)));
        properties.push(format!("line={}", spot.line));
    }
    let of = remark.name.as_ref().map(|n| format!(", {n}")).unwrap_or_default();
    properties.push(format!("title={}", property(&format!("strandline{of}"))));
    format!("::{} {}::{}", remark.level.name(), properties.join(","), data(&remark.told.text()))
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
