//! Checks the names of environment variables that begin with `DELAYD_`.

use std::net::IpAddr;

use toml::Table;

use super::error::Error;
use super::layers::{DEFAULTS, PREFIX, SEPARATOR, is_setting};

/// Refuses a variable that names a section and is not written like a setting, such as one with one
/// underscore instead of two. Returns a warning about other variables that begin with `DELAYD_`,
/// are not in `others`, and would have no effect.
///
/// Kubernetes sets variables about the services of the namespace in each container. Those of
/// services called `delayd` or `delayd-…` begin with `DELAYD_` as well, and are ignored.
///
/// # Errors
/// [`Error::Unexpected`], with the name of the setting.
pub fn check_variables(
    env: &[(String, String)],
    others: &[String],
) -> Result<Option<String>, Error> {
    let services = kubernetes_services(env);
    let mut unread = Vec::new();
    for (name, _) in env {
        let is_known = is_setting(name)
            || others.contains(name)
            || services.iter().any(|service| is_of(service, name));
        let words = name.to_lowercase();
        let words: Vec<_> = words.split('_').filter(|word| !word.is_empty()).collect();
        let [prefix, words @ ..] = &words[..] else { continue };
        if is_known || *prefix != PREFIX.to_lowercase() || !name.contains('_') {
            continue;
        }
        if let Some(setting) = setting_of(&DEFAULTS.table, &words.join("_")) {
            let setting = format!("{PREFIX}{SEPARATOR}{setting}").to_uppercase();
            let expected = format!("{setting}, with two underscores before each part");
            let got = "a name that no setting has; unset it if it is not meant for delayd".into();
            return Err(Error::Unexpected { key: name.clone(), expected, got });
        }
        unread.push(name.as_str());
    }
    let names = unread.join(", ");
    Ok((!unread.is_empty()).then(|| {
        format!(
            "Environment variables without effect: {names}. Settings are written \
             DELAYD__SECTION__KEY"
        )
    }))
}

/// The key in `table` that these words begin with, and what follows, as a variable writes it.
fn setting_of(table: &Table, words: &str) -> Option<String> {
    let begins = |key: &&String| {
        words.strip_prefix(*key).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let key = table.keys().filter(begins).max_by_key(|key| key.len())?;
    let rest = words[key.len()..].trim_start_matches('_');
    let inner = table[key].as_table().and_then(|inner| setting_of(inner, rest));
    match inner.as_deref().unwrap_or(rest) {
        "" => Some(key.clone()),
        rest => Some(format!("{key}{SEPARATOR}{rest}")),
    }
}

/// The prefixes of the variables of Kubernetes services: there is a `<service>_SERVICE_HOST` with
/// an address.
fn kubernetes_services(env: &[(String, String)]) -> Vec<&str> {
    let hosts = env.iter().filter(|(_, value)| value.parse::<IpAddr>().is_ok());
    hosts.filter_map(|(name, _)| name.strip_suffix("_SERVICE_HOST")).collect()
}

/// Whether Kubernetes sets this variable for the service.
fn is_of(service: &str, name: &str) -> bool {
    let rest = name.strip_prefix(service).and_then(|rest| rest.strip_prefix('_'));
    rest.is_some_and(|rest| {
        rest == "PORT" || rest.starts_with("PORT_") || rest.starts_with("SERVICE_")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let env: Vec<_> =
            variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        check_variables(&env, &["DELAYD_TOKEN".into(), "DELAYD_SERVER".into()])
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_variable_that_is_like_a_setting_is_told_how_that_is_written() {
        let check = |variable: &str, setting: &str| {
            let said = check(&[("PATH", "/bin"), (variable, "hush")]).expect_err(variable);
            let expected = format!("{variable}: expected {setting}, with two underscores");
            assert!(said.starts_with(&expected) && !said.contains("hush"), "{said}");
        };
        check("DELAYD_HTTP_BIND", "DELAYD__HTTP__BIND");
        check("DELAYD_HTTP__BIND", "DELAYD__HTTP__BIND");
        check("DELAYD__HTTP_BIND", "DELAYD__HTTP__BIND");
        check("delayd_http_bind", "DELAYD__HTTP__BIND");
        check("DELAYD_STORE_REDIS_URLS", "DELAYD__STORE__REDIS__URLS");
        check("DELAYD_STORE_REDIS_KEY_PREFIX", "DELAYD__STORE__REDIS__KEY_PREFIX");
        check("DELAYD_STORE_KNID", "DELAYD__STORE__KNID");
        check("DELAYD_SERVICES_FALLBACK_DNS", "DELAYD__SERVICES_FALLBACK__DNS");
        check("DELAYD_LOG", "DELAYD__LOG");
    }

    /// A chart that set `DELAYD_VERSION` stopped the service.
    #[test]
    fn others_are_named_in_one_warning() {
        let some = [("DELAYD_VERSION", "hush"), ("DELAYD_TOKEM", "hush"), ("DELAYD__X__Y", "hush")];
        let expected = "Environment variables without effect: DELAYD_VERSION, DELAYD_TOKEM, \
                        DELAYD__X__Y. Settings are written DELAYD__SECTION__KEY";
        assert_eq!(check(&some), Ok(Some(expected.into())));
    }

    #[test]
    fn what_is_read_passes() {
        for variable in [
            "DELAYD__HTTP__BIND",
            "delayd__http__bind",
            "DELAYD__HTTP__AUTH__ANONYMOUS",
            "DELAYD__CALLBACK__RETRY__BACKOFF__STEPS",
            // Refused later, when the settings are read, with a different message.
            "DELAYD__HTTP__BNID",
            "DELAYD__SERVICES__A__ENDPOINTS",
            "DELAYD_TOKEN",
            "DELAYDER",
            "DELAYD",
            "DELAY_X",
        ] {
            assert_eq!(check(&[(variable, "x")]), Ok(None), "{variable}");
        }
    }

    /// The variables of a pod beside services called "delayd", "delayd-redis" and "delayd-http".
    #[test]
    fn kubernetes_variables_pass() {
        let of = |service: &str| {
            let address = "tcp://10.96.0.7:7799";
            [
                ("SERVICE_HOST", "10.96.0.7"),
                ("SERVICE_PORT", "7799"),
                ("SERVICE_PORT_HTTP_API", "7799"),
                ("PORT", address),
                ("PORT_7799_TCP", address),
                ("PORT_7799_TCP_PROTO", "tcp"),
                ("PORT_7799_TCP_PORT", "7799"),
                ("PORT_7799_TCP_ADDR", "10.96.0.7"),
            ]
            .map(|(name, value)| (format!("{service}_{name}"), value.to_owned()))
        };
        let all = [of("DELAYD"), of("DELAYD_REDIS"), of("DELAYD_HTTP")].concat();
        assert_eq!(check_variables(&all, &[]).unwrap(), None);
        // Each belongs to an existing service.
        let host = ("DELAYD_SERVICE_HOST", "my-host");
        assert!(check(&[host, ("DELAYD_PORT_7799_TCP", "7799")]).unwrap().is_some());
        assert!(check(&[("DELAYD_HTTP_PORT", "7799")]).is_err());
    }
}
