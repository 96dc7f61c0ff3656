//! Checks the names of environment variables. One that begins with `DELAYD_` but is not read is a
//! typo, such as one underscore instead of two, and would have no effect.

use std::net::IpAddr;

use super::error::Error;
use super::keys;
use super::layers::{PREFIX, SEPARATOR};

/// Refuses a variable that begins with `DELAYD_`, unless a setting reads it or it is in `others`.
///
/// Kubernetes sets variables about the services of the namespace in each container. Those of
/// services called `delayd` or `delayd-…` begin with `DELAYD_` as well, and are allowed.
///
/// # Errors
/// [`Error::Variable`], with the most similar known name.
pub fn check_variables(env: &[(String, String)], others: &[String]) -> Result<(), Error> {
    let services = kubernetes_services(env);
    let stray = env.iter().map(|(name, _)| name).find(|name| {
        let upper = name.to_uppercase();
        let is_ours = upper.starts_with(&format!("{PREFIX}_"));
        is_ours
            && !is_setting(&upper)
            && !others.contains(name)
            && !services.iter().any(|service| is_of(service, name))
    });
    let Some(variable) = stray else { return Ok(()) };
    let upper = variable.to_uppercase();
    let known = keys::leaves()
        .into_iter()
        .map(|key| format!("{PREFIX}{SEPARATOR}{}", key.join(SEPARATOR).to_uppercase()));
    let likeness = |name: &String| strsim::normalized_damerau_levenshtein(name, &upper);
    let nearest = known
        .chain(others.iter().cloned())
        .max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    Err(Error::Variable { variable: variable.clone(), nearest: nearest.unwrap_or_default() })
}

/// Services and tokens are settings as well. Reading the settings reports that variables cannot set
/// them.
fn is_setting(upper: &str) -> bool {
    let key = upper
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_prefix(SEPARATOR))
        .map(str::to_lowercase);
    key.is_some_and(|key| keys::kind_of(&key.split(SEPARATOR).collect::<Vec<_>>()).is_some())
}

/// The prefixes of the variables of Kubernetes services: there is a `<service>_SERVICE_HOST` with
/// an address.
fn kubernetes_services(env: &[(String, String)]) -> Vec<&str> {
    let hosts = env.iter().filter(|(_, value)| value.parse::<IpAddr>().is_ok());
    hosts.filter_map(|(name, _)| name.strip_suffix("_SERVICE_HOST")).collect()
}

/// Whether Kubernetes sets this variable for the service.
fn is_of(service: &str, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(service).and_then(|rest| rest.strip_prefix('_')) else {
        return false;
    };
    match rest {
        "SERVICE_HOST" | "SERVICE_PORT" | "PORT" => true,
        _ if rest.starts_with("SERVICE_PORT_") => true,
        _ => {
            let mut parts = rest.split('_');
            let is_port = parts.next() == Some("PORT")
                && parts.next().is_some_and(|number| number.parse::<u16>().is_ok())
                && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"));
            is_port
                && matches!(parts.next(), None | Some("PROTO" | "PORT" | "ADDR"))
                && parts.next().is_none()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)]) -> Result<(), String> {
        let env: Vec<_> =
            variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        check_variables(&env, &["DELAYD_TOKEN".into(), "DELAYD_SERVER".into()])
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_variable_that_nothing_reads_names_the_nearest_that_is_read() {
        let nearest = |variable: &str, expected: &str| {
            let said = check(&[("PATH", "/bin"), (variable, "secret")]).expect_err(variable);
            assert!(
                said.starts_with(&format!("{variable}: ")) && !said.contains("secret"),
                "{said}"
            );
            assert!(said.contains(&format!("the nearest is {expected}.")), "{said}");
        };
        nearest("DELAYD_HTTP_BIND", "DELAYD__HTTP__BIND");
        nearest("DELAYD_HTTP__BIND", "DELAYD__HTTP__BIND");
        nearest("DELAYD__HTTP_BIND", "DELAYD__HTTP__BIND");
        nearest("DELAYD__HTTP__BNID", "DELAYD__HTTP__BIND");
        nearest("delayd_http_bind", "DELAYD__HTTP__BIND");
        nearest("DELAYD_STORE_REDIS_URLS", "DELAYD__STORE__REDIS__URLS");
        nearest("DELAYD_TOKEM", "DELAYD_TOKEN");
        nearest("DELAYD_", "DELAYD_TOKEN");
    }

    #[test]
    fn what_is_read_passes() {
        for variable in [
            "DELAYD__HTTP__BIND",
            "delayd__http__bind",
            "DELAYD__HTTP__AUTH__ANONYMOUS",
            "DELAYD__CALLBACK__RETRY__BACKOFF__STEPS",
            // Refused when the settings are read, by a sentence of its own.
            "DELAYD__SERVICES__A__ENDPOINTS",
            "DELAYD_TOKEN",
            "DELAYDER",
            "DELAY_X",
        ] {
            assert_eq!(check(&[(variable, "x")]), Ok(()), "{variable}");
        }
    }

    /// What a pod sees beside services called "delayd" and "delayd-redis".
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
        let both = [of("DELAYD"), of("DELAYD_REDIS")].concat();
        assert!(check_variables(&both, &[]).is_ok());
        // Each belongs to a service that is there.
        for (name, value) in &both {
            let is_alone = !name.ends_with("_SERVICE_HOST");
            assert_eq!(check(&[(name, value)]).is_err(), is_alone, "{name}");
        }
        let host = ("DELAYD_SERVICE_HOST", "10.96.0.7");
        for stray in [
            "DELAYD_PORT_HTTP",
            "DELAYD_PORT_7799_TCP_X",
            "DELAYD_PORT_7799_TCP_ADDR_X",
            "DELAYD_HTTP_PORT",
            "DELAYD_SERVICE",
        ] {
            assert!(check(&[host, (stray, "7799")]).is_err(), "{stray}");
        }
        assert!(check(&[("DELAYD_SERVICE_HOST", "my-host")]).is_err());
    }
}
