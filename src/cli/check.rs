//! `delayd check`: checks the configuration, the address and the store without changing anything.

use super::{Code, output, table};
use crate::app::check::{CheckResult, calls, check, warnings};
use crate::callback::SuccessRule;
use crate::model::zone;
use crate::settings::{Settings, StoreKind};

/// Check the configuration, the address and the store, and report what is wrong.
///
/// Nothing is written: no file is created and no lock is taken, so it can run beside a running
/// delayd. Run it as the same user as delayd: the permissions of that user decide whether the
/// embedded file can be written.
///
/// Exit codes: 0 ok, 1 the store does not answer, 78 the configuration is wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd check --config /etc/delayd.toml
  delayd check --config /etc/delayd.toml --offline
  DELAYD__STORE__KIND=redis delayd check")]
pub(super) struct Args {
    /// Check only the configuration, not the store or the address
    #[arg(long)]
    offline: bool,
}

/// `unread` is a warning about environment variables.
pub(super) async fn run(
    args: &Args,
    settings: &Settings,
    unread: Option<String>,
) -> anyhow::Result<Code> {
    let (calls, too_few_files) = calls(settings);
    output::line(&summary(settings, calls))?;
    settings.http.ensure_guarded()?;
    warn(&[Vec::from_iter(unread), warnings(settings), too_few_files].concat())?;
    if args.offline {
        output::line("not looked at  the address and the store (--offline)")?;
        return Ok(Code::Done);
    }
    let CheckResult { store, warnings } = check(settings).await.map_err(|error| {
        let waits = settings.store.kind == StoreKind::Redis && error.is_store_away();
        let verdict = if waits { "a start would wait for the store" } else { "a start would fail" };
        anyhow::Error::new(error).context(format!("{verdict} ({})", settings.store.summary()))
    })?;
    output::line(&format!("store answers  {store}"))?;
    warn(&warnings)?;
    Ok(Code::Done)
}

fn warn(warnings: &[String]) -> std::io::Result<()> {
    warnings.iter().try_for_each(|warning| output::line(&format!("WARNING        {warning}")))
}

/// `calls` may run at a time.
fn summary(settings: &Settings, calls: usize) -> String {
    let Settings { http, callback, worker, services, trace, .. } = settings;
    let notice = match http.auth.tokens.len() {
        0 => String::new(),
        count => format!(", tokens: {count}"),
    };
    let work = if worker.enabled { format!("yes, lease {}", worker.lease) } else { "no".into() };
    let half = match calls < callback.concurrency {
        true => " (half of the limit of open files here)",
        false => "",
    };
    let calls = format!(
        "{calls} at most{half}, {} per service, timeout {}, {} attempts",
        callback.concurrency_per_service, callback.timeout, callback.retry.max_attempts
    );
    let mut pairs = vec![
        ("configuration", "valid".to_owned()),
        ("http", format!("{}{notice}", http.bind)),
        ("store", settings.store.summary()),
        ("works", work),
        ("calls", calls),
        ("traces", trace.summary()),
        ("zone data", format!("{}, compiled in", zone::data_version())),
    ];
    if services.is_empty() {
        pairs.push(("services", "none: tasks can be pulled, but not called back".into()));
    }
    for (name, service) in services {
        let endpoints: Vec<_> = service.endpoints.iter().map(ToString::to_string).collect();
        let rule = match &service.success {
            SuccessRule::DmError => String::new(),
            rule => format!(", success {rule}"),
        };
        let headers: Vec<_> = service.headers.names().collect();
        let headers = match headers.is_empty() {
            true => String::new(),
            false => format!(", with {}", headers.join(" and ")),
        };
        let oauth = match &service.oauth {
            Some(oauth) => format!(", tokens from {}", oauth.shown_url()),
            None => String::new(),
        };
        pairs
            .push(("service", format!("{name} at {}{rule}{headers}{oauth}", endpoints.join(", "))));
    }
    table::pairs(&pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_names_what_matters() {
        let sets = [
            "http.bind='0.0.0.0:80'",
            "services.a.endpoints=['http://b', 'http://c']",
            "services.a.headers={authorization='Bearer secret', x-key='secret'}",
            "services.b={endpoints=['http://d'], success={pointer='/code', equals=[0]}}",
            "store.kind=redis",
        ];
        let sets = [&sets[..], &["store.redis.urls=['redis://:secret@d']"]].concat();
        let sets: Vec<_> = sets.into_iter().map(str::to_owned).collect();
        let settings = Settings::load(&[], &sets, std::iter::empty()).unwrap();
        assert!(
            summary(&settings, 500)
                .contains("500 at most (half of the limit of open files here), ")
        );
        let shown = summary(&settings, 16_384).replace(zone::data_version(), "2026a");
        insta::assert_snapshot!(shown, @r#"
        configuration  valid
        http           0.0.0.0:80
        store          redis, standalone redis://***@d, keys delay:*
        works          yes, lease 30s
        calls          16384 at most, 256 per service, timeout 15s, 22 attempts
        traces         not exported
        zone data      2026a, compiled in
        service        a at http://b, http://c, with authorization and x-key
        service        b at http://d, success { pointer = "/code", equals = [0] }
        "#);
    }
}
