//! The progress of a bench, drawn on stderr only if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often the bar is redrawn.
const TICK: Duration = Duration::from_millis(200);

const TOWARDS: &str = "{bar:30} {human_pos} of {human_len} {msg} ({eta} left)";
const COUNTING: &str = "{spinner} {human_pos} {msg} ({elapsed})";

/// Cheap to clone; clones share the progress.
#[derive(Clone, Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::no_length();
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    /// Begins the next step. The total is 0 if it is unknown.
    pub(crate) fn step(&self, what: &'static str, total: u64) {
        let template = if total > 0 { TOWARDS } else { COUNTING };
        let style = ProgressStyle::with_template(template).expect("the templates are valid");
        self.0.set_style(style);
        self.0.set_message(what);
        self.0.set_length(total);
        self.0.reset();
    }

    pub(crate) fn add(&self, done: u64) {
        self.0.inc(done);
    }

    pub(crate) fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Removes the bar from the terminal.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
