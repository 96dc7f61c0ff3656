//! Reads requests from JSON, and turns serde's errors into sentences for the caller.
//!
//! Every request is a JSON object with known fields; unknown ones are refused
//! (`deny_unknown_fields`). `null` is absent. serde_json limits the nesting of what it parses;
//! [`check_depth`] limits text that is kept unparsed.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::api::wire::cost::spend;
use crate::api::wire::error::Error;
use crate::api::wire::long_body::{LONG, size};

/// The longest quotation of the caller's text, in characters.
const MAX_QUOTE: usize = 64;
/// The longest field name, in bytes, that is compared with the known ones. The comparison takes the
/// product of both lengths.
const MAX_NAME: usize = 64;
/// The deepest nesting of a content. Most JSON readers accept as much.
const MAX_DEPTH: usize = 128;
/// The similarity, 0 to 1, from which a known field is suggested.
const ALIKE: f64 = 0.8;

/// Reads a request.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(crate) fn read<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Error> {
    read_at("", text)
}

/// Reads an object that is the value of `field`. Its text may be at most `most` bytes long, which
/// is checked first.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(crate) fn read_field<'a, T: Deserialize<'a>>(
    raw: &'a RawValue,
    field: &str,
    most: usize,
) -> Result<T, Error> {
    check_length(raw, field, most)?;
    read_at(field, raw.get().as_bytes())
}

/// Checks that the JSON text of a value has at most `most` bytes.
///
/// # Errors
/// [`Error::Invalid`], naming `field`.
pub(crate) fn check_length(raw: &RawValue, field: &str, most: usize) -> Result<(), Error> {
    if raw.get().len() <= most {
        return Ok(());
    }
    Err(Error::Invalid(format!("{field}: must be at most {} of JSON", size(most))))
}

/// Reads the object at the path `at`. The empty path is the whole body.
fn read_at<'a, T: Deserialize<'a>>(at: &str, text: &'a [u8]) -> Result<T, Error> {
    let whole = if at.is_empty() { "body" } else { at };
    // A derived reader would accept an array as well, field by field.
    match text.trim_ascii_start().first() {
        Some(b'{') => {}
        Some(first) => {
            return Err(Error::Invalid(format!("{whole}: must be a JSON object{}", not_a(*first))));
        }
        None => {
            return Err(Error::Invalid(format!("{whole}: is empty, and must be a JSON object")));
        }
    }
    if text.len() > LONG {
        check_strings(text)?;
    }
    spend(text.len());
    // One UTF-8 check of the whole text is faster than one per string.
    if let Some(value) =
        std::str::from_utf8(text).ok().and_then(|text| serde_json::from_str(text).ok())
    {
        return Ok(value);
    }
    // Tracking the path costs time, so only a text that has an error is read with it.
    spend(text.len());
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = quoted(&error.path().to_string());
        let path = match (at, path.as_str()) {
            ("", path) => path.to_owned(),
            (at, "." | "?") => at.to_owned(),
            (at, path) => format!("{at}.{path}"),
        };
        Error::Invalid(sentence(&path, error.inner()))
    })?;
    reader.end().map_err(|error| Error::Invalid(sentence("", &error)))?;
    Ok(value)
}

/// Checks that an error about a long text cannot repeat much of it, because serde's errors repeat
/// whole names and strings. No field name may be longer than the known ones, and no string except
/// the content may be long. What is no JSON passes, because its errors repeat nothing.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
fn check_strings(text: &[u8]) -> Result<(), Error> {
    spend(text.len());
    match serde_json::from_slice(text) {
        Err(error) if error.is_data() => Err(Error::Invalid(sentence("", &error))),
        Ok(ShortStrings) | Err(_) => Ok(()),
    }
}

/// Reads an object without long names and strings, and keeps nothing of it.
struct ShortStrings;

impl<'de> Deserialize<'de> for ShortStrings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for ShortStrings {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while let Some((name, value)) = fields.next_entry::<&RawValue, &RawValue>()? {
            let (name, value) = (name.get().trim_matches('"'), value.get());
            if name.len() > MAX_NAME {
                return Err(A::Error::custom(format_args!(
                    "unknown field \"{}\": no field has such a long name",
                    quoted(name)
                )));
            }
            if value.starts_with('"') && value.len() > LONG && name != "content" {
                let most = size(LONG);
                return Err(A::Error::custom(format_args!("{name}: must be at most {most} long")));
            }
        }
        Ok(self)
    }
}

/// The value of a required field.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(crate) fn required<T>(value: Option<T>, field: &str) -> Result<T, Error> {
    value.ok_or_else(|| Error::Invalid(format!("{field}: is missing")))
}

/// The sentence for serde's error about the value at `path`.
pub(crate) fn sentence(path: &str, error: &serde_json::Error) -> String {
    let text = error.to_string();
    if error.classify() != Category::Data {
        return match text.starts_with("recursion limit") {
            true => format!("body: is nested deeper than {MAX_DEPTH} levels"),
            false => format!("body: is not valid JSON: {text}"),
        };
    }
    // The path replaces the line and the column.
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    // serde_path_to_error writes the root as `.`, and an unknown path as `?`.
    let at = if matches!(path, "" | "." | "?") { String::new() } else { format!("{path}: ") };
    if let Some((name, known)) = split(text, "unknown field `", "`, expected ") {
        // The path includes the unknown field only at the top level.
        let above =
            path.strip_suffix(name).filter(|above| above.is_empty() || above.ends_with('.'));
        let parent = above.unwrap_or(path).trim_end_matches('.');
        let at =
            if parent.is_empty() || parent == "?" { String::new() } else { format!("{parent}: ") };
        return format!("{at}{}", unknown_field(name, known));
    }
    if let Some((name, known)) = split(text, "unknown variant `", "`, expected ") {
        let known: Vec<_> = backticked(known).map(|name| format!("{name:?}")).collect();
        return format!("{at}must be one of {}, not \"{}\"", known.join(", "), quoted(name));
    }
    if let Some((name, _)) = split(text, "duplicate field `", "`") {
        let above = path.strip_suffix(name).unwrap_or(path).trim_end_matches(['.', '?']);
        let dot = if above.is_empty() { "" } else { "." };
        return format!("{above}{dot}{name}: is given more than once");
    }
    if let Some((name, _)) = split(text, "missing field `", "`") {
        let above = at.trim_end_matches(": ");
        let dot = if above.is_empty() { "" } else { "." };
        return format!("{above}{dot}{name}: is missing");
    }
    for intro in ["invalid type: ", "invalid value: "] {
        if let Some((found, expected)) = split(text, intro, ", expected ") {
            if found == "null" {
                return format!("{at}is missing");
            }
            let expected = plain(expected).unwrap_or(expected);
            let found = match plain(found) {
                Some(found) => found.to_owned(),
                // A text in place of headers or a content may be secret.
                None if expected == "an object" => kind(found).to_owned(),
                None => quoted(&found.replace('`', "")),
            };
            return format!("{at}must be {expected}, not {found}");
        }
    }
    format!("{at}{text}")
}

/// JSON's name for a kind of value that serde names differently.
fn plain(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "sequence" | "a sequence" => "a list",
        "map" | "a map" => "an object",
        "unit value" | "null" => "null",
        "f64" => "a number",
        "i64" => "a whole number",
        "u16" | "u32" | "u64" => "a whole number, 0 or more",
        _ => return None,
    })
}

/// The kind of a value that serde shows.
fn kind(shown: &str) -> &'static str {
    match shown.split(' ').next() {
        Some("string") => "a string",
        Some("boolean") => "true or false",
        _ => "a number",
    }
}

/// `, not a list` or the like, by the first byte of a text that is not an object. Empty if unclear.
fn not_a(first: u8) -> &'static str {
    match first {
        b'[' => ", not a list",
        b'"' => ", not a string",
        b'0'..=b'9' | b'-' => ", not a number",
        _ => "",
    }
}

/// Checks the nesting of JSON text. The result is unspecified for input that is not valid JSON.
///
/// # Errors
/// [`Error::Invalid`], naming `field`.
pub(crate) fn check_depth(text: &str, field: &str) -> Result<(), Error> {
    // Few contents have so many brackets at all, and counting them is cheap.
    if memchr::memchr2_iter(b'{', b'[', text.as_bytes()).take(MAX_DEPTH + 1).count() <= MAX_DEPTH {
        return Ok(());
    }
    spend(text.len());
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
            return Err(Error::Invalid(format!(
                "{field}: is nested deeper than {MAX_DEPTH} levels"
            )));
        }
    }
    Ok(())
}

/// The parts of `{intro}left{between}right`. The left part may be any text of the caller, so the
/// last `between` counts.
fn split<'a>(text: &'a str, intro: &str, between: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(intro)?.rsplit_once(between)
}

/// The names in a list such as "one of `a`, `b`".
fn backticked(list: &str) -> impl Iterator<Item = &str> {
    list.split('`').skip(1).step_by(2)
}

/// The known name that is meant by `name`, if one is similar.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &str| match name.len() {
        0..=MAX_NAME => {
            spend(name.len() * known.len());
            strsim::jaro_winkler(name, known)
        }
        _ => 0.0,
    };
    let nearest = known.map(|known| (likeness(known), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    nearest.filter(|(alike, _)| *alike >= ALIKE).map(|(_, known)| known)
}

fn unknown_field(name: &str, known: &str) -> String {
    let hint = match nearest(name, backticked(known)) {
        _ if matches!(name, "sn" | "url") && backticked(known).any(|known| known == "content") => {
            format!(r#"it belongs into content: "content":{{{name:?}:…}}"#)
        }
        Some(nearest) => format!("did you mean {nearest:?}?"),
        _ => format!("the fields are {}", backticked(known).collect::<Vec<_>>().join(", ")),
    };
    format!("unknown field \"{}\": {hint}", quoted(name))
}

/// The caller's text, cut to a length for a sentence.
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
    use crate::model::task::Mode;
    use delayd_wire::Span;

    /// serde repeats a wrong text in its error, in up to eight characters for three bytes.
    #[test]
    fn an_error_about_a_long_text_takes_no_memory() {
        const LENGTH: usize = 4 << 20;
        let long = "\u{e000}".repeat(LENGTH / 3);
        let check = |body: String, says: &str| {
            let taken = allocation_counter::measure(|| {
                let said = read::<delayd_wire::BatchRequest>(body.as_bytes()).unwrap_err();
                assert!(said.message().starts_with(says), "{}", said.message());
            });
            assert!(taken.bytes_max < LENGTH as u64 / 4, "{says}: {} bytes", taken.bytes_max);
        };
        check(format!(r#"{{"tasks":"{long}"}}"#), "tasks: must be at most 256.0 KiB long");
        check(format!(r#"{{"{long}":1}}"#), "unknown field \"");
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Request<'a> {
        topic: Option<String>,
        delay: Option<Span>,
        mode: Option<Mode>,
        #[serde(borrow)]
        content: Option<&'a RawValue>,
    }

    #[test]
    fn what_is_wrong_is_said_by_name() {
        let check = |text: &str, says: &str| {
            assert_eq!(read::<Request<'_>>(text.as_bytes()).err().expect(text).to_string(), says);
        };
        check(r#"{"topc":"t"}"#, r#"unknown field "topc": did you mean "topic"?"#);
        check(
            r#"{"sn":"s"}"#,
            r#"unknown field "sn": it belongs into content: "content":{"sn":…}"#,
        );
        check(
            r#"{"url":"/x"}"#,
            r#"unknown field "url": it belongs into content: "content":{"url":…}"#,
        );
        check(
            r#"{"wait":1}"#,
            r#"unknown field "wait": the fields are topic, delay, mode, content"#,
        );
        check(
            r#"{"a`, expected b":1}"#,
            r#"unknown field "a`, expected b": the fields are topic, delay, mode, content"#,
        );
        check(r#"{"topic":5}"#, "topic: must be a string, not integer 5");
        check(r#"{"topic":"a","topic":"b"}"#, "topic: is given more than once");
        check(
            r#"{"delay":"soon"}"#,
            "delay: must be a number of seconds or a whole number with one of the units ms, s, m, \
             h and d, such as \"1500ms\", \"10s\", \"5m\", \"2h\" or \"7d\", not string \"soon\"",
        );
        check(
            r#"{"delay":-1}"#,
            r#"delay: must be a duration of 0 or more, such as 10 or "10s", not integer -1"#,
        );
        check(
            r#"{"delay":-0.5}"#,
            "delay: must be a duration of 0 or more, such as 10 or \"10s\", not floating point \
             -0.5",
        );
        check(r#"{"mode":5}"#, r#"mode: must be one of "auto", "push", "pull", not integer 5"#);
        check(r#"{"mode":["push"]}"#, r#"mode: must be one of "auto", "push", "pull", not a list"#);
        check(
            r#"{"mode":{"push":null}}"#,
            r#"mode: must be one of "auto", "push", "pull", not an object"#,
        );
        check(r#"{"mode":"fly"}"#, r#"mode: must be one of "auto", "push", "pull", not "fly""#);
        check("", "body: is empty, and must be a JSON object");
        check(r#"["t"]"#, "body: must be a JSON object, not a list");
        check("topic=t", "body: must be a JSON object");
        check(r#"{"topic":"a",}"#, "body: is not valid JSON: trailing comma at line 1 column 14");
        check(
            r#"{"topic":"a"} x"#,
            "body: is not valid JSON: trailing characters at line 1 column 15",
        );
        check(
            r#"{"topic":"a""#,
            "body: is not valid JSON: EOF while parsing an object at line 1 column 12",
        );
        let long = "x".repeat(10_000);
        let said =
            read::<Request<'_>>(format!("{{\"{long}\":1}}").as_bytes()).err().unwrap().to_string();
        assert!(said.len() < 200, "{said}");
    }

    #[test]
    fn null_is_absent() {
        let request: Request<'_> =
            read(br#" {"topic":null,"delay":null,"content":null} "#).unwrap();
        assert!(request.topic.is_none() && request.delay.is_none() && request.content.is_none());
        assert!(request.mode.is_none());
    }

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        let check = |text: String, allowed: bool| {
            assert_eq!(check_depth(&text, "content").is_ok(), allowed, "{text}")
        };
        check("[".repeat(128), true);
        check("[".repeat(129), false);
        check("[{".repeat(65), false);
        check("[],".repeat(1000), true);
        check(format!("\"{}\"", "[".repeat(1000)), true);
        check(format!("\"\\\"{}\"", "[".repeat(1000)), true);
        check(format!("\"\\\\\"{}", "[".repeat(1000)), false);
    }
}
