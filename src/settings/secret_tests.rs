//! Tests of secret settings.

use super::tests::{folded, load};

/// The SHA-256 of "secret".
const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// A key of 24 bytes.
const KEY: &str = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0";

#[test]
fn tokens_secrets_and_hosts_are_read() {
    let text = format!(
        "[[http.auth.tokens]]\nname = 'shop'\ntoken_sha256 = '{HASH}'\nscopes = ['produce', \
         'consume']\ntopics = ['order.*']\nrate = '100/s'\n\
         [[http.auth.tokens]]\nname = 'operator'\ntoken_sha256 = '{}'\nscopes = ['admin']\n\
         topics = ['*']\n\
         [services.a]\nendpoints = ['http://a']\nsecrets = ['{KEY}', '{KEY}']\n\
         [services_fallback]\ndns = 'http://{{sn}}:8080'",
        HASH.replace('2', "3").to_uppercase(),
    );
    let env = [("DELAYD__CALLBACK__ALLOW_HOSTS", "*.example.com, 10.0.0.5:80")];
    let settings = load(&text, &["callback.deny_private_hosts=false"], &env).unwrap();
    let [shop, operator] = &settings.http.auth.tokens[..] else { panic!("{:?}", settings.http) };
    assert!(shop.token_sha256.0.is(&crate::model::token::TokenHash::of("secret")));
    assert_eq!(
        (shop.scopes.len(), shop.topics[0].0.to_string(), shop.rate),
        (2, "order.*".into(), "100/s".parse().ok())
    );
    assert_eq!((operator.name.as_str(), operator.rate), ("operator", None));
    assert!(operator.topics[0].0.is_all());
    assert_eq!(settings.services["a"].secrets.len(), 2);
    assert_eq!(
        (settings.callback.allow_hosts.len(), settings.callback.deny_private_hosts),
        (2, false)
    );
    assert!(settings.services_fallback.dns.is_some());
    assert_eq!(settings.http.warning(), None);
}

#[test]
fn bad_tokens_secrets_and_hosts_say_what_would_be_right_and_show_no_secret() {
    let token = |fields: &str| format!("http.auth.tokens = [{{ {fields} }}]");
    let good = format!("name = 'a', token_sha256 = '{HASH}'");
    let all = "topics = ['*']";
    let cases = [
        "http.auth.tokens = 'secret'".into(),
        "http.auth.tokens = ['secret']".into(),
        "http.auth = 'secret'".into(),
        token(&format!("name = 'a', token_sha256 = 'secret', scopes = ['admin'], {all}")),
        token(&format!("{good}, scopes = [], {all}")),
        token(&format!("{good}, scopes = ['root'], {all}")),
        token(&format!("{good}, {all}")),
        token(&format!("{good}, scopes = ['admin']")),
        token(&format!("{good}, scopes = ['admin'], topics = []")),
        token(&format!("{good}, scopes = ['admin'], topics = ['a b']")),
        token(&format!("{good}, scopes = ['admin'], {all}, rate = 'fast'")),
        token(&format!("{good}, scopes = ['admin'], {all}, token = 'secret'")),
        token(&format!("name = '', token_sha256 = '{HASH}', scopes = ['admin'], {all}")),
        format!(
            "http.auth.tokens = [{{ {good}, scopes = ['admin'], {all} }}, {{ {good}, scopes = \
             ['admin'], {all} }}]"
        ),
        format!(
            "http.auth.tokens = [{{ {good}, scopes = ['admin'], {all} }}, {{ {}, scopes = \
             ['admin'], {all} }}]",
            good.replace("'a'", "'b'")
        ),
        format!(
            "http.auth.anonymous = true\n{}",
            token(&format!("{good}, scopes = ['admin'], {all}"))
        ),
        "http.auth.anonymous = 'yes'".into(),
        "services.a = { endpoints = ['http://a'], secrets = ['whsec_c2VjcmV0'] }".into(),
        "services.a = { endpoints = ['http://a'], secrets = 'whsec_c2VjcmV0' }".into(),
        format!("services.'a b' = {{ endpoints = ['http://a'], secrets = ['{KEY}'] }}"),
        format!("services.'a:80' = {{ endpoints = ['http://a'], secrets = ['{KEY}'] }}"),
        format!("services.a = {{ endpoints = ['http://a'], secret = ['{KEY}'] }}"),
        "callback.allow_hosts = ['http://a']".into(),
        "callback.allow_hosts = ['a:b']".into(),
        "callback.deny_private_hosts = 'no'".into(),
        "services_fallback.dns = 'http://a:8080'".into(),
    ];
    let messages: Vec<_> =
        cases.iter().map(|toml: &String| load(toml, &[], &[]).expect_err(toml)).collect();
    for message in &messages {
        assert!(
            !message.contains("secret\"") && !message.contains("c2Vj") && !message.contains("2bb8"),
            "{message}"
        );
    }
    insta::assert_snapshot!(folded(&messages), @r#"
    test.toml: http.auth.tokens = *** must be a list
    test.toml: http.auth.tokens[0] = *** must be a section
    test.toml: http.auth = *** must be a section
    test.toml: http.auth.tokens[0].token_sha256 = *** must be the SHA-256 of the token as 64
        hexadecimal digits; `delayd token` makes both
    test.toml: http.auth.tokens[0].scopes = [] must hold "produce", "consume", "view" or
        "admin"
    test.toml: http.auth.tokens[0].scopes[0] = "root" must be "produce", "consume", "view"
        or "admin"
    test.toml: http.auth.tokens[0].scopes is missing
    test.toml: http.auth.tokens[0].topics is missing: name the topics, or ["*"] for all
    test.toml: http.auth.tokens[0].topics = [] must hold at least one, such as "order.*" or
        "*"
    test.toml: http.auth.tokens[0].topics[0] = "a b" must be 1 to 256 visible characters, of
        which * stands for any, such as "order.*"
    test.toml: http.auth.tokens[0].rate = "fast" must be a number from 1 to 1000000 with a
        unit of time, such as "100/s", "6000/m" or "500/h"
    test.toml: there is no setting http.auth.tokens[0].token; expected one of "name",
        "token_sha256", "scopes", "topics", "rate"
    test.toml: http.auth.tokens[0].name = "" must be 1 to 64 visible characters
    test.toml: http.auth.tokens[1].name = "a" is the name of another token already
    test.toml: http.auth.tokens[1].token_sha256 = *** is the hash of another token already
    test.toml: http.auth.anonymous = true must be false where http.auth.tokens has tokens:
        remove the one or the others
    test.toml: http.auth.anonymous = "yes" must be true or false
    test.toml: services.a.secrets[0] = *** must be "whsec_" and 24 to 64 bytes in base64, as
        `openssl rand -base64 32` makes them
    test.toml: services.a.secrets = *** must be a list
    test.toml: services."a b" = a section has a name that cannot be used: it must be 1 to
        128 characters out of A-Z a-z 0-9 . _ -
    test.toml: services."a:80" = a section has a name that cannot be used: it must be 1 to
        128 characters out of A-Z a-z 0-9 . _ -
    test.toml: there is no setting services.a.secret; expected one of "endpoints",
        "concurrency", "rate", "success", "headers", "secrets", "tls", "oauth"
    test.toml: callback.allow_hosts[0] = "http://a" must be a host, of which * stands for
        any characters, perhaps with a port: "*.example.com" or "10.0.0.5:8080"
    test.toml: callback.allow_hosts[0] = "a:b" must be a host, of which * stands for any
        characters, perhaps with a port: "*.example.com" or "10.0.0.5:8080"
    test.toml: callback.deny_private_hosts = "no" must be true or false
    test.toml: services_fallback.dns = "http://a:8080" must be an address with {sn} in its
        host, such as "http://{sn}:8080" or "http://{sn}.svc.cluster.local"
    "#);
    let env = load("", &[], &[("DELAYD__HTTP__AUTH__TOKENS", "secret")]).unwrap_err();
    assert!(!env.contains("secret"), "{env}");
}

#[test]
fn no_password_is_shown_anywhere() {
    let check = |toml: &str| {
        let shown = load(toml, &[], &[])
            .map_or_else(|e| e, |settings| format!("{settings:?} {}", settings.store.summary()));
        assert!(!shown.contains("secret"), "{shown}");
    };
    check("store.redis.urls = ['redis://me:secret@host']\nstore.kind = 'redis'");
    check("store.redis.urls = 'redis://me:secret@host'");
    check("store.redis.urls = ['redis://me:secret@host', 'redis://me:secret@other']");
    check("store.redis.urls = ['http://me:secret@host']");
    check("store.redis.urls = ['redis://me:secret@host/x']");
    check("store.redis.urls = ['redis://me:secret@host");
    check("store.redis.urls = {a = 'redis://me:secret@host'}");
    check("store.redis.url = 'redis://me:secret@host'");
    check("store.redis.urls = ['redis://host?sentinel_password=secret']");
    check(
        "store.redis = { topology = 'sentinel', master_name = 'm', urls = \
         ['redis://host?sentinel_password=secret'] }",
    );
    check("store.redis.urls = ['redis://host?sentinel_password=secret&x=1']");
    let settings = load(
        &format!(
            "http.auth.tokens = [{{ name = 'a', token_sha256 = '{HASH}', scopes = ['admin'], \
             topics = ['*'] }}]\nservices.a = {{ endpoints = ['http://a'], secrets = ['{KEY}'] }}"
        ),
        &[],
        &[],
    );
    let shown = format!("{:?}", settings.unwrap());
    assert!(
        !shown.contains("2bb8") && !shown.contains("c2Vj") && !shown.contains("43, 184"),
        "{shown}"
    );
    let error = load("", &["store.redis.urls=['redis://me:secret@host"], &[]).unwrap_err();
    assert!(!error.contains("secret"), "{error}");
}
