//! The beginning of an answer, for eyes.
//!
//! Every call brings an answer, and few are noted: the bytes are kept as they were read, and made
//! into a text only for a note.

use std::sync::OnceLock;

/// The most of an answer that is shown, in bytes.
const MOST: usize = 2048;

/// Filled by the call whose answer it is; empty where there was none.
#[derive(Debug, Default)]
pub struct Excerpt(OnceLock<Vec<u8>>);

impl Excerpt {
    /// Keeps an answer's body.
    pub(super) fn keep(&self, body: Vec<u8>) {
        // There is one answer to a call.
        let _ = self.0.set(body);
    }

    /// The beginning of what was kept.
    pub fn into_text(self) -> String {
        let body = self.0.into_inner().unwrap_or_default();
        String::from_utf8_lossy(&body[..body.len().min(MOST)]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_shown_whatever_the_bytes_are() {
        let check = |body: Vec<u8>, expected: &str| {
            let excerpt = Excerpt::default();
            excerpt.keep(body);
            assert_eq!(excerpt.into_text(), expected);
        };
        check(b"ok".to_vec(), "ok");
        check(b"a\xffb".to_vec(), "a\u{fffd}b");
        check(vec![b'x'; 64 * 1024], &"x".repeat(MOST));
        assert_eq!(Excerpt::default().into_text(), "");
    }
}
