//! Progress bars, drawn on stderr only if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often a bar is redrawn.
const TICK: Duration = Duration::from_millis(200);

const TOWARDS: &str = "{bar:30} {human_pos} of {human_len} {msg} ({eta} left)";
const ALONG: &str = "{bar:30} {bytes} of {total_bytes}, {msg} ({eta} left)";
const COUNTING: &str = "{spinner} {human_pos} {msg} ({elapsed})";

/// A bar for a known number of `what`.
pub(super) fn towards(total: u64, what: &'static str) -> ProgressBar {
    shown(ProgressBar::new(total), TOWARDS, what)
}

/// A bar for the bytes of an input.
pub(super) fn along(bytes: u64, what: &'static str) -> ProgressBar {
    shown(ProgressBar::new(bytes), ALONG, what)
}

/// A counter of `what` without a known end.
pub(super) fn counting(what: &'static str) -> ProgressBar {
    shown(ProgressBar::new_spinner(), COUNTING, what)
}

fn shown(bar: ProgressBar, template: &str, what: &'static str) -> ProgressBar {
    bar.set_style(ProgressStyle::with_template(template).expect("a test reads every template"));
    bar.set_message(what);
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_can_be_read() {
        for bar in [towards(1, "tasks"), along(1, "of the export"), counting("tasks")] {
            bar.finish_and_clear();
        }
    }
}
