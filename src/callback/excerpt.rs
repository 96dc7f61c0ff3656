//! The beginning of a response, for the attempt's note.
//!
//! Few responses are noted. So the bytes are kept as they were read, and become text only for a
//! note.

use std::sync::OnceLock;

/// How much of a response a note shows, in bytes.
const MOST: usize = 2048;

/// Filled by a call. Empty if there was no response.
#[derive(Debug, Default)]
pub struct Excerpt(OnceLock<Vec<u8>>);

impl Excerpt {
    /// Keeps a response's body.
    pub(super) fn keep(&self, body: Vec<u8>) {
        // A call has one response.
        let _ = self.0.set(body);
    }

    /// The beginning of the kept body, as text.
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
