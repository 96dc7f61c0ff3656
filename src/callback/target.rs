//! Reads what to call from a task's content. `sn` names the service, and `url` the path on it;
//! without `sn`, `url` is absolute.
//!
//! The rest of the content belongs to the business: it can be any JSON object, and other fields are
//! ignored. With `sn`, `url` is appended to the service's endpoint, and its rules keep it on that
//! host. Without `sn`, a [`CallersUrl`] names the host, which the configuration must allow.

use std::borrow::Cow;

use memchr::memchr2;
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;
use url::Url;

use crate::model::task::Destination;

/// The longest `url`, in bytes. HTTP libraries refuse request lines of 64 KiB, many servers those
/// of 8 KiB.
const MAX_URL: usize = 8 * 1024;
const PLAIN: &str = "may hold no \\, no #, no whitespace or control characters and nothing beyond \
                     ASCII: percent-encode them";
const SHORT: &str = "must be at most 8192 bytes long";

/// What to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The service's name; `None` if `url` names the host.
    pub sn: Option<Destination>,
    /// A path that [`check_url`] allows. Without `sn`, a text that begins like an absolute URL.
    pub url: String,
}

/// A content without a valid target. The text names the field and what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidTarget(String);

/// A `url` that breaks a rule. The text says what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUrl(pub(super) &'static str);

/// The two fields, as raw JSON of any type.
#[derive(Debug, PartialEq)]
struct TargetFields<'a> {
    sn: Option<&'a str>,
    url: Option<&'a str>,
}

/// Reads the target of a task from its content. `None` without `sn` and `url`: the task is pulled.
///
/// # Errors
/// If the content is not a JSON object, if one of `sn` and a path in `url` is there without the
/// other, or if either breaks a rule.
pub fn target(content: &str) -> Result<Option<Target>, InvalidTarget> {
    let no_object = |why: &str| InvalidTarget(format!("content must be a JSON object{why}"));
    // Serde reads an array into a struct too, but an array is not a target.
    if !content.trim_ascii_start().starts_with('{') {
        return Err(no_object(""));
    }
    let fields = TargetFields::read(content).map_err(|error| match error.classify() {
        Category::Data => InvalidTarget(format!(
            "content.sn and content.url must be strings, each given once: {error}"
        )),
        _ => no_object(&format!(
            ": it breaks off being one at line {} column {}",
            error.line(),
            error.column()
        )),
    })?;
    fields.target()
}

/// As [`target`], for content that has just been parsed as a JSON object.
///
/// # Errors
/// As [`target`].
pub(super) fn target_of_object(content: &str) -> Result<Option<Target>, InvalidTarget> {
    match TargetFields::find(content) {
        Some(fields) => fields.target(),
        None => target(content),
    }
}

/// As [`target`], for a content that was just parsed as a JSON object, and that a caller sends now.
/// Its `url` must also pass [`check_segments`]. A task that was stored before keeps its `url`.
///
/// # Errors
/// As [`target`], or if the path of `url` has a dot segment.
pub fn new_target(content: &str) -> Result<Option<Target>, InvalidTarget> {
    let target = target_of_object(content)?;
    if let Some(target) = &target {
        check_segments(&target.url)
            .map_err(|error| InvalidTarget(format!("content.url {error}")))?;
    }
    Ok(target)
}

impl<'a> TargetFields<'a> {
    /// Parses any text.
    fn read(content: &'a str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Raw<'a> {
            #[serde(borrow)]
            sn: Option<&'a RawValue>,
            #[serde(borrow)]
            url: Option<&'a RawValue>,
        }

        let Raw { sn, url } = serde_json::from_str(content)?;
        Ok(Self { sn: sn.map(RawValue::get), url: url.map(RawValue::get) })
    }

    /// Finds the fields in a JSON object without a parser. It only tells strings and nesting apart,
    /// which costs a fraction of parsing.
    ///
    /// `None` if a parser is needed: a name has escapes or occurs twice, or a value is neither a
    /// string nor null. The result is unspecified for input that is not valid JSON.
    fn find(object: &'a str) -> Option<Self> {
        let mut found: [Option<Option<&str>>; 2] = [None, None];
        let (mut at, mut depth, mut is_name) = (0, 0_usize, false);
        while let Some(byte) = object.as_bytes().get(at) {
            match byte {
                b'{' | b'[' => {
                    depth += 1;
                    is_name = depth == 1;
                }
                b'}' | b']' => depth = depth.checked_sub(1)?,
                b',' => is_name = depth == 1,
                b'"' => {
                    let string = string_at(object, at)?;
                    at += string.len() - 1;
                    if std::mem::take(&mut is_name) {
                        let field = match string {
                            "\"sn\"" => Some(&mut found[0]),
                            "\"url\"" => Some(&mut found[1]),
                            _ if string.contains('\\') => return None,
                            _ => None,
                        };
                        if let Some(field) = field {
                            let value =
                                object[at + 1..].trim_start().strip_prefix(':')?.trim_start();
                            at = object.len() - value.len() - 1;
                            let value = match value.as_bytes().first()? {
                                b'"' => Some(string_at(object, at + 1)?),
                                b'n' => None,
                                _ => return None,
                            };
                            if field.replace(value).is_some() {
                                return None;
                            }
                        }
                    }
                }
                _ => {}
            }
            at += 1;
        }
        let [sn, url] = found.map(Option::flatten);
        Some(Self { sn, url })
    }

    /// The target that the fields name.
    fn target(self) -> Result<Option<Target>, InvalidTarget> {
        let Some(sn) = self.sn else {
            let Some(url) = self.url else { return Ok(None) };
            return match text("content.url", url) {
                Ok(url) if is_absolute(&url) => {
                    Ok(Some(Target { sn: None, url: url.into_owned() }))
                }
                _ => Err(InvalidTarget(
                    "content.sn is missing: with a content.url, it names the service to call; for \
                     a task that consumers pull, set mode to \"pull\""
                        .into(),
                )),
            };
        };
        let Some(url) = self.url else {
            return Err(InvalidTarget(
                "content.sn needs a content.url beside it: the path to call, such as \"/done\""
                    .into(),
            ));
        };
        let sn = text("content.sn", sn)?;
        let url = text("content.url", url)?;
        let sn: Destination =
            sn.parse().map_err(|error| InvalidTarget(format!("content.sn {error}")))?;
        if !sn.is_service() {
            return Err(InvalidTarget(
                "content.sn must name a service; leave it out for a task that is pulled".into(),
            ));
        }
        check_url(&url).map_err(|error| InvalidTarget(format!("content.url {error}")))?;
        Ok(Some(Target { sn: Some(sn), url: url.into_owned() }))
    }
}

/// The string that begins with the quotation mark at `at`, with both marks.
fn string_at(json: &str, at: usize) -> Option<&str> {
    let mut end = at + 1;
    loop {
        end += memchr2(b'"', b'\\', json.as_bytes().get(end..)?)?;
        if json.as_bytes()[end] == b'"' {
            return json.get(at..=end);
        }
        end += 2;
    }
}

/// Whether the text begins like an absolute URL.
fn is_absolute(text: &str) -> bool {
    let begins = |scheme: &str| {
        text.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    begins("http://") || begins("https://")
}

/// An absolute URL from a caller. It names its host.
#[derive(Debug)]
pub(super) struct CallersUrl {
    pub(super) url: Url,
    pub(super) host: Destination,
}

impl CallersUrl {
    /// Parses the URL; `None` if it has no host that can be called.
    pub(super) fn read(text: &str) -> Option<Self> {
        if !is_absolute(text) {
            return None;
        }
        let url = Url::parse(text).ok()?;
        let host = Destination::host(url.host_str()?, url.port_or_known_default()?)?;
        Some(Self { url, host })
    }

    /// Checks that `text`, from which the URL was parsed, holds nothing that is not sent or is
    /// easily misread.
    ///
    /// # Errors
    /// Says which rule is broken.
    pub(super) fn check(&self, text: &str) -> Result<(), InvalidUrl> {
        if text.bytes().any(|byte| matches!(byte, b'\\' | b'#') || !byte.is_ascii_graphic()) {
            return Err(InvalidUrl(PLAIN));
        }
        if text.len() > MAX_URL {
            return Err(InvalidUrl(SHORT));
        }
        let (_, rest) = text.split_once("://").unwrap_or_default();
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        if authority.is_empty() || authority.contains('@') {
            return Err(InvalidUrl("must name a host, and neither user nor password"));
        }
        Ok(())
    }
}

/// The text of a JSON string.
fn text<'a>(field: &str, value: &'a str) -> Result<Cow<'a, str>, InvalidTarget> {
    let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    match bare.filter(|bare| !bare.contains('\\')) {
        Some(bare) => Ok(Cow::Borrowed(bare)),
        None => serde_json::from_str(value)
            .map_err(|_| InvalidTarget(format!("{field} must be a string"))),
    }
}

/// Checks that `url` is a path that can be appended to an endpoint and names no other host.
///
/// # Errors
/// Says which rule is broken. The text follows the name of the field.
pub fn check_url(url: &str) -> Result<(), InvalidUrl> {
    // A query may hold another URL, so only the path is searched for `//`.
    let path = url.as_bytes().split(|byte| *byte == b'?').next().unwrap_or_default();
    if !url.starts_with('/') || path.windows(2).any(|pair| pair == b"//") {
        return Err(InvalidUrl(
            "must be a path that begins with exactly one / and holds no //, such as \
             \"/order/done\"",
        ));
    }
    if url.bytes().any(|byte| matches!(byte, b'\\' | b'#') || !byte.is_ascii_graphic()) {
        return Err(InvalidUrl(PLAIN));
    }
    if url.len() > MAX_URL {
        return Err(InvalidUrl(SHORT));
    }
    Ok(())
}

/// Checks that the path of `url`, a path or an absolute URL, has no segment `.` or `..`. A URL
/// parser would remove them. So another path would be called than was written, or none at all if it
/// left the service's endpoint. Some servers decode `%2e`, `%2f` and `%5c` before they split the
/// path.
///
/// # Errors
/// If there is one. The text follows the name of the field.
pub fn check_segments(url: &str) -> Result<(), InvalidUrl> {
    let path = url.split('?').next().unwrap_or_default();
    let path = match path.split_once("://") {
        Some((_, rest)) if is_absolute(url) => rest.split_once('/').map_or("", |(_, path)| path),
        _ => path,
    };
    if !path.contains(['.', '%']) {
        return Ok(());
    }
    let plain = path.to_ascii_lowercase().replace("%2e", ".");
    let plain = plain.replace("%2f", "/").replace("%5c", "/");
    if plain.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(InvalidUrl(
            "must hold no segment . or .. in its path, also not percent-encoded",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/../admin` was once accepted and could never be called, and `/a/../b` was called as `/b`.
    #[test]
    fn a_new_url_has_no_dot_segments_and_a_stored_one_may_have_some() {
        let check = |url: &str, allowed: bool| {
            let content = if is_absolute(url) {
                format!(r#"{{"url":"{url}"}}"#)
            } else {
                format!(r#"{{"sn":"s","url":"{url}"}}"#)
            };
            assert!(target(&content).is_ok(), "{url}");
            let new = new_target(&content).map_err(|error| error.to_string());
            assert_eq!(new.is_ok(), allowed, "{url}");
            assert!(allowed || new.unwrap_err().starts_with("content.url must hold no segment"));
        };
        check("/../admin", false);
        check("/%2e%2e/x", false);
        check("/%2E./x", false);
        check("/a/../b", false);
        check("/a/./b", false);
        check("/a/..", false);
        check("/.", false);
        check("/..?a=b", false);
        check("/a/..%2f..%2Fadmin", false);
        check("/..%5Cadmin", false);
        check("https://h.example/a/../b", false);
        check("https://h.example/%2e", false);
        check("/", true);
        check("/a.b/..c/d../...", true);
        check("/.well-known/x", true);
        check("/a%2fb%2e.c", true);
        check("/a?next=/../b", true);
        check("https://h.example", true);
        check("https://h.example?a=/../b", true);
        check("https://h.example/a.b", true);
    }

    #[test]
    fn a_url_is_a_plain_path_on_the_same_host() {
        let check =
            |url: &str, allowed: bool| assert_eq!(check_url(url).is_ok(), allowed, "{url:?}");
        check("/", true);
        check("/order/cancel?id=7&next=http://shop.example/", true);
        check("/%E8%AE%A2%E5%8D%95", true);
        check("/a@b:1/c", true);
        check("", false);
        check("order", false);
        check("http://evil/", false);
        check("//evil", false);
        check("/a//b", false);
        check("/\\evil", false);
        check("\\evil", false);
        check("/a#b", false);
        check("/a b", false);
        check("/a\tb", false);
        check("/a\r\nhost: evil", false);
        check("/a\u{7f}", false);
        check("/订单", false);
        check("/\u{a0}", false);
        check(&format!("/{}", "a".repeat(MAX_URL - 1)), true);
        check(&format!("/{}", "a".repeat(MAX_URL)), false);
    }

    #[test]
    fn a_target_is_read_from_any_object_that_has_one() {
        let check = |content: &str, expected: Option<(&str, &str)>| {
            let read = target(content).unwrap();
            let sn =
                |target: &'_ Target| target.sn.as_ref().map_or(String::new(), ToString::to_string);
            let read = read.as_ref().map(|target| (sn(target), target.url.clone()));
            assert_eq!(
                read,
                expected.map(|(sn, url)| (sn.to_owned(), url.to_owned())),
                "{content}"
            );
        };
        check(
            r#"{"sn":"message.call","url":"/call","id":[1,{"sn":"x"}]}"#,
            Some(("message.call", "/call")),
        );
        check(" \n{ \"url\" : \"\\/a\", \"sn\":\"s\" }", Some(("s", "/a")));
        check(r#"{"n":{"sn":"inner","url":"/inner"}}"#, None);
        check("{}", None);
        check(r#"{"sn":null,"url":null}"#, None);
        check(r#"{"url":"https://h.example/x"}"#, Some(("", "https://h.example/x")));
        check(r#"{"sn":null,"url":"HTTP://h"}"#, Some(("", "HTTP://h")));
    }

    /// `find` finds what a parser reads, or leaves the object to it.
    #[test]
    fn an_object_that_was_read_before_has_the_same_target() {
        let check = |content: &str, is_found: bool| {
            assert!(serde_json::from_str::<serde::de::IgnoredAny>(content).is_ok(), "{content}");
            let found = TargetFields::find(content);
            assert_eq!(found.is_some(), is_found, "{content}");
            assert!(
                found.is_none_or(|found| found == TargetFields::read(content).unwrap()),
                "{content}"
            );
            assert_eq!(target_of_object(content), target(content), "{content}");
        };
        check(r#"{"sn":"message.call","url":"/call","id":[1,{"sn":"x"}]}"#, true);
        check(" \n{ \"url\" \t:\r \"\\/a\" ,\n \"sn\":\"s\"} \n", true);
        check(
            r#"{"a":{"sn":"in","url":"/in"},"url":"/out","b":["sn","url",{"sn":1}],"sn":"s"}"#,
            true,
        );
        check(r#"{"a":"sn","b":"url","c":"\"sn\":","d":"\\","sn":"s","url":"/\u0061"}"#, true);
        check(r#"{"sn":null,"url":null}"#, true);
        check(r#"{"sn":"","url":"\\"}"#, true);
        check(r#"{"sn":"s"}"#, true);
        check(r#"{"a":"订","url":"https://h.example/","é":{}}"#, true);
        check("{}", true);
        check(r#"{"\u0073n":"s","url":"/a"}"#, false);
        check(r#"{"a\n":1,"sn":"s","url":"/a"}"#, false);
        check(r#"{"sn":"s","url":"/a","sn":"t"}"#, false);
        check(r#"{"sn":null,"url":"/a","sn":null}"#, false);
        check(r#"{"sn":7,"url":"/a"}"#, false);
        check(r#"{"sn":"s","url":{"url":"/a"}}"#, false);
        check(r#"{"url":[]}"#, false);
    }

    #[test]
    fn an_absolute_url_names_its_host_and_nothing_that_only_seems_to_be_there() {
        let check = |text: &str, host: Option<&str>, right: bool| {
            let read = CallersUrl::read(text);
            assert_eq!(read.as_ref().map(|read| read.host.as_str()), host, "{text:?}");
            assert_eq!(read.is_some_and(|read| read.check(text).is_ok()), right, "{text:?}");
        };
        check("https://Hooks.Example.com/a?b=http://c@d", Some("hooks.example.com:443"), true);
        check("http://h", Some("h:80"), true);
        check("http://h:8080/a//b", Some("h:8080"), true);
        check("http://2130706433/", Some("127.0.0.1:80"), true);
        check("http://0x7f.1:81/", Some("127.0.0.1:81"), true);
        check("http://b%75g.example/", Some("bug.example:80"), true);
        check("http://me:pw@h/", Some("h:80"), false);
        check("http://@h/", Some("h:80"), false);
        check("http://h/#a", Some("h:80"), false);
        check("http://h\\@evil/", Some("h:80"), false);
        check("http://h/a b", Some("h:80"), false);
        check("http://h/\n", Some("h:80"), false);
        check("http://订单.example/", Some("xn--4kr132k.example:80"), false);
        check("http:///h/", Some("h:80"), false);
        check(&format!("http://h/{}", "a".repeat(MAX_URL)), Some("h:80"), false);
        check("http://[::1]/", None, false);
        check("http://", None, false);
        check("http://h:99999/", None, false);
        check("http://h:0/", None, false);
        check("ftp://h/", None, false);
        check("/path", None, false);
        check(&format!("http://{}/", "a.".repeat(64)), None, false);
    }

    #[test]
    fn a_target_that_cannot_be_called_is_refused_by_name() {
        let check = |content: &str, says: &str| {
            let error = target(content).unwrap_err().to_string();
            assert!(error.contains(says), "{content}: {error}");
        };
        for url in
            [r#""/alone""#, r#""""#, "5", "{}", r#""ftp://h/""#, r#""http:/h/""#, r#""//h/""#]
        {
            check(&format!(r#"{{"url":{url}}}"#), "content.sn is missing");
            check(&format!(r#"{{"sn":null,"url":{url}}}"#), "content.sn is missing");
        }
        check(r#"{"sn":"s"}"#, "content.sn needs a content.url");
        check(r#"{"sn":"s","url":null}"#, "content.sn needs a content.url");
        check(r#"{"sn":7,"url":"/a"}"#, "content.sn must be a string");
        check(r#"{"sn":"s","url":7}"#, "content.url must be a string");
        check(r#"{"sn":"","url":"/a"}"#, "content.sn must be 1 to 128");
        check(r#"{"sn":"@pull","url":"/a"}"#, "content.sn must name a service");
        check(r#"{"sn":"s","url":"//evil"}"#, "content.url must be a path");
        check(r#"{"sn":"s","url":"/a","sn":"t"}"#, "each given once");
        check(r#"["s","/a"]"#, "content must be a JSON object");
        check("not json", "content must be a JSON object");
        check("{\"sn\":\"s\"", "line 1 column 9");
        check("", "content must be a JSON object");
    }
}
