//! What a recording is, and how it stands.

use crate::event::{AtWork, Dropped, Waited, make_json_printable};
use crate::format::header::Header;
use crate::format::region::Identity;
use crate::format::secrets;
use serde_json::{Map, Value};

/// What became of the tail.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum TailState {
    /// Not looked at: the recording is complete, or names none.
    #[default]
    None,
    /// It is not there, or not this recording's: why.
    Absent(String),
    /// So many records were only there.
    Read(u64),
}

/// Facts about a recording, as far as it has been read.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Whose it is.
    pub who: Identity,
    /// The user that the file belongs to, as the open file says; `None` where it was read from no file.
    pub owner: Option<u32>,
    /// Nanoseconds since 1970 when it began.
    pub unix_ns: u64,
    /// All facts, later ones over earlier ones (docs/recording.md), made printable ([`crate::event::printable`]).
    pub facts: Map<String, Value>,
    /// The writer has written its last page: nothing is missing at the end.
    pub complete: bool,
    /// Everything has been read.
    pub finished: bool,
    /// Events handed out.
    pub events: u64,
    /// Records taken; a record is an event, but for merged frees, pools and threads.
    pub records: u64,
    /// Records that the job counted as lost.
    pub lost: u64,
    /// Definitions that the job counted as lost: their stacks are unknown.
    pub lost_definitions: u64,
    /// Ranges that the bound on the size has dropped.
    pub dropped: Vec<Dropped>,
    /// Times the state was restored from a checkpoint, after a dropped range or damage.
    pub restored: u32,
    /// Records of kinds that this version does not know.
    pub unknown_records: u64,
    /// Records whose order the sequence numbers corrected.
    pub reordered: u64,
    /// Sweep pages.
    pub sweeps: u64,
    /// What became of the tail.
    pub tail: TailState,
    /// The writer gave up (a full disk, say) while the job went on. Known from the tail alone.
    pub stopped: bool,
    /// How the process ended, where whoever kept the tail saw it (`strandline run` does, of every process of its job).
    pub died: Option<Waited>,
    /// What of strandline threads were in when the tail was last read: of a process that has ended, where it did. Known from the tail
    /// alone; empty where the process ended by itself.
    pub at_work: Vec<AtWork>,
}

impl Summary {
    pub(super) fn new(h: &Header) -> Summary {
        let mut facts = h.provenance.clone();
        make_json_printable(&mut facts);
        // The job does so itself; a recording of before has them still.
        if let Some(Value::Array(words)) = facts.get_mut("command") {
            let all = words.iter().filter_map(|w| w.as_str().map(str::to_owned));
            *words = secrets::masked(all).into_iter().map(Value::String).collect();
        }
        let Value::Object(facts) = facts else {
            return Summary { who: h.who, unix_ns: h.unix_ns, ..Summary::default() };
        };
        Summary { who: h.who, unix_ns: h.unix_ns, facts, ..Summary::default() }
    }

    /// Merges facts over the known ones. `false`: nothing was new.
    pub(super) fn merge_facts(&mut self, facts: &Value) -> bool {
        let mut news = false;
        for (k, v) in facts.as_object().into_iter().flatten() {
            if self.facts.get(k) != Some(v) {
                self.facts.insert(k.clone(), v.clone());
                news = true;
            }
        }
        news
    }

    /// How the process ended, where the recording says so (`ended` of its facts).
    pub fn ended(&self) -> Option<&str> {
        self.facts.get("ended").and_then(Value::as_str)
    }
}
