//! What an object store, or the way to it, said no to: what, where, and what to do next.

use super::address::{Address, Service};
use crate::error::Error;
use strandline::event::printable;

/// What cannot be done, where something is sent.
pub(super) const WRITE: &str = "cannot write";
/// What tells of a key that is not right: codes of Amazon and Google, then of Azure, and its words.
const REFUSED: [&str; 7] = [
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "ExpiredToken",
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",
    "failed to authenticate",
];

/// The command's error for one of the library's.
pub(super) fn failed(what: &str, at: &Address, e: &object_store::Error) -> Error {
    let said = whole(e);
    let (why, hint) = reason(what, &said, e, at);
    Error::usage(format!("{what} {at}: {why}"), hint)
}

/// The error with all that it comes from, each once.
fn whole(e: &object_store::Error) -> String {
    let mut text = e.to_string();
    let mut next = std::error::Error::source(e);
    while let Some(e) = next {
        let more = e.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = e.source();
    }
    text
}

/// What it was, and what to do.
fn reason(what: &str, said: &str, e: &object_store::Error, at: &Address) -> (String, String) {
    let code = between(said, "<Code>", "</Code>");
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let sent = if what == WRITE { ": what was already sent is not sent again" } else { "" };
    let again = format!("then run the same command again{sent}");
    if has(&["NoSuchBucket", "ContainerNotFound", "bucket does not exist"]) {
        let hint = format!("create it, or check that the name{} right", region(at.service));
        let kind = if at.service == Service::Azure { "container" } else { "bucket" };
        return (format!("there is no {kind} {}", printable(&at.bucket)), hint);
    }
    if has(&["169.254.169.254", "metadata.google", "169.254.170", "Account must be specified"]) {
        return ("there are no credentials for the store".into(), keys(at.service).into());
    }
    if has(&REFUSED) || matches!(e, object_store::Error::Unauthenticated { .. }) {
        let code = code.map_or_else(String::new, |code| format!(" ({})", printable(code)));
        return (format!("the key was refused{code}"), keys(at.service).into());
    }
    if matches!(e, object_store::Error::PermissionDenied { .. }) || has(&["AccessDenied"]) {
        let hint = "the key needs the right to list, read, write and delete there";
        return ("access is denied".into(), hint.into());
    }
    match e {
        object_store::Error::NotFound { .. } => {
            return ("the object does not exist".into(), "check the name".into());
        }
        object_store::Error::Precondition { .. } => {
            return ("it was changed while it was read".into(), "run the same command again".into());
        }
        _ => {}
    }
    let server = ["HTTP error", "timeout", "status code: 5"];
    let why = last(said);
    if has(&["Connection refused", "host not found", "Connection failed"]) {
        return (format!("the server cannot be reached: {why}"), format!("check its address, {again}"));
    }
    if has(&server) {
        return (
            format!("the server gave an unexpected answer: {why}"),
            format!("check the server, {again}"),
        );
    }
    (why, format!("if the problem is temporary, {again}"))
}

/// What the server or the system said: the end of a long chain.
fn last(said: &str) -> String {
    let told = between(said, "<Message>", "</Message>").unwrap_or(said);
    let told = told.rsplit_once("HTTP error: ").map_or(told, |(_, last)| last);
    // Azure's next lines are the number of the request and the time.
    let words: String = told.lines().next().unwrap_or_default().chars().take(300).collect();
    printable(words.trim()).into_owned()
}

fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    text.split_once(begin)?.1.split_once(end).map(|(inner, _)| inner)
}

fn region(service: Service) -> &'static str {
    match service {
        Service::S3 => ", AWS_REGION and AWS_ENDPOINT_URL are",
        Service::Google | Service::Azure => " is",
    }
}

/// Where a key comes from.
fn keys(service: Service) -> &'static str {
    match service {
        Service::S3 => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: eval \"$(aws configure export-credentials --format env)\""
        }
        Service::Google => {
            "set GOOGLE_APPLICATION_CREDENTIALS to a key file, or: gcloud auth application-default login"
        }
        Service::Azure => "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    }
}
