//! Progress bars, on stderr and only where that is a terminal: what is piped or logged stays clean.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often a bar is drawn anew while nothing happens.
const TICK: Duration = Duration::from_millis(200);

/// A bar towards a known number of `what`.
pub(super) fn towards(total: u64, what: &'static str) -> ProgressBar {
    shown(ProgressBar::new(total), "{bar:30} {human_pos} of {human_len} {msg} ({eta} left)", what)
}

/// A bar along the bytes of an input.
pub(super) fn along(bytes: u64, what: &'static str) -> ProgressBar {
    shown(ProgressBar::new(bytes), "{bar:30} {bytes} of {total_bytes}, {msg} ({eta} left)", what)
}

/// A number of `what`, whose end nobody knows.
pub(super) fn counting(what: &'static str) -> ProgressBar {
    shown(ProgressBar::new_spinner(), "{spinner} {human_pos} {msg} ({elapsed})", what)
}

fn shown(bar: ProgressBar, template: &str, what: &'static str) -> ProgressBar {
    // Wrong templates, which ours are not, would be replaced.
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}
