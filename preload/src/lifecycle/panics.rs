//! What a panic of ours says.

use crate::platform::say::Blocked;
use crate::recorder;

/// Explains a panic of ours in one line: message, place, and the functions of ours that led there.
pub(crate) fn explain() {
    std::panic::set_hook(Box::new(|info| {
        let _signals = Blocked::all();
        let text = info.payload();
        let message = text
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| text.downcast_ref::<String>().map(String::as_str));
        let mut path = Vec::new();
        backtrace::trace(|frame| {
            backtrace::resolve_frame(frame, |symbol| {
                let name = symbol.name().map(|n| format!("{n:#}")).unwrap_or_default();
                if name.starts_with("strandline") && !name.contains("panics::explain") && path.len() < 4 {
                    path.push(name);
                }
            });
            path.len() < 4
        });
        let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
        recorder::fail(format_args!(
            "defect in strandline, please report it: {} at {place} ({}): recording stops here, the job goes on",
            message.unwrap_or("panic"),
            path.join(" < "),
        ));
    }));
}
