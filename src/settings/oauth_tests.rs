//! Tests of `services.….oauth`.

use std::path::Path;

use super::tests::{folded, load};
use crate::callback::OAuthParams;

fn read(oauth: &str) -> Result<OAuthParams, String> {
    let text = format!("[services.a]\nendpoints = ['https://a']\n[services.a.oauth]\n{oauth}");
    load(&text, &[], &[("SECRET", "from-env\n")]).map(|settings| {
        let shown = format!("{settings:?}");
        assert!(!shown.contains("hush"), "{shown}");
        settings.services["a"].oauth.clone().unwrap()
    })
}

#[test]
fn a_secret_is_written_or_comes_from_a_variable_or_a_file() {
    let with = |secret: &str| {
        read(&format!("token_url = 'https://i/t?x=hush'\nclient_id = 'me'\n{secret}")).unwrap()
    };
    let params = with("client_secret = 'hush'\nscope = 'a b'");
    assert_eq!(params.client_secret.expose(), "hush");
    assert_eq!(params.token_url, "https://i/t?x=hush");
    assert_eq!((params.client_id.as_str(), params.scope.as_deref()), ("me", Some("a b")));
    let params = with("client_secret = { env = 'SECRET' }");
    assert_eq!(params.client_secret.expose(), "from-env");
    assert_eq!(params.scope, None);
    let params = with("client_secret.file = '/run/secret'");
    assert_eq!(params.client_secret.file(), Some(Path::new("/run/secret")));
}

#[test]
fn wrong_sections_say_what_would_be_right_and_show_no_secret() {
    let base = "token_url = 'https://i/t'\nclient_id = 'me'\n";
    let cases = [
        "client_id = 'me'\nclient_secret = 'hush'".to_owned(),
        "token_url = 'https://i/t'\nclient_secret = 'hush'".into(),
        base.into(),
        format!("{base}client_secret = ''"),
        format!("{base}client_secret = 5"),
        format!("{base}client_secret = ['hush']"),
        format!("{base}client_secret = {{}}"),
        format!("{base}client_secret = {{ env = 'A', file = '/hush' }}"),
        format!("{base}client_secret = {{ env = 'hush hush' }}"),
        format!("{base}client_secret = {{ env = 'MISSING' }}"),
        format!("{base}client_secret = {{ vault = 'hush' }}"),
        format!("{base}client_secret = 'hush'\nscope = 'a\"b'"),
        format!("{base}client_secret = 'hush'\ngrant = 'password'"),
        "token_url = 'i/t'\nclient_id = 'me'\nclient_secret = 'hush'".into(),
        "token_url = 'ftp://i/t'\nclient_id = 'me'\nclient_secret = 'hush'".into(),
        "token_url = 'https://me:hush@i/t'\nclient_id = 'me'\nclient_secret = 'hush'".into(),
        "token_url = 'https://i/t#x'\nclient_id = 'me'\nclient_secret = 'hush'".into(),
        "token_url = 'https://i/t?key=hush#x'\nclient_id = 'me'\nclient_secret = 'hush'".into(),
        "token_url = 'https://i/t'\nclient_id = ''\nclient_secret = 'hush'".into(),
    ];
    let messages: Vec<_> = cases.iter().map(|oauth| read(oauth).expect_err(oauth)).collect();
    for message in &messages {
        assert!(!message.contains("hush"), "{message}");
    }
    insta::assert_snapshot!(folded(&messages), @r#"
    test.toml: services.a.oauth.token_url is missing
    test.toml: services.a.oauth.client_id is missing
    test.toml: services.a.oauth.client_secret is missing
    services.a.oauth.client_secret: expected one line of visible ASCII, got nothing
    test.toml: services.a.oauth.client_secret = *** must be a string, { env = "NAME" } or {
        file = "/path" }
    test.toml: services.a.oauth.client_secret = *** must be a string, { env = "NAME" } or {
        file = "/path" }
    test.toml: services.a.oauth.client_secret = a section must be a string, { env = "NAME" }
        or { file = "/path" }
    test.toml: services.a.oauth.client_secret = a section must be a string, { env = "NAME" }
        or { file = "/path" }
    test.toml: services.a.oauth.client_secret = a section must have the name of an
        environment variable
    services.a.oauth.client_secret: expected one line of visible ASCII in the environment
        variable MISSING, got none
    test.toml: there is no setting services.a.oauth.client_secret.vault; expected "env" or
        "file"
    test.toml: services.a.oauth.scope = "a\"b" must be scopes of visible ASCII, separated by
        spaces; at most 1024 bytes
    test.toml: there is no setting services.a.oauth.grant; expected one of "token_url",
        "client_id", "client_secret", "scope"
    test.toml: services.a.oauth.token_url = *** must be an absolute address, such as
        "https://login.example.com/token"
    test.toml: services.a.oauth.token_url = *** must begin with http:// or https://
    test.toml: services.a.oauth.token_url = *** must hold no user and no password
    test.toml: services.a.oauth.token_url = *** must have no fragment (#…)
    test.toml: services.a.oauth.token_url = *** must have no fragment (#…)
    test.toml: services.a.oauth.client_id = "" must be 1 to 1024 bytes, without control
        characters
    "#);
}
