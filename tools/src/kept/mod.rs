//! The statement that keeps what leaks, found in the user's own source from what the holder probe has named: `hist.append(loss)` at
//! leak.py:11. Where two statements could be it, none is told: a wrong one is worse than none.

mod adds;
mod aliases;
mod evidence;
mod files;
mod find;
mod given;
mod gradients;
mod growing;
mod hooks;
mod instances;
mod keeper;
mod later;
mod library;
mod lists;
mod look;
mod names;
mod needs;
mod otherwise;
mod package;
mod passes;
mod reads;
mod remade;
mod remedy;
mod removes;
mod resets;
mod scope;
mod shared;
mod stored;
mod takes;
#[cfg(test)]
mod tests;
mod texts;
mod values;
mod ways;

pub(crate) use files::{begins_anew, kept_at, kept_in_scopes};
pub(crate) use passes::Parsed;
pub(crate) use texts::{Texts, is_of_this_machine};
