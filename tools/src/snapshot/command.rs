//! `strandline snapshot`: from the options to the recording that is meant, and a snapshot of it.

use super::find;
use super::options::Options;
use super::tell::make_and_tell;
use crate::error::Error;

/// Runs the command; the result is the exit status.
///
/// # Errors
/// The recording cannot be read, there is no such moment, or the snapshot cannot be written.
pub(crate) fn main(options: &Options) -> Result<u8, Error> {
    let recording = find::one(options.recording.as_deref(), options.rank)?;
    make_and_tell(&recording, options)?;
    Ok(0)
}
