//! Takes the secrets that delayd sends to a service out of what the service answers.
//!
//! A receiver may repeat the headers of a call in its answer, for example in an error page for
//! developers. The beginning of the answer and the outcome are stored, shown and exported. So the
//! client replaces each known secret with `***` before anything else sees them.
//!
//! A secret is found as it was sent, and as JSON, a URL, a form or base64 writes it. It is not
//! found if the receiver changed it in another way, for example by compression, by a hash, or by
//! splitting it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use memchr::memmem::Finder;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Shorter texts are not replaced: they occur in too much that is no secret.
const SHORTEST: usize = 4;

const MASK: &[u8] = b"***";

/// What a URL may hold as it is (RFC 3986).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What `encodeURIComponent` leaves as it is.
const COMPONENT: &AsciiSet =
    &UNRESERVED.remove(b'!').remove(b'*').remove(b'\'').remove(b'(').remove(b')');
/// What many libraries leave as it is in a path.
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');

/// What writers of JSON escape by number beside what they must, and whether all that is not ASCII
/// as well: Go, Gson, Python and PHP, .NET, and PHP for HTML.
const NUMBERED: [(&str, bool); 5] =
    [("<>&", false), ("<>&='", false), ("", true), ("\"&'+<>`", true), ("<>&'\"", true)];

/// The secrets of a service, in each form that is looked for. Clones share them.
///
/// `Debug` shows no secret.
#[derive(Clone, Default)]
pub struct KnownSecrets(Option<Arc<[Finder<'static>]>>);

impl KnownSecrets {
    /// The secrets, of at least four bytes each; shorter ones are left out.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut forms = BTreeSet::new();
        for secret in secrets.into_iter().filter(|secret| secret.len() >= SHORTEST) {
            forms.extend(forms_of(secret));
        }
        Self::of_forms(forms.iter().map(|form| Finder::new(form.as_bytes()).into_owned()))
    }

    /// These secrets and `more` of them.
    pub fn and<'a>(&self, more: impl IntoIterator<Item = &'a str>) -> Self {
        let more = Self::new(more);
        Self::of_forms([self.finders(), more.finders()].concat().into_iter())
    }

    fn of_forms(forms: impl Iterator<Item = Finder<'static>>) -> Self {
        let forms: Arc<[_]> = forms.collect();
        Self((!forms.is_empty()).then_some(forms))
    }

    fn finders(&self) -> &[Finder<'static>] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The text, with `***` in the place of each secret.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let found = self.found(text.as_bytes());
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(String::from_utf8_lossy(&masked(text.as_bytes(), &found)).into_owned())
    }

    /// The same for a body. `is_cut`: it may end within a secret, whose beginning is replaced too.
    pub fn redact_body(&self, body: Vec<u8>, is_cut: bool) -> Vec<u8> {
        let mut found = self.found(&body);
        if is_cut {
            let begun = self.finders().iter().map(|form| begun(&body, form.needle())).max();
            let begun = begun.unwrap_or_default();
            if begun > 0 {
                found.push(body.len() - begun..body.len());
                found = merged(found);
            }
        }
        if found.is_empty() { body } else { masked(&body, &found) }
    }

    /// Where secrets are, in order and apart.
    fn found(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut all: Vec<Range<usize>> = Vec::new();
        for form in self.finders() {
            let (length, mut from) = (form.needle().len(), 0);
            while let Some(at) = form.find(&text[from..]) {
                let start = from + at;
                // One that overlaps the last one is joined to it, so that a repetition stays short.
                match all.last_mut().filter(|last| (last.start..last.end).contains(&start)) {
                    Some(last) => last.end = last.end.max(start + length),
                    None => all.push(start..start + length),
                }
                from = start + 1;
            }
        }
        merged(all)
    }
}

/// The ranges in order. Those that touch are joined.
fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut apart: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match apart.last_mut().filter(|last| last.end >= range.start) {
            Some(last) => last.end = last.end.max(range.end),
            None => apart.push(range),
        }
    }
    apart
}

fn masked(text: &[u8], found: &[Range<usize>]) -> Vec<u8> {
    let (mut out, mut from) = (Vec::with_capacity(text.len()), 0);
    for range in found {
        out.extend_from_slice(&text[from..range.start]);
        out.extend_from_slice(MASK);
        from = range.end;
    }
    out.extend_from_slice(&text[from..]);
    out
}

/// How many bytes at the end of the text are the beginning of the form, but not all of it.
fn begun(text: &[u8], form: &[u8]) -> usize {
    let longest = text.len().min(form.len() - 1);
    (1..=longest).rev().find(|length| text.ends_with(&form[..*length])).unwrap_or_default()
}

/// The ways in which a text may be written.
fn forms_of(secret: &str) -> Vec<String> {
    let json = secret.replace('\\', "\\\\").replace('"', "\\\"");
    let html = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut forms = vec![
        secret.to_owned(),
        json.replace('/', "\\/"),
        json,
        html.replace('"', "&quot;").replace('\'', "&#39;"),
        html.replace('"', "&#34;").replace('\'', "&#x27;"),
        html.replace('"', "&#34;").replace('\'', "&#39;"),
        html.replace('"', "&quot;").replace('\'', "&#x27;"),
        html.replace('"', "&quot;").replace('\'', "&#x27;").replace('+', "&#x2B;"),
        html.replace('"', "&quot;").replace('\'', "&#039;"),
        html,
        url::form_urlencoded::byte_serialize(secret.as_bytes()).collect(),
        utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
    ];
    for kept in [UNRESERVED, COMPONENT, PATH] {
        let form = utf8_percent_encode(secret, kept).to_string();
        forms.push(with_small_digits(&form));
        forms.push(form);
    }
    for (numbered, beyond_ascii) in NUMBERED {
        for unit in [small_unit, large_unit] {
            let form = as_json(secret, numbered, beyond_ascii, unit);
            forms.push(form.replace('/', "\\/"));
            forms.push(form);
        }
    }
    // Without the bytes after the last group of three, because more text may follow.
    let whole = &secret.as_bytes()[..secret.len() / 3 * 3];
    forms.push(STANDARD.encode(whole));
    forms.push(URL_SAFE.encode(whole));
    forms
        .extend([STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD].map(|by| by.encode(secret)));
    forms
}

/// The text within a JSON text. `unit` writes the characters that are escaped by number.
fn as_json(text: &str, numbered: &str, beyond_ascii: bool, unit: fn(u16) -> String) -> String {
    let mut json = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            _ if numbered.contains(character) || beyond_ascii && !character.is_ascii() => {
                let mut units = [0; 2];
                json.extend(character.encode_utf16(&mut units).iter().map(|one| unit(*one)));
            }
            '\\' => json.push_str("\\\\"),
            '"' => json.push_str("\\\""),
            '\t' => json.push_str("\\t"),
            other => json.push(other),
        }
    }
    json
}

fn small_unit(unit: u16) -> String {
    format!("\\u{unit:04x}")
}

fn large_unit(unit: u16) -> String {
    format!("\\u{unit:04X}")
}

/// The percent-encoded text with small hexadecimal digits.
fn with_small_digits(encoded: &str) -> String {
    let mut left = 0;
    let digit = |character: char| {
        if character == '%' {
            left = 2;
            return character;
        }
        if left == 0 {
            return character;
        }
        left -= 1;
        character.to_ascii_lowercase()
    };
    encoded.chars().map(digit).collect()
}

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KnownSecrets(***)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "s3cret/\"token\\ä'<&+ =~";

    fn check(secrets: &[&str], text: &str, expected: &str) {
        let known = KnownSecrets::new(secrets.iter().copied());
        assert_eq!(known.redact(text), expected, "{secrets:?} in {text:?}");
        let body = known.redact_body(text.into(), false);
        assert_eq!(String::from_utf8(body).unwrap(), expected, "{secrets:?} in {text:?}");
    }

    #[test]
    fn a_secret_is_replaced_wherever_it_is() {
        check(&[], "token", "token");
        check(&["token"], "", "");
        check(&["token"], "a token, and token", "a ***, and ***");
        check(&["token"], "tokentoken", "***");
        check(&["aaaa"], "baaaaaab", "b***b");
        check(&["abcd", "cdef"], "xabcdefx", "x***x");
        check(&["Bearer token", "token"], "Bearer token; token", "***; ***");
        check(&["abc", "de"], "abc de", "abc de");
        check(&["abc", "defg"], "abc defg", "abc ***");
    }

    #[test]
    fn a_secret_is_found_in_usual_encodings() {
        let known = KnownSecrets::new([SECRET]);
        let encoded = utf8_percent_encode(SECRET, UNRESERVED).to_string();
        let html = SECRET.replace('&', "&amp;").replace('<', "&lt;");
        for form in [
            serde_json::to_string(SECRET).unwrap().trim_matches('"').to_owned(),
            serde_json::to_string(SECRET).unwrap().trim_matches('"').replace('/', "\\/"),
            encoded.clone(),
            encoded.to_lowercase(),
            utf8_percent_encode(SECRET, PATH).to_string(),
            url::form_urlencoded::Serializer::new(String::new())
                .append_pair("a", SECRET)
                .finish()
                .split_off(2),
            html.replace('"', "&quot;").replace('\'', "&#39;"),
            STANDARD.encode(SECRET),
            URL_SAFE_NO_PAD.encode(SECRET),
        ] {
            assert_eq!(known.redact(&format!("[{form}]")), "[***]", "{form}");
        }
        let followed = STANDARD.encode(format!("{SECRET} and more"));
        let shown = known.redact(&followed).into_owned();
        assert!(shown.starts_with("***") && shown.len() < followed.len() / 2 + 3, "{shown}");
    }

    #[test]
    fn a_secret_is_found_as_writers_of_json_and_html_escape_it() {
        let known = KnownSecrets::new(["a+/<b>&='\"\\\tä=="]);
        for form in [
            // Go, Gson, Python, PHP, .NET.
            r#"a+/\u003cb\u003e\u0026='\"\\\tä=="#,
            r#"a+/\u003cb\u003e\u0026\u003d\u0027\"\\\tä\u003d\u003d"#,
            r#"a+/<b>&='\"\\\t\u00e4=="#,
            r#"a+\/<b>&='\"\\\t\u00e4=="#,
            r#"a\u002B/\u003Cb\u003E\u0026=\u0027\u0022\\\t\u00E4=="#,
        ] {
            assert_eq!(known.redact(&format!("[{form}]")), "[***]", "{form}");
        }
        let known = KnownSecrets::new(["q83v+/8="]);
        for form in ["q83v+/8=", r"q83v+/8\u003d", r"q83v\u002B/8=", r"q83v+\/8=", "q83v&#x2B;/8="]
        {
            assert_eq!(known.redact(&format!("[{form}]")), "[***]", "{form}");
        }
    }

    #[test]
    fn the_beginning_of_a_secret_at_a_cut_is_replaced_too() {
        let check = |text: &str, is_cut: bool, expected: &str| {
            let body = KnownSecrets::new(["token-1234"]).redact_body(text.into(), is_cut);
            assert_eq!(String::from_utf8(body).unwrap(), expected, "{text}");
        };
        check("a token-123", true, "a ***");
        check("a token-123", false, "a token-123");
        check("a t", true, "a ***");
        check("a token-1234", true, "a ***");
        check("a token-1234t", true, "a ***");
        check("a token-1234 t", true, "a *** ***");
        check("a token-12345", true, "a ***5");
        check("", true, "");
    }

    #[test]
    fn secrets_can_be_added_and_are_not_shown() {
        let none = KnownSecrets::default();
        assert!(none.is_empty() && none.and(["abc"]).is_empty());
        let both = none.and(["first"]).and(["second"]);
        assert_eq!(both.redact("first second third"), "*** *** third");
        assert_eq!(format!("{both:?}"), "KnownSecrets(***)");
    }

    proptest! {
        #[test]
        fn no_secret_is_left(
            secrets in prop::collection::vec("[ab]{4,6}", 1..3),
            text in "[abc]{0,40}",
            end in 0_usize..6,
        ) {
            let known = KnownSecrets::new(secrets.iter().map(String::as_str));
            let end = &secrets[0][..end.min(secrets[0].len())];
            let left = known.redact_body(format!("{text}{end}").into(), true);
            let left = String::from_utf8(left).unwrap();
            for secret in &secrets {
                prop_assert!(!left.contains(secret.as_str()), "{left} has {secret}");
                let is_begun = (1..secret.len()).any(|length| left.ends_with(&secret[..length]));
                prop_assert!(!is_begun, "{left} begins {secret}");
            }
        }
    }
}
