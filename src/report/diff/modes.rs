//! Variants of a job in several modes, such as full training and LoRA: one table, in which each mode has a base of its own.

use super::runs::{Effect, Runs, Variant};
use crate::report::{Align, Style, Table};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Variants by their modes. A job that has no modes has one without a name.
#[derive(Clone, Debug)]
pub struct Modes {
    all: Vec<(String, Runs)>,
}

impl Modes {
    /// Compares the variants of each mode with its first one; `None` where no mode has two.
    pub fn of(modes: Vec<(String, Vec<Variant>)>) -> Option<Modes> {
        let compared = |(name, variants)| Some((name, Runs::of(variants)?));
        let all: Vec<(String, Runs)> = modes.into_iter().filter_map(compared).collect();
        all.iter().any(|(_, runs)| runs.rows().nth(1).is_some()).then_some(Modes { all })
    }

    /// Each variant and its effect: mode by mode the base, then the best first.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&Variant, Effect)> {
        self.all.iter().flat_map(|(_, runs)| runs.rows())
    }

    /// As [`Runs::worse`], of every mode.
    pub fn worse(&self, part: f64, bytes: u64) -> Vec<String> {
        let of = |(mode, runs): &(String, Runs)| -> Vec<String> {
            runs.worse(part, bytes).into_iter().map(|name| named(mode, name)).collect()
        };
        self.all.iter().flat_map(of).collect()
    }

    /// The first line: of each mode the best variant, or that none differs.
    pub fn verdict(&self) -> String {
        let of = |(mode, runs): &(String, Runs)| match mode.is_empty() {
            true => runs.verdict(),
            false => format!("{mode}: {}", runs.verdict()),
        };
        self.all.iter().map(of).collect::<Vec<_>>().join("; ")
    }

    /// The table's cells, its head first.
    pub(super) fn cells(&self) -> Vec<[String; 6]> {
        let head = ["variant", "runs", "steps", "peak", "grows", "effect"].map(str::to_owned);
        let of = |(mode, runs): &(String, Runs)| -> Vec<[String; 6]> {
            let whole = |[name, rest @ ..]: [String; 6]| {
                let [runs, steps, peak, grows, effect] = rest;
                [named(mode, &name), runs, steps, peak, grows, effect]
            };
            runs.cells().map(whole).collect()
        };
        std::iter::once(head).chain(self.all.iter().flat_map(of)).collect()
    }

    /// For people.
    ///
    /// # Errors
    /// What the sink says.
    pub fn text(&self, out: &mut impl Write, style: Style) -> io::Result<()> {
        style.print(out, &[format!("strandline: {}", self.verdict())])?;
        let [l, r] = [Align::Left, Align::Right];
        let mut table = Table::new([l, r, r, r, r, l]);
        self.cells().into_iter().for_each(|row| table.row(row));
        style.print(out, &table.lines(2))
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let with_names = self.all.iter().filter(|(mode, _)| !mode.is_empty());
        let mode = |(mode, runs): &(String, Runs)| json!({ "name": mode, "base": runs.base().name, "verdict": runs.verdict() });
        json!({
            "schema": 1,
            "tool": format!("strandline {}", crate::VERSION),
            "verdict": self.verdict(),
            "base": self.all.first().map(|(_, runs)| &runs.base().name),
            "modes": with_names.map(mode).collect::<Vec<_>>(),
            "variants": self.all.iter().flat_map(|(mode, runs)| runs.values(mode)).collect::<Vec<_>>(),
        })
    }
}

/// A variant by its mode and its name.
fn named(mode: &str, name: &str) -> String {
    if mode.is_empty() { name.to_owned() } else { format!("{mode}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::super::runs::Run;
    use super::*;

    fn variant(name: &str, peak: u64) -> Variant {
        Variant { name: name.into(), runs: vec![Run { steps: 40, peak: peak << 30, ..Run::default() }] }
    }

    #[test]
    fn each_mode_is_compared_with_its_own_base() {
        let full = vec![variant("base", 40), variant("offload", 30), variant("cache", 44)];
        let lora = vec![variant("base", 20), variant("offload", 20)];
        let all =
            Modes::of(vec![("full".into(), full), ("lora".into(), lora)]).expect("something to compare");
        assert_eq!(
            all.verdict(),
            "full: offload is best: saved 10.0 GiB (25 %); lora: no run needs measurably less memory than base"
        );
        assert_eq!(all.worse(0.02, 0), ["full/cache"]);
        let names: Vec<String> = all.cells().into_iter().map(|[name, ..]| name).collect();
        assert_eq!(
            names,
            ["variant", "full/base", "full/offload", "full/cache", "lora/base", "lora/offload"]
        );
        let json = all.json();
        assert_eq!(json["modes"][1]["base"], "base");
        assert_eq!(
            (&json["variants"][4]["mode"], &json["variants"][4]["saved_bytes"]),
            (&"lora".into(), &0.into())
        );
        // One that has no other to be compared with is shown, but alone it is nothing to compare.
        let lonely = || ("lora".to_owned(), vec![variant("base", 20)]);
        assert!(Modes::of(vec![lonely(), lonely()]).is_none());
    }
}
