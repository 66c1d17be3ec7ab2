//! What is done on an alert, as it is written on the command line.

use std::str::FromStr;
use std::time::Duration;
use strandline::format::secrets::masked;

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The verdict is appended to `alerts.jsonl` beside the recordings.
    Log,
    /// A memory_viz snapshot of the process, beside its recording.
    Snapshot,
    /// A shell command with the verdict on its standard input, one line.
    Exec(String),
    /// The verdict is posted to this address.
    Webhook(String),
    /// This signal is sent to the processes that leak.
    Signal(i32),
    /// The job is ended: SIGTERM, and SIGKILL after this time.
    Abort(Duration),
}

/// Between SIGTERM and SIGKILL, where nothing else is said: what SLURM and Kubernetes give.
const GRACE: Duration = Duration::from_secs(30);
const WORDS: [&str; 6] = ["log", "snapshot", "abort", "exec:", "webhook:", "signal:"];

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Action, String> {
        let bad = |why: &str| format!("\"{text}\": {why}");
        let (word, rest) = text.split_once(':').map_or((text, None), |(w, r)| (w, Some(r.trim())));
        let value = |what: &str| rest.filter(|r| !r.is_empty()).ok_or_else(|| bad(what));
        match (word, rest) {
            ("log", None) => Ok(Action::Log),
            ("snapshot", None) => Ok(Action::Snapshot),
            ("abort", None) => Ok(Action::Abort(GRACE)),
            ("abort", Some(seconds)) => match seconds.parse::<u32>() {
                Ok(s) => Ok(Action::Abort(Duration::from_secs(s.into()))),
                Err(_) => Err(bad("the grace period must be a number of seconds")),
            },
            ("exec", _) => {
                Ok(Action::Exec(value("write a command after it, as in exec:'./tell.sh'")?.to_string()))
            }
            ("webhook", _) => {
                let url = value("write an address after it, as in webhook:https://host/path")?;
                match url.starts_with("http://") || url.starts_with("https://") {
                    true => Ok(Action::Webhook(url.to_string())),
                    false => Err(bad("the address must begin with http:// or https://")),
                }
            }
            ("signal", _) => {
                let name = value("write a signal after it, as in signal:USR1")?;
                signal(name)
                    .map(Action::Signal)
                    .ok_or_else(|| bad("this signal is unknown; write for example signal:USR1"))
            }
            _ => Err(format!(
                "\"{text}\" is not an action; an action is log, snapshot, exec:CMD, webhook:URL, signal:NAME or abort"
            )),
        }
    }
}

/// Signals by the names that people send them by.
fn signal(name: &str) -> Option<i32> {
    let name = name.to_ascii_uppercase();
    Some(match name.strip_prefix("SIG").unwrap_or(&name) {
        "HUP" => libc::SIGHUP,
        "INT" => libc::SIGINT,
        "QUIT" => libc::SIGQUIT,
        "USR1" => libc::SIGUSR1,
        "USR2" => libc::SIGUSR2,
        "TERM" => libc::SIGTERM,
        "CONT" => libc::SIGCONT,
        "WINCH" => libc::SIGWINCH,
        number => number.parse().ok().filter(|n| (1..=64).contains(n))?,
    })
}

impl Action {
    /// Several in one variable: `webhook:https://…,exec:notify a,b,abort`. A comma separates where an action follows it.
    ///
    /// # Errors
    /// One of them cannot be understood.
    pub(crate) fn parse_all(text: &str) -> Result<Vec<Action>, String> {
        let mut pieces: Vec<String> = Vec::new();
        for piece in text.split(',') {
            let begins = WORDS.iter().any(|w| piece.trim_start().starts_with(w));
            match pieces.last_mut() {
                Some(last) if !begins => *last = format!("{last},{piece}"),
                _ => pieces.push(piece.to_string()),
            }
        }
        pieces.iter().map(|p| p.trim().parse()).collect()
    }

    /// As it is named in our lines: without an address, which may be a secret, and without what a command has of them.
    pub(crate) fn name(&self) -> String {
        match self {
            Action::Log => "log".into(),
            Action::Snapshot => "snapshot".into(),
            Action::Exec(command) => format!("exec:{}", masked([command.clone()]).concat()),
            Action::Webhook(url) => {
                let rest = url.split_once("://").map_or("", |(_, rest)| rest);
                let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
                format!("webhook to {}", authority.rsplit('@').next().unwrap_or_default())
            }
            Action::Signal(n) => format!("signal:{n}"),
            Action::Abort(_) => "abort".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read_one_by_one_and_from_a_variable() {
        let all = Action::parse_all("webhook:https://h/x?a,b, exec:notify a,b ,log,signal:SIGUSR1,abort:5")
            .unwrap();
        let (url, line) = ("https://h/x?a,b".to_string(), "notify a,b".to_string());
        let abort = Action::Abort(Duration::from_secs(5));
        assert_eq!(
            all,
            [Action::Webhook(url), Action::Exec(line), Action::Log, Action::Signal(libc::SIGUSR1), abort]
        );
        for bad in
            ["mail:x", "exec:", "webhook:example.com", "signal:NOPE", "abort:soon", "log,", "signal:65"]
        {
            assert!(Action::parse_all(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_with_a_secret_in_it_is_not_printed() {
        let action: Action = "webhook:https://hooks.example.com/services/T0/SECRET".parse().unwrap();
        assert_eq!(action.name(), "webhook to hooks.example.com");
        assert_eq!(Action::Webhook("http://me:pass@h:80?x".into()).name(), "webhook to h:80");
        let notify = "curl -H 'Authorization: Bearer abc' https://me:pass@h/x";
        assert_eq!(Action::Exec(notify.into()).name(), "exec:curl -H 'Authorization: ***' https://***@h/x");
    }
}
