//! Makes a snapshot, and says where it is and what to do with it.

use super::make::make;
use super::options::Options;
use crate::analyze::Suppressions;
use crate::error::Error;
use crate::files;
use crate::say::{self, shown};
use std::path::Path;
use strandline::report::plural;

/// Makes a snapshot, and says where it is and what to do with it. Its path goes to stdout.
///
/// # Errors
/// As [`make`].
pub(crate) fn make_and_tell(recording: &Path, options: &Options) -> Result<(), Error> {
    let made = make(recording, options, &Suppressions::read(&[])?, files::create)?;
    let what = format!("snapshot of {}, {}", made.words, plural(made.written.entries, "event"));
    say::line(match made.written.blocks {
        0 if options.is_filtered() => {
            format!("{what}, and no block: none that is in use at that moment matches the filter")
        }
        _ => {
            let more = if made.lacks_earlier {
                " (memory whose allocation was not recorded is not in it)"
            } else {
                ""
            };
            format!("{what}{more}: open it at pytorch.org/memory_viz")
        }
    });
    say::out(&format!("{}\n", shown(&made.path)));
    Ok(())
}
