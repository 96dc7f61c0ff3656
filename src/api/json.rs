//! From a request's bytes to its fields, and from what serde says to a sentence that a person can act on.
//!
//! Every request is a JSON object with known fields. `null` is absent, which is why all fields of a request are
//! `Option`s and [`required`] asks for those that must be there. Requests derive `deny_unknown_fields`, so that a
//! misspelt option never passes silently. serde_json's recursion limit stays on; what it does not see, because it is
//! kept as it stands, is measured by [`check_depth`].

use serde::Deserialize;
use serde_json::error::Category;

use super::error::Error;

/// The longest piece of the caller's own text that is repeated to it, in characters.
const MAX_QUOTE: usize = 64;
/// The deepest nesting of a content: what most JSON readers bear.
const MAX_DEPTH: usize = 128;
/// From which likeness on, 0 to 1, a misspelt field is taken for a known one.
const ALIKE: f64 = 0.8;

/// Reads a request.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(super) fn read<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Error> {
    // Derived readers would take an array for a struct, field by field.
    match text.trim_ascii_start().first() {
        Some(b'{') => {}
        Some(_) => return Err(Error::invalid("body: must be a JSON object")),
        None => return Err(Error::invalid("body: is empty, and must be a JSON object")),
    }
    // Looked through once for what is no text, and not string by string.
    if let Some(value) = std::str::from_utf8(text).ok().and_then(|text| serde_json::from_str(text).ok()) {
        return Ok(value);
    }
    // Once more, to say where: to keep track of that costs, and most requests are right.
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| Error::Invalid(sentence(&error.path().to_string(), error.inner())))?;
    reader.end().map_err(|error| Error::Invalid(sentence("", &error)))?;
    Ok(value)
}

/// The value of a field that must be there.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(super) fn required<T>(value: Option<T>, field: &str) -> Result<T, Error> {
    value.ok_or_else(|| Error::Invalid(format!("{field}: is missing")))
}

/// What serde found wrong with the value at `path`, as a sentence.
pub(super) fn sentence(path: &str, error: &serde_json::Error) -> String {
    let text = error.to_string();
    if error.classify() != Category::Data {
        return match text.starts_with("recursion limit") {
            true => format!("body: is nested deeper than {MAX_DEPTH} levels"),
            false => format!("body: is not valid JSON: {text}"),
        };
    }
    // The field is named; at which line and column it stands says nothing more.
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    // So serde_path_to_error writes the whole, and what it does not know.
    let at = if matches!(path, "" | "." | "?") { String::new() } else { format!("{path}: ") };
    if let Some((name, known)) = split(text, "unknown field `", "`, expected ") {
        return if path == name { unknown_field(name, known) } else { format!("{at}{}", unknown_field(name, known)) };
    }
    if let Some((name, known)) = split(text, "unknown variant `", "`, expected ") {
        let known: Vec<_> = backticked(known).map(|name| format!("{name:?}")).collect();
        return format!("{at}must be one of {}, not \"{}\"", known.join(", "), quoted(name));
    }
    if let Some((name, _)) = split(text, "duplicate field `", "`") {
        return format!("{name}: is given more than once");
    }
    if let Some((name, _)) = split(text, "missing field `", "`") {
        return format!("{at}{name} is missing");
    }
    for intro in ["invalid type: ", "invalid value: "] {
        if let Some((found, expected)) = split(text, intro, ", expected ") {
            return format!("{at}must be {expected}, not {}", quoted(&found.replace('`', "")));
        }
    }
    format!("{at}{text}")
}

/// Checks that JSON text, valid otherwise, is not nested so deeply that its readers would choke on it.
///
/// # Errors
/// [`Error::Invalid`], naming `field`.
pub(super) fn check_depth(text: &str, field: &str) -> Result<(), Error> {
    // Few contents open so much as that at all, and to count what they open is cheap.
    if memchr::memchr2_iter(b'{', b'[', text.as_bytes()).take(MAX_DEPTH + 1).count() <= MAX_DEPTH {
        return Ok(());
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(Error::Invalid(format!("{field}: is nested deeper than {MAX_DEPTH} levels")));
        }
    }
    Ok(())
}

/// The parts of `{intro}left{between}right`. The left part may be the caller's text and hold anything, so the last
/// `between` counts.
fn split<'a>(text: &'a str, intro: &str, between: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(intro)?.rsplit_once(between)
}

/// The names in a list such as "one of `a`, `b`".
fn backticked(list: &str) -> impl Iterator<Item = &str> {
    list.split('`').skip(1).step_by(2)
}

fn unknown_field(name: &str, known: &str) -> String {
    let likeness = |known: &str| strsim::jaro_winkler(name, known);
    let nearest = backticked(known).max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let hint = match nearest {
        Some(nearest) if likeness(nearest) >= ALIKE => format!("did you mean {nearest:?}?"),
        _ => format!("the fields are {}", backticked(known).collect::<Vec<_>>().join(", ")),
    };
    format!("unknown field \"{}\": {hint}", quoted(name))
}

/// The caller's own text, cut to a length fit for a sentence.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::span::Span;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Request<'a> {
        topic: Option<String>,
        delay: Option<Span>,
        #[serde(borrow)]
        content: Option<&'a RawValue>,
    }

    #[test]
    fn what_is_wrong_is_said_by_name() {
        let check = |text: &str, says: &str| {
            assert_eq!(read::<Request<'_>>(text.as_bytes()).unwrap_err().to_string(), says, "{text}");
        };
        check(r#"{"topc":"t"}"#, r#"unknown field "topc": did you mean "topic"?"#);
        check(r#"{"wait":1}"#, r#"unknown field "wait": the fields are topic, delay, content"#);
        check(r#"{"a`, expected b":1}"#, r#"unknown field "a`, expected b": the fields are topic, delay, content"#);
        check(r#"{"topic":5}"#, "topic: must be a string, not integer 5");
        check(r#"{"topic":"a","topic":"b"}"#, "topic: is given more than once");
        check(
            r#"{"delay":"soon"}"#,
            r#"delay: must be a number of seconds or a string with a unit, such as "1500ms", "10s", "5m", "2h" or "7d""#,
        );
        check("", "body: is empty, and must be a JSON object");
        check(r#"["t"]"#, "body: must be a JSON object");
        check("topic=t", "body: must be a JSON object");
        check(r#"{"topic":"a",}"#, "body: is not valid JSON: trailing comma at line 1 column 14");
        check(r#"{"topic":"a"} x"#, "body: is not valid JSON: trailing characters at line 1 column 15");
        check(r#"{"topic":"a""#, "body: is not valid JSON: EOF while parsing an object at line 1 column 12");
        let long = "x".repeat(10_000);
        let said = read::<Request<'_>>(format!("{{\"{long}\":1}}").as_bytes()).unwrap_err().to_string();
        assert!(said.len() < 200, "{said}");
    }

    #[test]
    fn null_is_absent() {
        let request: Request<'_> = read(br#" {"topic":null,"delay":null,"content":null} "#).unwrap();
        assert!(request.topic.is_none() && request.delay.is_none() && request.content.is_none());
    }

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        let check = |text: String, allowed: bool| assert_eq!(check_depth(&text, "content").is_ok(), allowed, "{text}");
        check("[".repeat(128), true);
        check("[".repeat(129), false);
        check("[{".repeat(65), false);
        check("[],".repeat(1000), true);
        check(format!("\"{}\"", "[".repeat(1000)), true);
        check(format!("\"\\\"{}\"", "[".repeat(1000)), true);
        check(format!("\"\\\\\"{}", "[".repeat(1000)), false);
    }
}
