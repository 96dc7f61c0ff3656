//! Patterns in which `*` stands for any number of characters: topics of a token, hosts that may be
//! called.

use std::fmt;
use std::str::FromStr;

/// A pattern such as `order.*`. All other characters are literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(String);

/// The error for an invalid pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 256 visible characters, of which * stands for any, such as \"order.*\"")]
pub struct InvalidGlob;

impl Glob {
    /// Whether the pattern matches all of `text`. The worst-case time is the product of both
    /// lengths.
    pub fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.0.as_bytes(), text.as_bytes());
        let (mut at, mut from) = (0, 0);
        // The position of the last `*`, and how far it extends. On a mismatch after it, it takes
        // one more character.
        let mut star: Option<(usize, usize)> = None;
        while from < text.len() {
            if at < pattern.len() && pattern[at] == b'*' {
                star = Some((at, from));
                at += 1;
            } else if at < pattern.len() && pattern[at] == text[from] {
                at += 1;
                from += 1;
            } else if let Some((place, reach)) = star {
                star = Some((place, reach + 1));
                at = place + 1;
                from = reach + 1;
            } else {
                return false;
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }

    /// Whether it matches everything.
    pub fn is_all(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'*')
    }
}

impl FromStr for Glob {
    type Err = InvalidGlob;

    fn from_str(text: &str) -> Result<Self, InvalidGlob> {
        let is_plain =
            (1..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_plain { Ok(Self(text.to_owned())) } else { Err(InvalidGlob) }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters_and_nothing_else_does() {
        let check = |pattern: &str, text: &str, fits: bool| {
            assert_eq!(pattern.parse::<Glob>().unwrap().matches(text), fits, "{pattern} {text}");
        };
        check("*", "", true);
        check("*", "anything", true);
        check("order.*", "order.cancel", true);
        check("order.*", "order.", true);
        check("order.*", "order", false);
        check("order.*", "xorder.cancel", false);
        check("order.*", "orderxcancel", false);
        check("*.example.com", "a.b.example.com", true);
        check("*.example.com", "example.com", false);
        check("*.example.com", "a.example.com.evil", false);
        check("a*b*c", "a-b-b-c", true);
        check("a*b*c", "a-c-b", false);
        check("order", "order", true);
        check("order", "Order", false);
        check("**", "x", true);
        // Exponential in a reader that goes back to every star.
        check(&"*a".repeat(100), &"a".repeat(5_000), true);
        check(&format!("{}b", "*a".repeat(100)), &"a".repeat(5_000), false);
    }

    #[test]
    fn a_pattern_is_visible_text() {
        let check =
            |text: &str, right: bool| assert_eq!(text.parse::<Glob>().is_ok(), right, "{text:?}");
        check("*", true);
        check("", false);
        check("a b", false);
        check("订单", false);
        check(&"a".repeat(257), false);
    }
}
