//! What counts as success: the rule of a service, and what an answer looks like under it.

use std::fmt;

use http::StatusCode;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Number;

use super::shallow::{Pointer, Shallow};

/// Which answers are a success.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SuccessRule {
    /// 2xx, unless the answer is a JSON object whose top-level `dm_error` is a number other than 0,
    /// or a text of digits that is one.
    #[default]
    DmError,
    /// 2xx, whatever the answer says.
    Status,
    /// What the operator says.
    Answer(AnswerRule),
}

/// A rule about the status and a value in the answer. Both must be right.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerRule {
    /// The statuses; `None` means 2xx.
    pub statuses: Option<Vec<u16>>,
    /// The value; `None` means that the body is not looked at.
    pub value: Option<ValueRule>,
}

/// A rule about a value in a JSON answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueRule {
    /// Where the value is.
    pub pointer: Pointer,
    /// It is a success if the value is one of these.
    pub equals: Vec<Expected>,
    /// Whether an answer without the value is a success, such as one that is not JSON.
    pub missing_is_success: bool,
}

/// A value that the operator expects.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "must be a number, a string, true or false")]
pub enum Expected {
    /// True or false.
    Flag(bool),
    /// A number. 0 and 0.0 are equal, and 0 and "0" are not.
    Number(Number),
    /// A text.
    Text(String),
}

impl SuccessRule {
    /// Whether an answer with this status can be a success.
    pub(super) fn takes(&self, status: StatusCode) -> bool {
        match self {
            Self::Answer(AnswerRule { statuses: Some(statuses), .. }) => {
                statuses.contains(&status.as_u16())
            }
            _ => status.is_success(),
        }
    }

    /// The word for an answer with such a status that is no success, for the span of the call.
    pub(super) fn trouble(&self) -> &'static str {
        match self {
            Self::DmError | Self::Status => "dm_error",
            Self::Answer(_) => "success_rule",
        }
    }
}

/// The rule as the configuration writes it.
impl fmt::Display for SuccessRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self {
            Self::DmError => return f.write_str("dm_error"),
            Self::Status => return f.write_str("status"),
            Self::Answer(rule) => rule,
        };
        let mut parts = Vec::new();
        if let Some(ValueRule { pointer, equals, .. }) = &rule.value {
            let equals: Vec<_> = equals.iter().map(Expected::to_string).collect();
            parts.push(format!("pointer = {:?}", pointer.as_str()));
            parts.push(format!("equals = [{}]", equals.join(", ")));
        }
        if let Some(statuses) = &rule.statuses {
            parts.push(format!("statuses = {statuses:?}"));
        }
        if rule.value.as_ref().is_some_and(|value| value.missing_is_success) {
            parts.push("missing = \"success\"".into());
        }
        write!(f, "{{ {} }}", parts.join(", "))
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => flag.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl ValueRule {
    /// Why the body of an answer is no success, as the end of a sentence that begins with the
    /// status. `is_cut`: the body is longer than what was read of it. `may_miss`: it is a success
    /// without the value, whatever the rule says.
    pub(super) fn failure(&self, body: &[u8], is_cut: bool, may_miss: bool) -> Option<String> {
        let missing = |why: &str| (!may_miss && !self.missing_is_success).then(|| why.to_owned());
        if is_cut {
            return missing(", but the answer is longer than 64 KiB");
        }
        let pointer = self.pointer.as_str();
        let found = match self.pointer.find(without_mark(body)) {
            Ok(Some(found)) => found,
            Ok(None) => return missing(&format!(", but the answer has no {pointer}")),
            Err(_) => return missing(", but the answer is not JSON"),
        };
        let is_expected = self.equals.iter().any(|expected| expected.is(&found));
        let name = if pointer.is_empty() { "the answer" } else { pointer };
        (!is_expected).then(|| format!(", {name} is {}", shown(&found)))
    }
}

impl Expected {
    fn is(&self, found: &Shallow<'_>) -> bool {
        match (self, found) {
            (Self::Flag(one), Shallow::Flag(other)) => one == other,
            (Self::Number(one), Shallow::Number(other)) => is_same(one, other),
            (Self::Text(one), Shallow::Text(other)) => one == other,
            _ => false,
        }
    }
}

/// Whether two numbers have the same value, however they are written.
fn is_same(one: &Number, other: &Number) -> bool {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => one == other,
        // At least one of them has a fraction or an exponent.
        _ => one.as_f64() == other.as_f64(),
    }
}

/// A value as outcomes show it. They hold no contents: of texts only what looks like a code.
fn shown(found: &Shallow<'_>) -> String {
    let is_code = |text: &str| {
        (1..=32).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    match found {
        Shallow::Null => "null".into(),
        Shallow::Flag(flag) => flag.to_string(),
        Shallow::Number(number) => number.to_string(),
        Shallow::Text(text) if is_code(text) => format!("{text:?}"),
        Shallow::Text(_) => "another text".into(),
        Shallow::Array => "a list".into(),
        Shallow::Object => "an object".into(),
    }
}

/// The body without a byte order mark.
fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body)
}

/// What an answer says about its success under the rule [`SuccessRule::DmError`].
#[derive(Debug, Default, PartialEq)]
pub(super) struct Envelope {
    /// `dm_error`, if it is a number or a text of digits.
    pub(super) dm_error: Option<Number>,
    /// A field by which other services say that they failed, and which says so here.
    failing: Option<&'static str>,
}

impl Envelope {
    /// Reads the beginning of a JSON object. In a body that is cut off or invalid, the fields
    /// before that point count, so that a failure does not pass for a success.
    pub(super) fn read(body: &[u8]) -> Self {
        let mut envelope = Self::default();
        // The error is the point where the JSON ends.
        let _ = serde_json::Deserializer::from_slice(without_mark(body))
            .deserialize_map(EnvelopeVisitor(&mut envelope));
        envelope
    }

    /// The `dm_error` of a failure.
    pub(super) fn error(&self) -> Option<&Number> {
        self.dm_error.as_ref().filter(|code| code.as_f64() != Some(0.0))
    }

    /// The field that says that a call failed which counts as a success. A `dm_error` of 0 says
    /// that it did not.
    pub(super) fn ambiguity(&self) -> Option<&'static str> {
        self.failing.filter(|_| self.dm_error.is_none())
    }
}

/// The fields that say something about success.
enum SuccessField {
    DmError,
    /// `code`, `errno` or `errcode`.
    Code(&'static str),
    Success,
    Other,
}

impl<'de> Deserialize<'de> for SuccessField {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(FieldVisitor)
    }
}

struct FieldVisitor;

impl Visitor<'_> for FieldVisitor {
    type Value = SuccessField;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<SuccessField, E> {
        Ok(match name {
            "dm_error" => SuccessField::DmError,
            "code" => SuccessField::Code("code"),
            "errno" => SuccessField::Code("errno"),
            "errcode" => SuccessField::Code("errcode"),
            "success" => SuccessField::Success,
            _ => SuccessField::Other,
        })
    }
}

/// Reads an object. Of several `dm_error` the last one counts.
struct EnvelopeVisitor<'a>(&'a mut Envelope);

impl<'de> Visitor<'de> for EnvelopeVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key()? {
            match field {
                SuccessField::DmError => {
                    self.0.dm_error = match map.next_value()? {
                        Shallow::Number(code) => Some(code),
                        Shallow::Text(code) => number_in(&code),
                        _ => None,
                    };
                }
                SuccessField::Code(name) if says_failure(&map.next_value()?) => {
                    self.0.failing = Some(name);
                }
                SuccessField::Success
                    if map.next_value::<Shallow<'de>>()? == Shallow::Flag(false) =>
                {
                    self.0.failing = Some("success");
                }
                SuccessField::Code(_) | SuccessField::Success => {}
                SuccessField::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The number that a text of digits stands for. One that is out of range is shown as the largest
/// number.
fn number_in(text: &str) -> Option<Number> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match digits.trim_start_matches('0') {
        "" => Some(0.into()),
        digits => Some(format!("{sign}{digits}").parse().unwrap_or_else(|_| u64::MAX.into())),
    }
}

/// Whether a `code` is none of those that usually mean success.
fn says_failure(code: &Shallow<'_>) -> bool {
    match code {
        Shallow::Null => false,
        Shallow::Number(code) => ![Some(0.0), Some(200.0)].contains(&code.as_f64()),
        Shallow::Text(code) => {
            !["0", "200", "00000"].contains(&&**code) && !code.eq_ignore_ascii_case("ok")
        }
        Shallow::Flag(_) | Shallow::Array | Shallow::Object => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_rule(equals: &[Expected], missing_is_success: bool) -> ValueRule {
        let pointer = "/code".parse().unwrap();
        ValueRule { pointer, equals: equals.to_vec(), missing_is_success }
    }

    fn number(number: f64) -> Expected {
        Expected::Number(Number::from_f64(number).unwrap())
    }

    #[test]
    fn a_value_that_is_expected_is_a_success() {
        let texts = Expected::Text("0".into());
        let large = Expected::Number(9_007_199_254_740_993_i64.into());
        let rule = value_rule(&[Expected::Number(0.into()), texts, large, number(1.5)], false);
        let check = |body: &str, expected: Option<&str>| {
            assert_eq!(rule.failure(body.as_bytes(), false, false).as_deref(), expected, "{body}");
        };
        check(r#"{"code":0}"#, None);
        check(r#"{"code":0.0}"#, None);
        check(r#"{"code":-0}"#, None);
        check(r#"{"code":0e5}"#, None);
        check(r#"{"code":"0"}"#, None);
        check(r#"{"code":15e-1}"#, None);
        check(r#"{"code":9007199254740993}"#, None);
        check("\u{feff}{\"code\":0}", None);
        check(r#"{"code":9007199254740992}"#, Some(", /code is 9007199254740992"));
        check(r#"{"code":500}"#, Some(", /code is 500"));
        check(r#"{"code":"00"}"#, Some(", /code is \"00\""));
        check(r#"{"code":"A0400"}"#, Some(", /code is \"A0400\""));
        check(r#"{"code":"a text of the business"}"#, Some(", /code is another text"));
        check(&format!(r#"{{"code":"{}"}}"#, "x".repeat(33)), Some(", /code is another text"));
        check(r#"{"code":""}"#, Some(", /code is another text"));
        check(r#"{"code":false}"#, Some(", /code is false"));
        check(r#"{"code":null}"#, Some(", /code is null"));
        check(r#"{"code":[0]}"#, Some(", /code is a list"));
        check(r#"{"code":{}}"#, Some(", /code is an object"));
        check("{}", Some(", but the answer has no /code"));
        check("[0]", Some(", but the answer has no /code"));
        check("", Some(", but the answer is not JSON"));
        check("ok", Some(", but the answer is not JSON"));
        check(r#"{"code":0"#, Some(", but the answer is not JSON"));
        check(r#"{"code":0}{}"#, Some(", but the answer is not JSON"));
    }

    #[test]
    fn an_answer_without_the_value_is_what_the_rule_says() {
        let check = |missing_is_success: bool, body: &str, is_cut: bool, expected: Option<&str>| {
            let failure = value_rule(&[Expected::Flag(true)], missing_is_success).failure(
                body.as_bytes(),
                is_cut,
                false,
            );
            assert_eq!(failure.as_deref(), expected, "{body} {is_cut}");
        };
        check(true, "", false, None);
        check(true, "{}", false, None);
        check(true, r#"{"code":true}"#, true, None);
        check(true, r#"{"code":false}"#, false, Some(", /code is false"));
        check(false, r#"{"code":true}"#, false, None);
        let long = Some(", but the answer is longer than 64 KiB");
        check(false, r#"{"code":true}"#, true, long);
    }

    #[test]
    fn an_answer_that_says_that_it_failed_in_another_way_is_ambiguous() {
        let check = |body: &str, expected: Option<&str>| {
            assert_eq!(Envelope::read(body.as_bytes()).ambiguity(), expected, "{body}");
        };
        check(r#"{"code":0}"#, None);
        check(r#"{"code":200,"errno":0.0,"errcode":"0"}"#, None);
        check(r#"{"code":"200"}"#, None);
        check(r#"{"code":"00000"}"#, None);
        check(r#"{"code":"ok"}"#, None);
        check(r#"{"code":"OK"}"#, None);
        check(r#"{"code":null}"#, None);
        check(r#"{"success":true}"#, None);
        check(r#"{"success":"false"}"#, None);
        check(r#"{"data":{"code":500}}"#, None);
        check(r#"{"Code":500}"#, None);
        check(r#"[{"code":500}]"#, None);
        check("", None);
        check(r#"{"code":500}"#, Some("code"));
        check(r#"{"code":-1,"msg":"no"}"#, Some("code"));
        check(r#"{"msg":"no","errno":1}"#, Some("errno"));
        check(r#"{"errcode":40001}"#, Some("errcode"));
        check(r#"{"code":"FAIL"}"#, Some("code"));
        check(r#"{"code":"0000"}"#, Some("code"));
        check(r#"{"code":{}}"#, Some("code"));
        check(r#"{"code":false}"#, Some("code"));
        check(r#"{"success":false}"#, Some("success"));
        check(r#"{"code":500,"data":"cut of"#, Some("code"));
        check(r#"{"\u0063ode":500}"#, Some("code"));
        // With a dm_error, the receiver says what it means.
        check(r#"{"code":500,"dm_error":0}"#, None);
        check(r#"{"code":500,"dm_error":"0"}"#, None);
        check(r#"{"code":500,"dm_error":"none"}"#, Some("code"));
    }

    #[test]
    fn a_rule_is_shown_as_it_is_written() {
        let check = |rule: SuccessRule, expected: &str| assert_eq!(rule.to_string(), expected);
        check(SuccessRule::DmError, "dm_error");
        check(SuccessRule::Status, "status");
        let equals = [Expected::Number(0.into()), Expected::Text("a\"b".into())];
        check(
            SuccessRule::Answer(AnswerRule {
                statuses: Some(vec![200, 404]),
                value: Some(value_rule(&equals, true)),
            }),
            concat!(
                r#"{ pointer = "/code", equals = [0, "a\"b"], "#,
                r#"statuses = [200, 404], missing = "success" }"#,
            ),
        );
        check(
            SuccessRule::Answer(AnswerRule { statuses: Some(vec![404]), value: None }),
            "{ statuses = [404] }",
        );
    }
}
