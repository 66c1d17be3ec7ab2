//! The checkout of git that a job runs in: where the page's links to a repository on the web lead.

use std::path::Path;
use std::process::{Command, Stdio};
use strandline::report::SourceLinks;

/// A commit, its repository on the web, and where its files lie on the machine that has recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkout {
    /// In full, in hexadecimal.
    commit: String,
    /// `https://github.com/owner/name`: nobody's name or token is in it.
    web: String,
    /// Its folder, absolute.
    root: String,
}

impl Checkout {
    /// Of the current folder, as git says; `None` without git, a commit, or a remote named `origin` on a host.
    pub(crate) fn of_here() -> Option<Checkout> {
        let said = git(&["rev-parse", "--show-toplevel", "HEAD"])?;
        let (root, commit) = said.split_once('\n')?;
        let web = web(git(&["config", "--get", "remote.origin.url"])?.as_str())?;
        Checkout::parse(&format!("{commit} {web} {root}"))
    }

    /// As a recording has it: `COMMIT URL FOLDER`. A recording may be anybody's: what is no such thing is none.
    pub(crate) fn parse(text: &str) -> Option<Checkout> {
        let [commit, url, root] = text.splitn(3, ' ').collect::<Vec<_>>()[..] else { return None };
        let is_commit = (40..=64).contains(&commit.len()) && commit.bytes().all(|b| b.is_ascii_hexdigit());
        let is_whole = web(url).is_some_and(|w| w == url) && Path::new(root).is_absolute();
        let is_one_line = !root.chars().any(char::is_control);
        (is_commit && is_whole && is_one_line).then(|| Checkout {
            commit: commit.to_owned(),
            web: url.to_owned(),
            root: root.trim_end_matches('/').to_owned(),
        })
    }

    /// As [`Checkout::parse`] reads it.
    pub(crate) fn to_text(&self) -> String {
        format!("{} {} {}", self.commit, self.web, self.root)
    }

    /// Links to its files at that commit, as GitHub has them.
    pub(crate) fn links(&self) -> SourceLinks {
        let before = format!("{}/blob/{}", self.web, self.commit);
        SourceLinks { before, root: self.root.clone(), line: "#L" }
    }
}

/// What git prints, without the newline at its end; `None` where it fails.
fn git(words: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    // Libraries that are preloaded are the job's.
    git.args(words).env_remove(super::LD_PRELOAD).stdin(Stdio::null()).stderr(Stdio::null());
    let output = git.output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end_matches('\n').to_owned())
}

/// Where a remote is on the web: `git@HOST:PATH`, `ssh://…` and `https://…` without the user and what git adds.
fn web(remote: &str) -> Option<String> {
    let (host, path) = match remote.split_once("://") {
        Some(("https" | "http" | "ssh" | "git", rest)) => rest.split_once('/')?,
        Some(_) => return None,
        None => remote.split_once(':').filter(|(host, _)| !host.contains('/'))?,
    };
    // A user, a token, a port.
    let host = host.rsplit('@').next()?.split(':').next()?;
    let path = path.trim_matches('/').trim_end_matches(".git");
    let is_plain = |text: &str, more: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    let is_web = is_plain(host, "-.") && host.contains('.') && is_plain(path, "-._/~");
    is_web.then(|| format!("https://{host}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remotes_are_addresses_on_the_web_without_anybodys_name() {
        for remote in [
            "https://github.com/owner/name.git",
            "https://github.com/owner/name/",
            "https://user:token@github.com/owner/name.git",
            "git@github.com:owner/name.git",
            "ssh://git@github.com:22/owner/name.git",
        ] {
            assert_eq!(web(remote).as_deref(), Some("https://github.com/owner/name"), "{remote}");
        }
        for remote in [
            "/srv/git/name.git",
            "../name",
            "file:///srv/name",
            "https://github.com/",
            "C:/name",
            "a b@h.c:d e",
        ] {
            assert_eq!(web(remote), None, "{remote}");
        }
    }

    #[test]
    fn a_recordings_word_is_taken_where_it_is_one() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let text = format!("{commit} https://github.com/owner/name /home/u/a job");
        let is = Checkout::parse(&text).unwrap();
        assert_eq!(is.to_text(), text);
        let links = is.links();
        assert_eq!(links.before, format!("https://github.com/owner/name/blob/{commit}"));
        assert_eq!((links.root.as_str(), links.line), ("/home/u/a job", "#L"));
        for wrong in [
            String::new(),
            format!("{commit} javascript:alert(1)// /home/u"),
            format!("{commit} https://u:t@github.com/owner/name /home/u"),
            format!("{commit} https://github.com/owner/\"name /home/u"),
            format!("{commit} https://github.com/owner/name home/u"),
            "HEAD https://github.com/owner/name /home/u".to_owned(),
        ] {
            assert_eq!(Checkout::parse(&wrong), None, "{wrong}");
        }
    }
}
