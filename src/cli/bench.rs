//! `delayd bench`: options, progress, and the output of the figures.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use clap::error::ErrorKind;
use delayd_bench::{self as bench, Figures, Progress, Running, Scenario, Store, Target};
use delayd_wire::Span;
use reqwest::Url;
use serde_json::json;

use super::secret::SecretArg;
use super::signals::Signals;
use super::{Code, Configuration, command, output, progress, table};

/// How often the progress bar is updated.
const TICK: Duration = Duration::from_millis(200);

/// Put load on a service and print what it did: on a service that is started for this with an empty
/// store, or on a running one (`--server`).
///
/// All figures count only verified work: each task is accepted, arrives exactly once, and not
/// before its due time. If a check fails, that is printed instead of the figures, and the exit code
/// is 1. Everything that was created for the bench is removed, also after Ctrl-C.
///
/// Scenarios that measure throughput are closed loops: a fixed number of connections, each of which
/// sends its next request after the answer to the last. Scenarios that measure lateness or latency
/// are open loops: all send times are planned in advance, and times count from the plan.
///
/// --config and --set are passed to the service that is started.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd bench add                                adds per second, 64 connections, embedded store
  delayd bench add --connections 1                one after the other
  delayd bench burst --tasks 20000 --store redis  with the Redis on 127.0.0.1:6379, own keys
  delayd bench lateness --rate 3500 --for 10s --json
  delayd bench burst --store redis --redis-round-trip 2ms     as if Redis were 2 ms away
  delayd bench idle --topics 1000 --instances 3 --store redis --redis redis://127.0.0.1:6380/0
  delayd --set worker.claim_batch=1024 bench burst
  delayd bench add --server http://127.0.0.1:7799 --service message.call \\
    --receiver 127.0.0.1:9000")]
pub(super) struct Args {
    #[command(subcommand)]
    scenario: Scenario,
    /// A running service, instead of one that is started for the bench
    #[arg(long, value_name = "URL", global = true)]
    server: Option<PlainUrl>,
    /// With --server: the name of the receiver in that service (`[services."NAME"]`)
    #[arg(long, value_name = "NAME", global = true)]
    service: Option<String>,
    /// With --server: the address at which that service expects the receiver
    #[arg(long, value_name = "ADDRESS", global = true, default_value = "127.0.0.1:9000")]
    receiver: SocketAddr,
    /// With --server: the access token, if the service requires one
    #[arg(long, value_name = "TOKEN", env = "DELAYD_TOKEN", hide_env_values = true, global = true)]
    token: Option<SecretArg>,
    /// The store of the service that is started
    #[arg(long, value_name = "KIND", global = true, default_value = "embedded")]
    store: Kind,
    /// The Redis of --store redis
    #[arg(
        long,
        value_name = "URL",
        global = true,
        default_value = "redis://127.0.0.1:6379/0",
        value_parser = redis_url
    )]
    redis: String,
    /// With --store redis: the round trip to that Redis, for which a proxy delays each direction
    #[arg(long, value_name = "DURATION", global = true, default_value = "0s")]
    redis_round_trip: Span,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
}

/// The stores.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum Kind {
    /// A file in a temporary folder.
    Embedded,
    /// A Redis server, with a key prefix of its own.
    Redis,
}

/// The address of a service without TLS, which the load generator does not speak.
#[derive(Clone, Debug, PartialEq)]
struct PlainUrl {
    address: String,
    base: String,
}

impl FromStr for PlainUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str =
            "must be an address such as http://127.0.0.1:7799; https is not supported here";
        let url = Url::parse(text).map_err(|_| WRONG)?;
        let is_plain = url.scheme() == "http" && url.query().is_none() && url.fragment().is_none();
        let (Some(host), true) = (url.host_str(), is_plain) else { return Err(WRONG) };
        let address = format!("{host}:{}", url.port_or_known_default().unwrap_or(80));
        Ok(Self { address, base: url.path().trim_end_matches('/').to_owned() })
    }
}

fn redis_url(text: &str) -> Result<String, &'static str> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "redis" | "rediss") && url.has_host() => {
            Ok(text.to_owned())
        }
        _ => Err("must be an address such as redis://127.0.0.1:6379/0"),
    }
}

impl Args {
    pub(super) fn misplaced_configuration(&self) -> Option<&'static str> {
        let why =
            "--config and --set are for a service that is started; --server names a running one";
        self.server.is_some().then_some(why)
    }

    /// Why these options cannot be combined, or `None`.
    fn objection(&self) -> Option<String> {
        if self.server.is_some() && self.service.is_none() {
            return Some(
                "--server needs --service: the name of the receiver of the bench in that service"
                    .into(),
            );
        }
        let objection = self.scenario.objection(&self.store(), self.server.is_some())?;
        Some(format!("{} {objection}", self.scenario.name()))
    }

    fn store(&self) -> Store {
        match self.store {
            Kind::Embedded => Store::Embedded,
            Kind::Redis => Store::Redis(self.redis.clone()),
        }
    }

    fn target(&self, configuration: &Configuration) -> Target {
        let running = self.server.as_ref().map(|server| Running {
            address: server.address.clone(),
            base: server.base.clone(),
            token: SecretArg::unless_empty(self.token.clone())
                .map(|token| token.expose().trim().to_owned()),
            service: self.service.clone().unwrap_or_default(),
            receiver: self.receiver,
        });
        Target {
            running,
            store: self.store(),
            round_trip: self.redis_round_trip.0,
            configuration: configuration.words(),
        }
    }
}

pub(super) async fn run(args: Args, configuration: &Configuration) -> anyhow::Result<Code> {
    if args.scenario.is_bare_server() {
        bench::serve_bare().await.context("the bare server failed")?;
        return Ok(Code::Done);
    }
    if let Some(objection) = args.objection() {
        command().error(ErrorKind::ArgumentConflict, objection).exit();
    }
    let target = args.target(configuration);
    let store = match &args.scenario {
        Scenario::Bare(_) | Scenario::Calls(_) => "none",
        _ if target.running.is_some() => "its own",
        _ => target.store.name(),
    };
    let progress = Progress::default();
    let drawing = tokio::spawn(draw(progress.clone()));
    let (scenario, figures) = on_one_thread(args.scenario, target, progress).await;
    drawing.abort();
    // The bar is cleared when the aborted task is dropped.
    let _ = drawing.await;
    output::line(&told(&scenario, store, &figures?, args.json))?;
    Ok(Code::Done)
}

/// Runs the scenario on one thread: work that moves between threads would cost more than the work
/// itself.
async fn on_one_thread(
    scenario: Scenario,
    target: Target,
    progress: Progress,
) -> (Scenario, anyhow::Result<Figures>) {
    let played = tokio::task::spawn_blocking(move || {
        let play = || -> anyhow::Result<Figures> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut signals = Signals::listen().context("cannot listen for signals")?;
                let stop = async { format!("interrupted by {}", signals.next().await) };
                Ok(bench::run(&scenario, &target, progress, stop).await?)
            })
        };
        let figures = play();
        (scenario, figures)
    });
    played.await.expect("a bench does not panic")
}

/// Draws the progress until it is aborted.
async fn draw(progress: Progress) {
    let mut drawn: Option<(bench::Step, ClearedBar)> = None;
    loop {
        let (step, done) = progress.now();
        match &drawn {
            Some((before, bar)) if *before == step => bar.0.set_position(done),
            _ if step.number == 0 => {}
            _ => {
                // The last bar is cleared before the next is drawn.
                drop(drawn.take());
                let bar = if step.total > 0 {
                    progress::towards(step.total, step.what)
                } else {
                    progress::counting(step.what)
                };
                drawn = Some((step, ClearedBar(bar)));
            }
        }
        tokio::time::sleep(TICK).await;
    }
}

/// A bar that is cleared on drop.
struct ClearedBar(indicatif::ProgressBar);

impl Drop for ClearedBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn told(scenario: &Scenario, store: &str, figures: &Figures, is_json: bool) -> String {
    if is_json {
        let told = json!({
            "scenario": scenario.name(),
            "store": store,
            "options": scenario,
            "verified": true,
            "figures": figures.json(),
        });
        return told.to_string();
    }
    let rows: Vec<(String, String)> =
        figures.iter().map(|(name, value)| (name.replace('_', " "), number(value))).collect();
    let rows: Vec<(&str, String)> =
        rows.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    format!("{}, store: {store}; each task verified\n{}", scenario.name(), table::pairs(&rows))
}

/// A number with up to three decimals, or, from 1,000 on, rounded and in groups of three digits.
fn number(value: f64) -> String {
    if value.abs() < 1_000.0 {
        let text = format!("{value:.3}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{:.0}", value.abs());
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    format!("{}{}", if value < 0.0 { "-" } else { "" }, groups.join(","))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    type Alone = crate::cli::args::Alone<Args>;

    #[test]
    fn numbers_are_for_people() {
        let check = |value: f64, expected: &str| assert_eq!(number(value), expected);
        check(0.0, "0");
        check(1.5, "1.5");
        check(-2.125, "-2.125");
        check(999.0, "999");
        check(1_000.4, "1,000");
        check(1_234_567.0, "1,234,567");
    }

    #[test]
    fn options_that_do_not_go_together_are_named() {
        let check = |line: &str, expected: Option<&str>| {
            let args = Alone::try_parse_from(line.split(' ')).unwrap().args;
            let objection = args.objection();
            assert_eq!(
                objection.as_deref().map(|text| text.split(':').next().unwrap()),
                expected,
                "{line}"
            );
        };
        check("bench add", None);
        check("bench add --server http://127.0.0.1:7799", Some("--server needs --service"));
        check("bench add --server http://127.0.0.1:7799/base/ --service a", None);
        check(
            "bench idle --server http://127.0.0.1 --service a",
            Some("idle measures processes that it starts itself"),
        );
        check("bench idle --instances 3", Some("idle several instances share only a Redis"));
        check("bench idle --instances 3 --store redis", None);
        check("bench --store redis idle --instances 3", None);
        check("bench raw-redis", Some("raw-redis needs a Redis"));
    }

    #[test]
    fn a_server_is_a_plain_address() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let read = text.parse::<PlainUrl>().ok();
            assert_eq!(
                read.as_ref().map(|url| (url.address.as_str(), url.base.as_str())),
                expected
            );
        };
        check("http://127.0.0.1:7799", Some(("127.0.0.1:7799", "")));
        check("http://delay.example/base/", Some(("delay.example:80", "/base")));
        check("https://127.0.0.1:7799", None);
        check("127.0.0.1:7799", None);
    }
}
