//! How wide and how colourful a report may be.

use std::io::IsTerminal;
use strandline::report::Style;

/// Wider lines are hard to read.
const WIDEST: usize = 120;
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
    if !is_terminal {
        return Style::default();
    }
    let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
    let width = columns(descriptor).unwrap_or(Style::default().width);
    Style { colour: !set("NO_COLOR") && !dumb, width: width.clamp(NARROWEST, WIDEST) }
}

fn columns(descriptor: libc::c_int) -> Option<usize> {
    // SAFETY: TIOCGWINSZ writes a winsize, of which all-zero is a valid one.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(descriptor, libc::TIOCGWINSZ, &mut size) == 0).then_some(size)
    };
    size.map(|s| usize::from(s.ws_col)).filter(|c| *c > 0)
}
