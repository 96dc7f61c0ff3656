//! Tests of all settings together.

use super::*;

pub(super) fn load(toml: &str, sets: &[&str], env: &[(&str, &str)]) -> Result<Settings, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test.toml");
    std::fs::write(&file, toml).unwrap();
    let sets: Vec<_> = sets.iter().map(ToString::to_string).collect();
    let env = env.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let folder = format!("{}/", folder.path().display());
    Settings::load(&[file], &sets, env).map_err(|e| e.to_string().replace(&folder, ""))
}

#[track_caller]
pub(super) fn check(toml: &str, expected: &str) {
    assert_eq!(load(toml, &[], &[]).unwrap_err(), expected);
}

/// The messages, one after the other, in lines of at most 88 columns.
pub(super) fn folded(messages: &[String]) -> String {
    let fold = |message: &String| {
        let (mut text, mut width) = (String::new(), 0);
        for word in message.split(' ') {
            let length = word.chars().count();
            if width > 0 && width + 1 + length > 88 {
                text.push_str("\n    ");
                width = 4;
            } else if width > 0 {
                text.push(' ');
                width += 1;
            }
            text.push_str(word);
            width += length;
        }
        text
    };
    messages.iter().map(fold).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_defaults_are_valid_and_those_of_the_contract() {
    let settings = Settings::load(&[], &[], std::iter::empty()).unwrap();
    assert_eq!(settings.http.bind.to_string(), "127.0.0.1:7799");
    assert_eq!(settings.store.kind, StoreKind::Embedded);
    assert_eq!(settings.store.summary(), "embedded, data/delayd.db");
    // See docs/adr/0013-claims-of-64.md.
    assert_eq!(settings.worker.claim_batch, 64);
    assert_eq!(settings.limits.body.bytes(), 1 << 20);
    assert_eq!(settings.limits.content.bytes(), 256 << 10);
    assert_eq!(settings.callback.retry.backoff, delayd_wire::Backoff::default());
    assert_eq!(settings.callback.breaker, crate::model::breaker::Params::default());
    assert!(settings.services.is_empty());
}

#[test]
fn the_defaults_document_every_key() {
    let mut comment = String::new();
    let mut documented = 0;
    for line in DEFAULTS.lines() {
        if line.starts_with('#') {
            comment.push_str(line);
        } else if let Some((key, _)) = line.split_once(" = ") {
            assert!(
                comment.contains(". ") || comment.contains(".#"),
                "{key} has no sentence above it"
            );
            assert!(comment.contains("# Range: "), "{key} has no range above it");
            comment.clear();
            documented += 1;
        } else {
            comment.clear();
        }
    }
    fn leaves(table: &toml::Table) -> usize {
        table.values().map(|value| value.as_table().map_or(1, leaves)).sum()
    }
    assert_eq!(
        documented,
        leaves(&toml::from_str(DEFAULTS).unwrap()),
        "a key stands on a line of its own"
    );
}

#[test]
fn the_development_file_maps_the_services_of_the_examples() {
    let settings = load(include_str!("../../config/dev.toml"), &[], &[]).unwrap();
    let endpoints: Vec<_> = settings
        .services
        .iter()
        .map(|(name, s)| (name.as_str(), s.endpoints[0].as_str()))
        .collect();
    assert_eq!(
        endpoints,
        [("message.call", "http://127.0.0.1:9000"), ("other.server", "http://127.0.0.1:9000")]
    );
}

#[test]
fn later_layers_win() {
    let file = "[worker]\nlease = '10s'\nidle_stop = '10s'\nclaim_batch = 10";
    let env = [
        ("DELAYD__WORKER__LEASE", "20s"),
        ("DELAYD__WORKER__IDLE_STOP", "20"),
        ("DELAYD_SERVER", "x"),
    ];
    let settings = load(file, &["worker.lease=30s", "worker.lease=40s"], &env).unwrap();
    assert_eq!(settings.worker.lease, delayd_wire::Span::seconds(40));
    assert_eq!(settings.worker.idle_stop, delayd_wire::Span::seconds(20));
    assert_eq!(settings.worker.claim_batch, 10);
    assert!(settings.worker.enabled);
}

#[test]
fn the_environment_reads_each_key_as_its_kind() {
    let env = [
        ("DELAYD__STORE__KIND", "redis"),
        ("DELAYD__STORE__REDIS__URLS", "redis://a:1"),
        ("DELAYD__STORE__REDIS__KEY_PREFIX", "1,true"),
        ("DELAYD__CALLBACK__RETRY__FINAL_STATUSES", "404, 410"),
        ("DELAYD__CALLBACK__RETRY__BACKOFF__FACTOR", "3"),
        ("DELAYD__WORKER__ENABLED", "false"),
        ("DELAYD__LIMITS__BATCH", "7"),
        ("DELAYD__LIMITS__BODY", "2MiB"),
    ];
    let settings = load("", &[], &env).unwrap();
    assert_eq!(settings.store.summary(), "redis, standalone redis://a:1, keys 1,true:*");
    assert_eq!(settings.callback.retry.final_statuses, [404, 410]);
    assert!(!settings.worker.enabled);
    assert_eq!((settings.limits.batch, settings.limits.body.bytes()), (7, 2 << 20));
    let one = load("", &[], &[("DELAYD__CALLBACK__RETRY__FINAL_STATUSES", "404")]).unwrap();
    assert_eq!(one.callback.retry.final_statuses, [404]);
    let none = load("", &[], &[("DELAYD__CALLBACK__RETRY__FINAL_STATUSES", "")]).unwrap();
    assert!(none.callback.retry.final_statuses.is_empty());
}

#[test]
fn a_set_takes_toml_and_bare_words() {
    let sets = [
        "http.bind=0.0.0.0:80",
        "services.\"Message.Call\".endpoints=['http://a:1/x/', 'https://b']",
        "services.\"Message.Call\".success = status",
        "services.\"Message.Call\".rate=100/s",
        "callback.retry.final_statuses=[]",
        "callback.retry.backoff={kind='list', steps=[1, '5m']}",
    ];
    let settings = load("", &sets, &[]).unwrap();
    assert_eq!(settings.http.bind.port(), 80);
    let service = &settings.services["Message.Call"];
    assert_eq!(
        service.endpoints.iter().map(BaseUrl::as_str).collect::<Vec<_>>(),
        ["http://a:1/x", "https://b"]
    );
    assert_eq!((service.concurrency, service.success.to_string()), (0, "status".into()));
    assert_eq!(service.rate, "100/s".parse().ok());
    let check =
        |set: &str, expected: &str| assert_eq!(load("", &[set], &[]).unwrap_err(), expected);
    let form = "expected section.key=value, such as worker.lease=30s, got";
    check("http.bind", &format!("--set http.bind: {form} no value"));
    check("bind=1", &format!("--set bind: {form} no key of a section"));
    check("=1", &format!("--set : {form} no key of a section"));
    check("a.b\nc.d=1", &format!("--set a.b\nc.d: {form} no key of a section"));
    check(
        "worker.lease=\"30s",
        "--set worker.lease: expected a value in TOML, got invalid basic string, expected `\"`",
    );
    check(
        "worker.lease=",
        "--set: worker.lease = \"\" must be a number of seconds or a whole number with one of \
         the units ms, s, m, h and d, such as \"1500ms\", \"10s\", \"5m\", \"2h\" or \"7d\"",
    );
}

#[test]
fn another_kind_of_backoff_starts_anew() {
    let fixed = load("[callback.retry.backoff]\nkind = 'fixed'\nevery = '30s'", &[], &[]).unwrap();
    assert_eq!(fixed.callback.retry.backoff.wait(1, 0.0).as_secs(), 30);
    let sets = ["callback.retry.backoff.kind=fixed", "callback.retry.backoff.every=5"];
    assert_eq!(load("", &sets, &[]).unwrap().callback.retry.backoff.wait(1, 0.0).as_secs(), 5);
    // The same kind inherits from earlier layers.
    let base =
        load("callback.retry.backoff.base = '4s'", &["callback.retry.backoff.jitter=0"], &[])
            .unwrap();
    assert_eq!(base.callback.retry.backoff.wait(2, 1.0).as_secs(), 8);
}

#[test]
fn unknown_keys_are_told_the_known_ones() {
    const OF_SERVICE: &str = "\"endpoints\", \"concurrency\", \"rate\", \"success\", \"headers\", \
                              \"secrets\", \"tls\", \"oauth\"";
    let http = "there is no setting http.bnd; expected one of \"bind\", \"public_origins\", \
                \"tls\", \"auth\"";
    check("[http]\nbnd = 1", &format!("test.toml: {http}"));
    let said = |sets: &[&str], env: &[(&str, &str)]| load("", sets, env).unwrap_err();
    assert_eq!(said(&["http.bnd=hush"], &[]), format!("--set: {http}"));
    let name = "DELAYD__HTTP__BND";
    assert_eq!(said(&[], &[(name, "hush")]), format!("{name}: {http}"));
    check(
        "[wroker]\nlease = 1",
        "test.toml: there is no setting wroker; expected one of \"http\", \"store\", \"worker\", \
         \"callback\", \"services\", \"services_fallback\", \"limits\", \"history\", \
         \"objective\", \"trace\", \"shutdown\", \"log\"",
    );
    // `config` would read these names as paths.
    for name in ["log[3]", "services.pay", "log[", ""] {
        let said = load(&format!("{name:?} = 1"), &[], &[]).unwrap_err();
        assert!(said.starts_with("test.toml: there is no setting "), "{name}: {said}");
    }
    check(
        "[services.\"message.call\"]\nendpoint = []",
        &format!(
            "test.toml: there is no setting services.\"message.call\".endpoint; expected one of \
             {OF_SERVICE}"
        ),
    );
    let hint = |key: &str, name: &str| {
        format!(
            "test.toml: there is no setting {key}; expected one of {OF_SERVICE}; the name of a \
             service with a dot is written in quotes, such as services.\"{name}\""
        )
    };
    let endpoints = "endpoints = ['http://a']";
    check(
        &format!("[services.message.call]\n{endpoints}"),
        &hint("services.message.call", "message.call"),
    );
    check(&format!("[services]\na.b.c.{endpoints}"), &hint("services.a.b", "a.b"));
    let set = said(&["services.message.call.endpoints=['http://a']"], &[]);
    assert_eq!(set, hint("services.message.call", "message.call").replace("test.toml", "--set"));
}

#[test]
fn variables_that_cannot_be_settings_are_refused() {
    let check = |variable: &str, says: &str| {
        let said = load("", &[], &[(variable, "hush")]).unwrap_err();
        assert_eq!(said, format!("{variable}: expected {says}, got this variable"));
    };
    let elsewhere = "services and tokens in a file or in --set";
    check("DELAYD__SERVICES__A__ENDPOINTS", elsewhere);
    check("DELAYD__HTTP__AUTH__TOKENS", elsewhere);
    check("DELAYD__WORKER", "a variable for each key of this section");
    let parts = "letters, digits and underscores in each part of the name";
    for variable in ["DELAYD__LOG__LEVEL[1]", "DELAYD__LOG__A.B", "DELAYD__LOG____X"] {
        check(variable, parts);
    }
    assert!(load("", &[], &[("DELAYD__X__Y", "x"), ("DELAYD_VERSION", "1")]).is_ok());
}

/// The part after the first `/`, `#` or `?` of a password was parsed as the rest of the address.
#[test]
fn a_password_with_special_characters_is_to_be_percent_encoded() {
    for password in ["p@s/s", "p#x", "p/x", "p?x", "12/0", "@/@"] {
        let said =
            load(&format!("store.redis.urls = ['redis://:{password}@host:6379/0']"), &[], &[])
                .unwrap_err();
        let hint = "percent-encode special characters of user and password: @ as %40, / as %2F, \
         # as %23, ? as %3F";
        assert!(said.ends_with(hint), "{said}");
    }
    let plain = load("store.redis.urls = ['host:6379']", &[], &[]).unwrap_err();
    assert!(plain.ends_with("[/db]\""), "{plain}");
}

#[test]
fn bad_values_say_what_would_be_right() {
    let cases = [
        "http = 3",
        "http.bind = 'localhost'",
        "store.kind = 'mysql'",
        "store.embedded.path = ''",
        "store.redis.topology = 'ring'",
        "store.redis.urls = []",
        "store.redis.urls = ['redis://a', 'redis://b']",
        "store.redis.urls = ['http://a']",
        "store.redis = { topology = 'cluster', urls = ['redis://a', 'rediss://b'] }",
        "store.redis.tls.ca = 'ca.pem'",
        "store.redis = { urls = ['rediss://a'], tls.client_cert = 'a.pem' }",
        "store.redis = { urls = ['rediss://a'], tls.client_key = '-----BEGIN PRIVATE KEY-----' }",
        "store.redis = { urls = ['rediss://a'], tls.server_name = 'a:1' }",
        "http.tls.key = 'key.pem'",
        "store.redis.key_prefix = 'a{b}'",
        "store.redis.timeout = '2m'",
        "store.redis = { topology = 'sentinel' }",
        "store.redis = { topology = 'cluster', master_name = 'main' }",
        "store.redis = { topology = 'cluster', urls = [] }",
        "store.redis = { topology = 'cluster', urls = ['redis://a/1'] }",
        "store.redis = { topology = 'cluster', urls = ['redis://a', 'redis://:secret@b'] }",
        "store.redis.urls = ['redis://a?protocol=resp3']",
        "store.redis.urls = ['redis://a?sentinel_password=secret']",
        "store.redis.wait_replicas = 17",
        "store.redis.breaker.open = '1m'",
        "worker.enabled = 'maybe'",
        "worker.lease = '1s'",
        "worker.lease = '13h'",
        "worker.lease = 'soon'",
        "store = { kind = 'redis', redis.timeout = '30s' }",
        "worker.claim_batch = 0",
        "worker.claim_batch = 1.7",
        "worker.claim_batch = true",
        "worker.claim_batch = -1",
        "callback.timeout = '11m'",
        "callback.connect_timeout = '2m'",
        "callback.concurrency = 0",
        "callback.retry.max_attempts = 0",
        "callback.retry.max_attempts = 5000000000",
        "callback.retry.final_statuses = [200]",
        "callback.retry.final_statuses = ['gone']",
        "callback.breaker.failure_ratio = 0",
        "callback.breaker.min_calls = 0",
        "callback.breaker.open = '2m'",
        "callback.breaker.open_max = '2h'",
        "callback.breaker.half_open_probes = 0",
        "callback.retry.backoff.jitter = 2",
        "callback.retry.backoff.base = '1d'",
        "callback.retry.backoff.every = '1d'",
        "callback.retry.backoff.kind = 'random'",
        "callback.retry.backoff.kind = 'list'",
        "services.a.concurrency = 1",
        "services.a.endpoints = []",
        "services.a.endpoints = ['a:80']",
        "services.a.endpoints = ['/a']",
        "services.a.endpoints = ['http://a?b']",
        "services.a.endpoints = ['http://me:secret@a']",
        "services.'a b'.endpoints = ['http://a']",
        "services.a = { endpoints = ['http://a'], concurrency = 20000000 }",
        "services.a = { endpoints = ['http://a'], rate = '5 calls' }",
        "services.a = { endpoints = ['http://a'], success = 'always' }",
        "limits.body = 'big'",
        "limits.body = 100",
        "limits.content = '2MiB'",
        "limits.body = '100KiB'",
        "history.keep = 0",
        "shutdown.delay = '1h'",
        "shutdown.grace = '1h'",
        "log.level = 'inof'",
        "log.format = 'xml'",
        "[http",
        "store.redis.urls = ['redis://:secret@a",
    ];
    let messages: Vec<_> = cases.iter().map(|toml| load(toml, &[], &[]).expect_err(toml)).collect();
    insta::assert_snapshot!(folded(&messages), @r#"
    test.toml: http = 3 must be a section
    test.toml: http.bind = "localhost" must be an IP address and a port, such as
        "127.0.0.1:7799" or "[::1]:7799"
    test.toml: store.kind = "mysql" must be "embedded" or "redis"
    test.toml: store.embedded.path = "" must be the path of a file
    test.toml: store.redis.topology = "ring" must be one of "standalone", "sentinel",
        "cluster"
    test.toml: store.redis.urls = *** must be a list of exactly one address for the topology
        "standalone"
    test.toml: store.redis.urls = *** must be a list of exactly one address for the topology
        "standalone"
    test.toml: store.redis.urls[0] = *** must be
        "redis(s)://[user:password@]host[:port][/db]"
    test.toml: store.redis.urls = *** must all begin with redis://, or all with rediss://
    test.toml: store.redis.tls.ca = "ca.pem" goes only with addresses that begin with
        rediss://
    test.toml: store.redis.tls.client_cert = "a.pem" goes only with client_key
    test.toml: store.redis.tls.client_key = *** must be the path of a PEM file, not its
        content
    test.toml: store.redis.tls.server_name = "a:1" must be a host name or an IP address,
        without a port
    test.toml: http.tls.key = *** goes only with cert
    test.toml: store.redis.key_prefix = "a{b}" must be 1 to 64 characters without braces and
        spaces
    test.toml: store.redis.timeout = "2m" must be from 10ms to 60s
    built-in defaults: store.redis.master_name = "" must be what the sentinels call the
        primary, for the topology "sentinel"
    test.toml: store.redis.master_name = "main" goes only with the topology "sentinel"
    test.toml: store.redis.urls = *** must be a list of 1 to 32 addresses
    test.toml: store.redis.urls = *** must name no database: a cluster has but 0
    test.toml: store.redis.urls = *** must all have the same user, password and database
    test.toml: store.redis.urls[0] = *** may be followed by nothing but
        ?sentinel_username=…&sentinel_password=…
    test.toml: store.redis.urls = *** may have sentinel_username and sentinel_password only
        for the topology "sentinel"
    test.toml: store.redis.wait_replicas = 17 must be from 0 to 16
    test.toml: store.redis.breaker.open = "1m" must not be longer than
        store.redis.breaker.open_max
    test.toml: worker.enabled = "maybe" must be true or false
    test.toml: worker.lease = "1s" must be longer than 1s and at most 12h
    test.toml: worker.lease = "13h" must be longer than 1s and at most 12h
    test.toml: worker.lease = "soon" must be a number of seconds or a whole number with one
        of the units ms, s, m, h and d, such as "1500ms", "10s", "5m", "2h" or "7d"
    built-in defaults: worker.lease = "30s" must be longer than store.redis.timeout (30s)
    test.toml: worker.claim_batch = 0 must be from 1 to 4096
    test.toml: worker.claim_batch = 1.7 must be a whole number, 0 or more
    test.toml: worker.claim_batch = true must be a whole number, 0 or more
    test.toml: worker.claim_batch = -1 must be a whole number, 0 or more
    test.toml: callback.timeout = "11m" must be from 100ms to 10m
    test.toml: callback.connect_timeout = "2m" must be from 10ms to 60s
    test.toml: callback.concurrency = 0 must be from 1 to 1000000
    test.toml: callback.retry.max_attempts = 0 must be from 1 to 1000
    test.toml: callback.retry.max_attempts = 5000000000 must be a whole number from 0 to
        4294967295
    test.toml: callback.retry.final_statuses = [200] must be a list of HTTP statuses from
        300 to 599
    test.toml: callback.retry.final_statuses[0] = "gone" must be a whole number from 0 to
        65535
    test.toml: callback.breaker.failure_ratio = 0 must be from 0.01 to 1
    test.toml: callback.breaker.min_calls = 0 must be from 1 to 1000000
    test.toml: callback.breaker.open = "2m" must not be longer than
        callback.breaker.open_max
    test.toml: callback.breaker.open_max = "2h" must be from 10ms to 1h
    test.toml: callback.breaker.half_open_probes = 0 must be from 1 to 1000
    test.toml: callback.retry.backoff.jitter = 2 must be from 0 to 1
    test.toml: callback.retry.backoff.base = "1d" must be at most max, 3h
    test.toml: there is no setting callback.retry.backoff.every; expected one of "base",
        "factor", "max", "jitter" for the kind beside it
    test.toml: callback.retry.backoff.kind = "random" must be one of "exponential", "fixed",
        "list"
    test.toml: callback.retry.backoff.steps is missing
    test.toml: services.a.endpoints is missing
    test.toml: services.a.endpoints = [] must hold at least one address
    test.toml: services.a.endpoints[0] = "a:80" must begin with http:// or https://
    test.toml: services.a.endpoints[0] = "/a" must be an absolute address, such as
        "http://10.0.0.5:8080"
    test.toml: services.a.endpoints[0] = *** must have no query (?…) and no fragment (#…)
    test.toml: services.a.endpoints[0] = *** must hold no user and no password
    test.toml: services."a b" = a section has a name that cannot be used: it must be 1 to
        128 characters out of A-Z a-z 0-9 . _ -
    test.toml: services.a.concurrency = 20000000 must be from 0 to 1000000
    test.toml: services.a.rate = "5 calls" must be a number from 1 to 1000000 with a unit of
        time, such as "100/s", "6000/m" or "500/h"
    test.toml: services.a.success = "always" must be "dm_error", "status", or a table such
        as { pointer = "/code", equals = [0] }
    test.toml: limits.body = "big" must be a number of bytes or a string with a unit, such
        as "256KiB" or "1MiB"
    test.toml: limits.body = 100 must be from 1.0 KiB to 64.0 MiB
    test.toml: limits.content = "2MiB" must not be larger than limits.body (1.0 MiB)
    built-in defaults: limits.content = "256KiB" must not be larger than limits.body (100.0
        KiB)
    test.toml: history.keep = 0 must be from 1s to 3650d
    test.toml: shutdown.delay = "1h" must be from 0s to 10m
    test.toml: shutdown.grace = "1h" must be from 0s to 10m
    test.toml: log.level = "inof" must be off, error, warn, info, debug or trace, or
        directives such as "info,delayd=debug": "inof" is no level
    test.toml: log.format = "xml" must be "text" or "json"
    test.toml, line 1, column 6: unclosed table, expected `]`
    test.toml, line 1, column 39: unclosed array, expected `]`
    "#);
}

#[test]
fn a_missing_file_is_named() {
    let error = Settings::load(&["/nowhere/delayd.toml".into()], &[], std::iter::empty())
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "cannot read the configuration file /nowhere/delayd.toml: No such file or directory (os \
         error 2)"
    );
}
