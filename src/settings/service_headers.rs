//! `services.….headers`: the headers that delayd adds to each call of a service.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;

use super::error::{Error, dotted};
use super::named_files::NamedFiles;
use crate::callback::{SecretText, ServiceHeader, Unexpected, check_header_name};

/// The maximum number of headers of a service.
const MOST: usize = 32;

/// The headers of a service, by the names that the configuration writes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct ServiceHeaders(BTreeMap<String, SecretText>);

impl ServiceHeaders {
    /// The names, as written.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The headers to send.
    pub fn headers(&self) -> Vec<ServiceHeader> {
        let header = |(name, text): (&String, &SecretText)| {
            ServiceHeader::new(name, text.expose()).expect("the settings are valid")
        };
        self.0.iter().map(header).collect()
    }

    /// The files of values.
    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.0.values().filter_map(|text| Some(text.file()?.to_owned()))
    }

    /// Validates the names, and takes values from environment variables. Validates all values that
    /// are not in files.
    pub(super) fn take_variables<'a>(
        &mut self,
        service: &str,
        value_of: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<(), Error> {
        if self.0.len() > MOST {
            let (expected, got) = (format!("at most {MOST} headers"), self.0.len().to_string());
            let key = dotted(&["services", service, "headers"]);
            return Err(Error::Unexpected { key, expected, got });
        }
        let mut names = BTreeSet::new();
        for (name, text) in &mut self.0 {
            let wrong = |wrong: Unexpected| unexpected(service, name, wrong);
            let known = check_header_name(name).map_err(wrong)?;
            if !names.insert(known.as_str().to_owned()) {
                let (expected, got) = ("each header once".into(), format!("{known} again"));
                return Err(wrong(Unexpected { expected, got }));
            }
            text.take_variable(&value_of).map_err(wrong)?;
        }
        Ok(())
    }

    /// Takes values from files.
    pub(super) fn take_files(&mut self, service: &str, files: &NamedFiles) -> Result<(), Error> {
        for (name, text) in &mut self.0 {
            text.take_file(|path| files.text(path))
                .map_err(|wrong| unexpected(service, name, wrong))?;
        }
        Ok(())
    }
}

fn unexpected(service: &str, name: &str, wrong: Unexpected) -> Error {
    let name: String = name.chars().take(64).collect();
    let key = dotted(&["services", service, "headers", &name]);
    Error::Unexpected { key, expected: wrong.expected, got: wrong.got }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{folded, load};

    fn read(headers: &str) -> Result<Vec<String>, String> {
        let text =
            format!("[services.a]\nendpoints = ['http://a']\n[services.a.headers]\n{headers}");
        let env =
            [("SHOP_TOKEN", "Bearer from-env\n"), ("EMPTY", ""), ("LONG", &*"x".repeat(9_000))];
        load(&text, &[], &env).map(|settings| {
            let shown = format!("{settings:?}");
            assert!(!shown.contains("hush") && !shown.contains("from-env"), "{shown}");
            let texts = &settings.services["a"].headers.0;
            texts.iter().map(|(name, text)| format!("{name}: {}", text.expose())).collect()
        })
    }

    #[test]
    fn a_value_is_written_or_comes_from_a_variable_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "from-file\n").unwrap();
        let headers = format!(
            "X-Key = 'hush'\nauthorization = {{ env = 'SHOP_TOKEN' }}\nx-file.file = '{}'",
            file.display()
        );
        let expected = ["X-Key: hush", "authorization: Bearer from-env", "x-file: from-file"];
        assert_eq!(read(&headers).unwrap(), expected);
        let sets = [
            "services.a.endpoints=['http://a']",
            "services.a.headers.x-key=hush",
            "services.a.headers.rate={env='SHOP_TOKEN'}",
        ];
        let settings = load("", &sets, &[("SHOP_TOKEN", "1")]).unwrap();
        let headers = settings.services["a"].headers.headers();
        let names: Vec<_> = headers.iter().map(|header| header.name().as_str()).collect();
        assert_eq!(names, ["rate", "x-key"]);
    }

    #[test]
    fn wrong_headers_say_what_would_be_right_and_show_no_secret() {
        let many: String = (0..33).map(|n| format!("x-{n} = 'hush'\n")).collect();
        let cases = [
            "host = 'hush'",
            "Webhook-Id = 'hush'",
            "delay-topic = 'hush'",
            "content-length = 'hush'",
            "connection = 'hush'",
            "traceparent = 'hush'",
            "'x y' = 'hush'",
            "x-key = 'hush'\nX-Key = 'hush'",
            "x-key = ''",
            "x-key = \"hush\\nhush\"",
            "x-key = 'sécret'",
            "x-key = 5",
            "name = ['hush']",
            "x-key = {}",
            "x-key = { env = 'SHOP_TOKEN', file = '/hush' }",
            "x-key = { env = 'Bearer hush' }",
            "x-key = { env = 'MISSING' }",
            "x-key = { env = 'EMPTY' }",
            "x-key = { env = 'LONG' }",
            "x-key = { file = '' }",
            "x-key = { file = '/nowhere/token' }",
            "x-key = { file = '/' }",
            "x-key = { vault = 'hush' }",
            &many,
        ];
        let messages: Vec<_> =
            cases.iter().map(|headers| read(headers).expect_err(headers)).collect();
        for message in &messages {
            assert!(!message.contains("hush"), "{message}");
        }
        insta::assert_snapshot!(folded(&messages), @r#"
        services.a.headers.host: expected a header that delayd does not set itself, got "host"
        services.a.headers.Webhook-Id: expected a header that delayd does not set itself, got
            "Webhook-Id"
        services.a.headers.delay-topic: expected a header that delayd does not set itself, got
            "delay-topic"
        services.a.headers.content-length: expected a header that delayd does not set itself,
            got "content-length"
        services.a.headers.connection: expected a header that delayd does not set itself, got
            "connection"
        services.a.headers.traceparent: expected a header that delayd does not set itself, got
            "traceparent"
        services.a.headers."x y": expected the name of a header, such as x-api-key, got "x y"
        services.a.headers.x-key: expected each header once, got x-key again
        services.a.headers.x-key: expected one line of visible ASCII, got nothing
        services.a.headers.x-key: expected one line of visible ASCII, got more than one line
        services.a.headers.x-key: expected one line of visible ASCII, got other characters
        test.toml: services.a.headers.x-key = *** must be a string, { env = "NAME" } or { file =
            "/path" }
        test.toml: services.a.headers.name = *** must be a string, { env = "NAME" } or { file =
            "/path" }
        test.toml: services.a.headers.x-key = a section must be a string, { env = "NAME" } or {
            file = "/path" }
        test.toml: services.a.headers.x-key = a section must be a string, { env = "NAME" } or {
            file = "/path" }
        test.toml: services.a.headers.x-key = a section must have the name of an environment
            variable
        services.a.headers.x-key: expected one line of visible ASCII in the environment variable
            MISSING, got none
        services.a.headers.x-key: expected one line of visible ASCII in the environment variable
            EMPTY, got nothing
        services.a.headers.x-key: expected one line of visible ASCII in the environment variable
            LONG, got more than 8 KiB
        test.toml: services.a.headers.x-key = a section must have the path of a file
        services.a.headers.x-key: expected one line of visible ASCII in the file /nowhere/token,
            got No such file or directory (os error 2)
        services.a.headers.x-key: expected one line of visible ASCII in the file /, got Is a
            directory (os error 21)
        test.toml: there is no setting services.a.headers.x-key.vault; expected "env" or "file"
        services.a.headers: expected at most 32 headers, got 33
        "#);
    }
}
