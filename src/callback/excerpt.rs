//! The beginning of an answer, for eyes.

use std::sync::OnceLock;

/// The most of an answer that is shown, in bytes.
const MOST: usize = 2048;

/// Filled by the call whose answer it is; empty where there was none.
#[derive(Debug, Default)]
pub struct Excerpt(OnceLock<String>);

impl Excerpt {
    /// Keeps the beginning of an answer's body.
    pub(super) fn keep(&self, body: &[u8]) {
        let text = String::from_utf8_lossy(&body[..body.len().min(MOST)]);
        // There is one answer to a call.
        let _ = self.0.set(text.into_owned());
    }

    /// What was kept.
    pub fn into_text(self) -> String {
        self.0.into_inner().unwrap_or_default()
    }
}
