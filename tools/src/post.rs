//! JSON posted to somebody, once.

use serde_json::Value;
use std::time::Duration;

/// How long one attempt may take, name look-up included.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why something that was to be told was not.
pub(crate) struct Failed {
    /// In words.
    pub(crate) why: String,
    /// Trying again may help.
    pub(crate) again: bool,
}

impl Failed {
    /// A failure that a later attempt may not have.
    pub(crate) fn retryable(why: impl Into<String>) -> Failed {
        Failed { why: why.into(), again: true }
    }

    /// A failure that every attempt would have.
    pub(crate) fn permanent(why: impl Into<String>) -> Failed {
        Failed { why: why.into(), again: false }
    }
}

/// What a library says went wrong, without the names of its own that say nothing to a person.
fn plain(said: &str) -> &str {
    let said = said.strip_prefix("io: ").unwrap_or(said);
    said.split_once(" (os error").map_or(said, |(said, _)| said)
}

/// Posts it once. What is said of a failure does not name the address: it may be a secret.
///
/// # Errors
/// Nobody took it.
pub(crate) fn post(url: &str, headers: &[(String, String)], body: &Value) -> Result<(), Failed> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .http_status_as_error(false)
        // To follow is to send the same again without its body, which is no delivery; and to an address that nobody has given.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("strandline/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    let request = headers.iter().fold(agent.post(url), |request, (name, value)| request.header(name, value));
    let sent = request.content_type("application/json").send(&body.to_string());
    let status = sent
        .map_err(|e| Failed::retryable(plain(&e.to_string()).replace(url, "the address")))?
        .status()
        .as_u16();
    match status {
        200..300 => Ok(()),
        300..400 => Err(Failed::permanent(format!(
            "answered with a redirect (status {status}), which is not followed: give the address that it leads to"
        ))),
        408 | 429 | 500.. => Err(Failed::retryable(format!("answered with status {status}"))),
        _ => Err(Failed::permanent(format!("answered with status {status}"))),
    }
}
