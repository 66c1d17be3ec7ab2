//! What a place that reads all of what is kept needs of it, and when.

/// What it takes from the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum As {
    /// What a number has as well: `min(losses)`.
    Numbers,
    /// What may be had of tensors only: `torch.stack(losses)`, `losses[0].item()`.
    Tensors,
    /// A backward that goes through their graphs.
    Graphs,
}

/// A place that reads all of what is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) line: u32,
    /// Of another file: that.
    pub(super) file: Option<String>,
    /// `min(results)`.
    pub(super) text: String,
    /// What all such places need.
    pub(super) takes: As,
    pub(super) when: When,
    /// What is filled beside it, and read with it: the containers, and what each gets.
    pub(super) with: Vec<(String, String)>,
}

/// When that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum When {
    /// After the loop that fills it.
    After,
    /// Whenever another function is called.
    Elsewhere,
    /// In that loop, or as little is known: some of the entries may be enough.
    Meanwhile,
    /// Whenever it wants some of the entries: `random.sample(rows, 8)`.
    Sampled,
    /// Of the newest entries only, which are there in any case: `torch.stack(losses[-9:])`.
    Newest,
}

impl Read {
    /// `line 12, min(results),`: what it does follows.
    pub(super) fn place(&self) -> String {
        let of_file = self.file.as_ref().map_or_else(String::new, |f| format!(" of {f}"));
        format!("line {}{of_file}, {},", self.line, self.text)
    }
}
