//! How wide and how colourful a report may be, and which signs the reader's locale has.

use std::io::IsTerminal;
use std::sync::OnceLock;
use strandline::report::Style;

/// On a terminal wider lines are hard to read.
const WIDEST: usize = 120;
/// As many columns as may be asked for (COLUMNS).
const MOST: usize = 200;
/// Narrower ones are not worth wrapping for.
const NARROWEST: usize = 60;

/// For a report on stderr.
pub(crate) fn style_of_stderr() -> Style {
    style(libc::STDERR_FILENO, std::io::stderr().is_terminal())
}

/// For a report on stdout.
pub(crate) fn style_of_stdout() -> Style {
    style(libc::STDOUT_FILENO, std::io::stdout().is_terminal())
}

fn style(descriptor: libc::c_int, is_terminal: bool) -> Style {
    let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
    let asked = std::env::var("COLUMNS").ok().and_then(|c| c.trim().parse::<usize>().ok()).filter(|c| *c > 0);
    let width = match asked {
        Some(columns) => columns.clamp(NARROWEST, MOST),
        None if is_terminal => {
            columns(descriptor).map_or(Style::default().width, |c| c.clamp(NARROWEST, WIDEST))
        }
        None => Style::default().width,
    };
    Style { colour: is_terminal && !set("NO_COLOR") && !dumb, width, ascii: is_ascii() }
}

/// The locale says that it has nothing but ASCII, or signs that are not ours. One that says nothing, as in a container, has UTF-8.
pub(crate) fn is_ascii() -> bool {
    static ASCII: OnceLock<bool> = OnceLock::new();
    *ASCII.get_or_init(|| {
        // The first that is set counts.
        let set = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(|n| std::env::var_os(n).filter(|v| !v.is_empty()));
        set.is_some_and(|locale| !is_utf8(&locale.to_string_lossy()))
    })
}

fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

fn columns(descriptor: libc::c_int) -> Option<usize> {
    // SAFETY: TIOCGWINSZ writes a winsize, of which all-zero is a valid one.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(descriptor, libc::TIOCGWINSZ, &mut size) == 0).then_some(size)
    };
    size.map(|s| usize::from(s.ws_col)).filter(|c| *c > 0)
}
