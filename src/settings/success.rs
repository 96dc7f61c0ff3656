//! `services.….success`: a word, or a table with a rule.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer};

use super::value::Parsed;
use crate::callback::{AnswerRule, Expected, Pointer, SuccessRule, ValueRule};

/// The maximum number of values in `equals`.
const MOST_VALUES: usize = 32;
/// The maximum length of a text in `equals`, in bytes.
const LONGEST_VALUE: usize = 128;

const FORMS: &str = "must be \"dm_error\", \"status\", or a table such as { pointer = \"/code\", \
                     equals = [0] }";

/// Reads the rule of a service.
pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<SuccessRule, D::Error> {
    from.deserialize_any(WordOrTable)
}

struct WordOrTable;

impl<'de> Visitor<'de> for WordOrTable {
    type Value = SuccessRule;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORMS.trim_start_matches("must be "))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<SuccessRule, E> {
        match word {
            "dm_error" => Ok(SuccessRule::DmError),
            "status" => Ok(SuccessRule::Status),
            _ => Err(E::custom(FORMS)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<SuccessRule, A::Error> {
        let table = RuleTable::deserialize(MapAccessDeserializer::new(table))?;
        table.rule().map(SuccessRule::Answer).map_err(A::Error::custom)
    }
}

/// The rule as a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleTable {
    pointer: Option<Parsed<Pointer>>,
    equals: Option<Vec<Expected>>,
    statuses: Option<Vec<u16>>,
    missing: Option<IfMissing>,
}

/// What an answer without the value is.
#[derive(PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum IfMissing {
    Failure,
    Success,
}

impl RuleTable {
    fn rule(self) -> Result<AnswerRule, &'static str> {
        let Self { pointer, equals, statuses, missing } = self;
        if let Some(statuses) = &statuses {
            let are_right = statuses.iter().all(|status| (200..=599).contains(status));
            if statuses.is_empty() || !are_right {
                return Err("must have statuses from 200 to 599, at least one");
            }
        }
        let value = match (pointer, equals) {
            (Some(Parsed(pointer)), Some(equals)) => {
                let is_long = |value: &Expected| match value {
                    Expected::Text(text) => text.len() > LONGEST_VALUE,
                    _ => false,
                };
                if equals.is_empty() || equals.len() > MOST_VALUES {
                    return Err("must have 1 to 32 values in equals");
                }
                if equals.iter().any(is_long) {
                    return Err("must have texts of at most 128 bytes in equals");
                }
                let missing_is_success = missing == Some(IfMissing::Success);
                Some(ValueRule { pointer, equals, missing_is_success })
            }
            (None, None) if missing.is_some() => {
                return Err("must have pointer and equals beside missing");
            }
            (None, None) if statuses.is_none() => {
                return Err("must have pointer and equals, or statuses");
            }
            (None, None) => None,
            _ => return Err("must have both or none of pointer and equals"),
        };
        Ok(AnswerRule { statuses, value })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;

    fn read(success: &str) -> Result<String, String> {
        let text = format!("[services.a]\nendpoints = ['http://a']\nsuccess = {success}");
        load(&text, &[], &[]).map(|settings| settings.services["a"].success.to_string())
    }

    #[test]
    fn a_rule_is_a_word_or_a_table() {
        let check = |success: &str, expected: &str| assert_eq!(read(success).unwrap(), expected);
        check("'dm_error'", "dm_error");
        check("'status'", "status");
        check(
            "{ pointer = '/code', equals = [0, '0', true, 1.5] }",
            r#"{ pointer = "/code", equals = [0, "0", true, 1.5] }"#,
        );
        check(
            "{ pointer = '', equals = ['ok'], statuses = [200, 404], missing = 'success' }",
            r#"{ pointer = "", equals = ["ok"], statuses = [200, 404], missing = "success" }"#,
        );
        check(
            "{ pointer = '/code', equals = [0], missing = 'failure' }",
            r#"{ pointer = "/code", equals = [0] }"#,
        );
        check("{ statuses = [204] }", "{ statuses = [204] }");
        let sets = [
            "services.a.endpoints=['http://a']",
            "services.a.success={ pointer = '/a', equals = [1] }",
            "services.a.success.equals=[2]",
        ];
        let set = load("", &sets, &[]).unwrap();
        let rule = r#"{ pointer = "/a", equals = [2] }"#;
        assert_eq!(set.services["a"].success.to_string(), rule);
        let sets = [&sets[..2], &["services.a.success=status"]].concat();
        assert_eq!(load("", &sets, &[]).unwrap().services["a"].success.to_string(), "status");
    }

    #[test]
    fn a_wrong_rule_says_what_would_be_right() {
        let check = |success: &str, expected: &str| {
            let error = read(success).unwrap_err();
            assert!(error.contains(expected), "{success}: {error}");
        };
        let forms = "services.a.success = \"always\" must be \"dm_error\", \"status\", or a table \
                     such as { pointer = \"/code\", equals = [0] }";
        check("'always'", forms);
        check("1", "success = 1 must be \"dm_error\", \"status\", or a table");
        check("[0]", "success = [0] must be \"dm_error\", \"status\", or a table");
        check("{}", "must have pointer and equals, or statuses");
        check("{ pointer = '/code' }", "must have both or none of pointer and equals");
        check("{ equals = [0] }", "must have both or none of pointer and equals");
        let no_pointer = "success.pointer = \"code\" must be a JSON pointer, such as \"/code\"";
        check("{ pointer = 'code', equals = [0] }", no_pointer);
        check("{ pointer = '/code', equals = [] }", "must have 1 to 32 values in equals");
        check("{ pointer = '/code', equals = 0 }", "success.equals = 0 must be a list");
        check("{ pointer = '/code', equals = [[0]] }", "must be a number, a string, true or false");
        let long = "x".repeat(129);
        check(&format!("{{ pointer = '/code', equals = ['{long}'] }}"), "at most 128 bytes");
        check("{ statuses = [] }", "must have statuses from 200 to 599, at least one");
        check("{ statuses = [99] }", "must have statuses from 200 to 599, at least one");
        check("{ statuses = [200], missing = 'failure' }", "pointer and equals beside missing");
        let missing = "success.missing = \"retry\" must be \"failure\" or \"success\"";
        check("{ pointer = '/code', equals = [0], missing = 'retry' }", missing);
        check("{ pointre = '/code' }", "success.pointre; expected one of \"pointer\", \"equals\"");
    }
}
