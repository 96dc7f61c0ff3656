//! Answers about several items: their length, the texts of failed items, and the failure of all.

use std::collections::HashMap;

use axum::response::Response;
use delayd_wire::{BatchItem, Failure};

use crate::api::wire::error::Error;

/// The most bytes of one item in the JSON of an answer. An item that succeeded has fewer.
pub(crate) const LONGEST_ITEM: usize = 512;
/// The most bytes of the text of a failed item, as JSON.
const LONGEST_TEXT: usize = LONGEST_ITEM - 64;
/// A longer text is said so often, and is cut to this length then.
const REPEATS: usize = 8;
const LONGEST_REPEAT: usize = 64;
/// The different texts that are counted.
const MOST_TEXTS: usize = 64;

/// The texts of the failed items of one answer. Without bounds, two bytes of a batch were answered
/// with 250.
#[derive(Debug, Default)]
pub(crate) struct ErrorTexts {
    said: HashMap<String, usize>,
}

impl ErrorTexts {
    /// The text of the next failed item, which may be cut.
    pub(crate) fn of(&mut self, error: &Error) -> String {
        let text = cut(error.message(), LONGEST_TEXT);
        if text.len() <= LONGEST_REPEAT {
            return text;
        }
        if self.said.len() >= MOST_TEXTS && !self.said.contains_key(&text) {
            return text;
        }
        let times = self.said.entry(text.clone()).or_default();
        *times += 1;
        if *times <= REPEATS { text } else { cut(text, LONGEST_REPEAT) }
    }
}

/// The text, or its beginning, so that its JSON has at most `longest` bytes.
fn cut(mut text: String, longest: usize) -> String {
    const ELLIPSIS: char = '…';
    let escaped = |char: char| match char {
        '"' | '\\' => 2,
        char if char.is_ascii_control() => 6,
        char => char.len_utf8(),
    };
    let (mut length, mut fits) = (0, 0);
    for (at, char) in text.char_indices() {
        if length + ELLIPSIS.len_utf8() <= longest {
            fits = at;
        }
        length += escaped(char);
        if length > longest {
            text.truncate(fits);
            text.push(ELLIPSIS);
            return text;
        }
    }
    text
}

/// The failure of a batch of which every item failed: it has the highest code among them. `None` if
/// an item succeeded. A caller that looks only at `dm_error` would otherwise believe that the items
/// were stored. `field` is the list of the items in the request.
pub(crate) fn failure_of_all<T>(field: &str, results: &[Result<T, Error>]) -> Option<Response> {
    let errors: Option<Vec<&Error>> = results.iter().map(|result| result.as_ref().err()).collect();
    let errors = errors?;
    let gravest = errors.iter().max_by_key(|error| (error.code(), error.was_stored()))?;
    let mut texts = ErrorTexts::default();
    let item =
        |error: &&Error| BatchItem::Failed { dm_error: error.code(), error_msg: texts.of(error) };
    let count = errors.len();
    let says = cut(gravest.message(), LONGEST_TEXT);
    let error_msg = format!("{field}: none of the {count} was stored; one of them says: {says}");
    Some(gravest.with_body(Failure {
        error_msg,
        failed: Some(count),
        results: Some(errors.iter().map(item).collect()),
        ..gravest.body()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_the_length_of_its_json() {
        let check = |text: &str, longest: usize, expected: &str| {
            let cut = cut(text.to_owned(), longest);
            assert_eq!(cut, expected, "{text:?} {longest}");
            assert!(serde_json::to_string(&cut).unwrap().len() <= longest + 2, "{text:?}");
        };
        check("", 9, "");
        check("123456789", 9, "123456789");
        check("1234567890", 9, "123456…");
        check("\"\"\"\"\"", 9, "\"\"\"…");
        check("äöüäöü", 9, "äöü…");
        check("\u{1}\u{1}", 9, "\u{1}…");
    }

    #[tokio::test]
    async fn a_batch_of_which_every_item_failed_has_a_bounded_answer() {
        const ITEMS: usize = 1_000;
        let text = "x".repeat(900);
        let results: Vec<Result<(), Error>> =
            (0..ITEMS).map(|_| Err(Error::Invalid(text.clone()))).collect();
        let answer = failure_of_all("tasks", &results).unwrap();
        let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        assert!(body.len() < ITEMS * 2 * LONGEST_REPEAT, "{} bytes", body.len());
    }

    /// 8 KB of bad tasks were once answered with 250 KB.
    #[test]
    fn the_texts_of_failed_items_are_bounded() {
        let length = |errors: Vec<Error>| {
            let mut texts = ErrorTexts::default();
            errors.iter().map(|error| texts.of(error).len()).sum::<usize>()
        };
        let text =
            |char: &str, number: usize| Error::Invalid(format!("{number}{}", char.repeat(900)));
        assert!(length((0..1000).map(|_| text("x", 0)).collect()) <= 1000 * LONGEST_REPEAT + 4_000);
        for char in ["x", "\"", "\u{1}", "é"] {
            let mut texts = ErrorTexts::default();
            for number in 0..1000 {
                let error_msg = texts.of(&text(char, number));
                let dm_error = Error::invalid("").code();
                let item = BatchItem::Failed { dm_error, error_msg };
                assert!(serde_json::to_string(&item).unwrap().len() < LONGEST_ITEM);
            }
        }
        // Short texts stay whole.
        let mut texts = ErrorTexts::default();
        let short = Error::invalid("topic: is missing");
        assert!((0..1000).all(|_| texts.of(&short) == "topic: is missing"));
    }
}
