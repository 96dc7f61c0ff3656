//! Output to stdout. Unlike with `println!`, a reader that went away (`| head`) is an error, not a
//! panic.

use std::io::{self, Write};

/// Writes a line, and flushes.
pub(super) fn line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Whether a command failed only because the reader of its output went away.
pub(super) fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Returns `text` as one line for a terminal: control characters are escaped, and a text over
/// `most` characters is cut.
pub(super) fn plain(text: &str, most: usize) -> String {
    let mut plain = String::new();
    for c in text.chars().take(most) {
        if c.is_control() { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    if text.chars().nth(most).is_some() {
        plain.push('…');
    }
    plain
}

/// A number with its noun: `1 task`, `2 tasks`.
pub(super) fn many(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_cannot_play_with_the_terminal() {
        let check = |text: &str, expected: &str| assert_eq!(plain(text, 6), expected);
        check("订单", "订单");
        check("a\nb", "a\\nb");
        check("\u{1b}[2J", "\\u{1b}[2J");
        check("123456", "123456");
        check("1234567", "123456…");
    }
}
