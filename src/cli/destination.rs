//! `delayd destination …`: shows, holds and releases destinations.

use std::time::Duration;

use clap::Subcommand;
use delayd_wire::{
    BreakerChange, BreakerState, DestinationDetail, DestinationListRequest, DestinationOnInstance,
    DestinationShown, Destinations, Held, HoldRequest, Probed, RecentCalls,
};

use super::cell::Cell;
use super::client::{ApiClient, ServerArgs};
use super::table::Column;
use super::{Code, output, table, time};
use crate::model::task::Destination;

/// Show the state of destinations, hold calls to one, or release it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd destination list
  delayd destination get message.call
  delayd destination probe message.call
  delayd destination hold message.call
  delayd destination release message.call")]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List each service that is configured or has waiting tasks
    ///
    /// Of several instances, the worst state is shown, and below it that of each instance.
    List(ListArgs),
    /// Show all about a service: its breakers, limits and last calls on each instance
    Get(OneArgs),
    /// Let the open breakers of a service probe now, on all instances
    ///
    /// The next due tasks are the probes. A hold or a Retry-After still stops calls. The instance
    /// that answers obeys at once, the others within two seconds: the command waits for them, and
    /// shows each. With --json, it does not wait.
    Probe(OneArgs),
    /// Stop calls to a service on every instance: its tasks wait and use no attempts
    Hold(OneArgs),
    /// End a hold on every instance, whether set by hand or by a Retry-After of the service
    Release(OneArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    /// The service, or a host with its port
    sn: Destination,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    match args.verb {
        Verb::List(ListArgs { server }) => {
            server
                .ask("/delay/destination/list", &DestinationListRequest { sampled: None }, shown)
                .await?
        }
        Verb::Get(OneArgs { sn, server }) => {
            server.ask("/delay/destination/get", &of(&sn), detail).await?;
        }
        Verb::Probe(OneArgs { sn, server }) => {
            probe(&sn, &server.client()?).await?;
        }
        Verb::Hold(OneArgs { sn, server }) => {
            server
                .ask("/delay/destination/hold", &of(&sn), |_: Held| format!("{sn} is held"))
                .await?;
        }
        Verb::Release(OneArgs { sn, server }) => {
            server
                .ask("/delay/destination/release", &of(&sn), |_: Held| format!("{sn} is released"))
                .await?;
        }
    }
    Ok(Code::Done)
}

/// The status of a destination that is called as usual.
pub(super) const READY: &str = "ready";

/// How often, and how many times, `probe` asks whether the other instances have heard of it.
const ASKED_EVERY: Duration = Duration::from_millis(250);
const ASKED: usize = 12;

fn of(sn: &Destination) -> HoldRequest {
    HoldRequest { sn: sn.clone() }
}

fn detail(shown: DestinationDetail) -> String {
    let millis = |span: Option<u64>| span.map(time::lasting).cell();
    let is_exact = shown.complete && !shown.cut;
    let at_least = |count: u64| match is_exact {
        true => count.cell(),
        false => format!("{} or more", count.cell()),
    };
    let RecentCalls { calls, failures, p50_ms, p99_ms } = shown.recent;
    let mut pairs = vec![
        ("sn", shown.sn.cell()),
        ("configured", shown.configured.cell()),
        ("held", shown.held.cell()),
        ("waiting", at_least(shown.waiting)),
        ("overdue", at_least(shown.overdue)),
        ("counted", shown.as_of_ms.cell()),
        ("breaker", shown.breaker.cell()),
        ("probes in", millis(shown.probes_in_ms)),
        ("calls", format!("{}/{} of {}", shown.in_flight, shown.concurrency, shown.slots)),
        ("rate", shown.rate.cell()),
        ("success", shown.success.cell()),
        ("retry after", millis(shown.retry_after_ms)),
        ("last error at", shown.last_error_ms.cell()),
        ("last error", shown.last_error.cell()),
        ("recent calls", format!("{calls}, {failures} failed")),
        ("p50", millis(p50_ms)),
        ("p99", millis(p99_ms)),
        ("others' p99", millis(shown.unharmed.lateness_p99_ms)),
    ];
    if let Some(why) = &shown.no_access_token {
        let place = pairs.iter().position(|(name, _)| *name == "last error at");
        pairs.insert(place.unwrap_or_default(), ("no access token", why.cell()));
    }
    let mut parts = vec![table::pairs(&pairs)];
    parts.extend(each(&shown.instances));
    if !shown.transitions.is_empty() {
        let columns: [Column<BreakerChange>; 2] =
            [("since", |change| change.at_ms.cell()), ("breaker", |change| change.to.cell())];
        parts.push(table::of(&shown.transitions, &columns));
    }
    parts.join("\n\n")
}

async fn probe(sn: &Destination, client: &ApiClient) -> anyhow::Result<()> {
    let Probed { breaker, instances: before, .. } =
        client.call("/delay/destination/probe", &of(sn)).await?;
    if client.is_json() {
        return Ok(());
    }
    let mut now = before.clone();
    for _ in 0..ASKED {
        if has_reached_all(&before, &now) {
            break;
        }
        tokio::time::sleep(ASKED_EVERY).await;
        let shown: DestinationDetail = client.call("/delay/destination/get", &of(sn)).await?;
        now = shown.instances;
    }
    output::line(&probed(breaker, &before, &now))?;
    Ok(())
}

/// Whether all instances have heard of a probe. The one that answered the probe heard it first.
fn has_reached_all(before: &[DestinationOnInstance], now: &[DestinationOnInstance]) -> bool {
    let has_heard = |old: &DestinationOnInstance| {
        let one = now.iter().find(|one| one.instance == old.instance);
        old.answers || one.is_none_or(|one| one.probed_ms > old.probed_ms)
    };
    before.iter().all(has_heard)
}

fn probed(
    breaker: BreakerState,
    before: &[DestinationOnInstance],
    now: &[DestinationOnInstance],
) -> String {
    let breaker = format!("the breaker is {}", breaker.cell());
    let heard = match has_reached_all(before, now) {
        true => "all instances have heard of the probe",
        false => "some instances have not heard of the probe yet",
    };
    match each(now) {
        Some(each) => format!("{breaker} on the instance that answers; {heard}:\n\n{each}"),
        None => breaker,
    }
}

/// The state on each instance, if there are several.
fn each(instances: &[DestinationOnInstance]) -> Option<String> {
    let columns: [Column<DestinationOnInstance>; 10] = [
        ("instance", |one| one.instance.cell()),
        ("name", |one| one.name.cell()),
        ("breaker", |one| one.breaker.cell()),
        ("probes_in", |one| one.probes_in_ms.map(time::lasting).cell()),
        ("calls", |one| format!("{}/{}", one.in_flight, one.concurrency)),
        ("rate", |one| one.rate.cell()),
        ("retry_after", |one| one.retry_after_ms.map(time::lasting).cell()),
        ("recent_calls", |one| format!("{}, {} failed", one.recent.calls, one.recent.failures)),
        ("probed", |one| one.probed_ms.cell()),
        ("seen", |one| one.seen_ms.cell()),
    ];
    (!instances.is_empty()).then(|| table::of(instances, &columns))
}

/// Which destinations keep their tasks waiting, a line each. Empty if there are none, or if the
/// service does not say.
pub(super) async fn kept_waiting(client: &ApiClient) -> String {
    let asked = &DestinationListRequest { sampled: None };
    let Ok(found) = client.call::<Destinations>("/delay/destination/list", asked).await else {
        return String::new();
    };
    let line = |one: DestinationShown| match one {
        DestinationShown { waiting: 0, .. } => None,
        DestinationShown { held: true, sn, .. } => {
            Some(format!("\n{sn} is held: calls begin when it is released"))
        }
        DestinationShown { breaker: BreakerState::Open, sn, .. } => Some(format!(
            "\n{sn} is failing: calls begin when its circuit breaker closes, or after\n  \
             delayd destination probe {sn}"
        )),
        _ => None,
    };
    found.destinations.into_iter().filter_map(line).collect()
}

/// What the status of a destination follows from.
pub(super) struct Conditions {
    pub(super) is_configured: bool,
    pub(super) has_token: bool,
    pub(super) breaker: BreakerState,
    pub(super) is_held: bool,
    pub(super) has_retry_after: bool,
    pub(super) is_busy: bool,
}

impl Conditions {
    fn of(one: &DestinationShown) -> Self {
        Self {
            is_configured: one.configured,
            has_token: one.no_access_token.is_none(),
            breaker: one.breaker,
            is_held: one.held,
            has_retry_after: one.retry_after_ms.is_some(),
            is_busy: one.in_flight >= one.concurrency,
        }
    }

    /// What keeps it from being called as usual, the worst first. The dashboard shows the same.
    pub(super) fn status(self) -> String {
        let conditions = [
            (!self.is_configured, "not configured"),
            (!self.has_token, "no access token"),
            (self.breaker == BreakerState::Open, "failing"),
            (self.is_held, "held"),
            (self.has_retry_after, "Retry-After"),
            (self.breaker == BreakerState::HalfOpen, "probing"),
            (self.is_busy, "busy"),
        ];
        let found: Vec<&str> =
            conditions.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name).collect();
        if found.is_empty() { READY.into() } else { found.join(", ") }
    }
}

/// The line of an instance, below that of the destination.
fn part(of: &DestinationShown, on: &DestinationOnInstance) -> DestinationShown {
    DestinationShown {
        sn: format!("on {} {}", on.name, on.instance),
        breaker: on.breaker,
        in_flight: on.in_flight,
        concurrency: on.concurrency,
        rate: on.rate.clone(),
        retry_after_ms: on.retry_after_ms,
        no_access_token: on.no_access_token.clone(),
        last_error: on.last_error.clone(),
        last_error_ms: on.last_error_ms,
        ..of.clone()
    }
}

fn shown(Destinations { destinations: all, .. }: Destinations) -> String {
    if all.is_empty() {
        return "no destinations".into();
    }
    let row = |one: &DestinationShown, waiting: Option<u64>| {
        vec![
            one.sn.cell(),
            Conditions::of(one).status(),
            waiting.cell(),
            format!("{}/{}", one.in_flight, one.concurrency),
            one.rate.cell(),
            one.retry_after_ms.map(time::lasting).cell(),
            one.last_error_ms.cell(),
            one.last_error.cell(),
        ]
    };
    let rows: Vec<_> = all
        .iter()
        .flat_map(|one| {
            let is_ready = Conditions::of(one).status() == READY;
            let of_each = one.instances.iter().filter(move |_| !is_ready);
            let of_each = of_each.map(move |on| row(&part(one, on), None));
            std::iter::once(row(one, Some(one.waiting))).chain(of_each)
        })
        .collect();
    let head =
        ["sn", "status", "waiting", "calls", "rate", "retry_after", "last_error_at", "last_error"];
    table::columns(&head, &rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_destination_is_shown_with_its_last_calls() {
        let answer = json!({
            "sn": "shop", "configured": true, "held": false, "waiting": 12, "overdue": 3,
            "as_of_ms": 0, "complete": true, "cut": true, "breaker": "open",
            "probes_in_ms": 4200, "in_flight": 0,
            "concurrency": 16, "slots": 256, "rate": null,
            "success": "dm_error", "retry_after_ms": null,
            "last_error": "down", "last_error_ms": 0,
            "recent": {"calls": 9, "failures": 5, "p50_ms": 20, "p99_ms": 15000},
            "unharmed": {"calls": 7, "lateness_p99_ms": 3},
            "transitions": [{"at_ms": 0, "to": "open"}],
        });
        insta::assert_snapshot!(detail(serde_json::from_value(answer).unwrap()), @r#"
        sn             shop
        configured     yes
        held           no
        waiting        12 or more
        overdue        3 or more
        counted        1970-01-01T00:00:00.000Z
        breaker        open
        probes in      4.2s
        calls          0/16 of 256
        rate           -
        success        dm_error
        retry after    -
        last error at  1970-01-01T00:00:00.000Z
        last error     down
        recent calls   9, 5 failed
        p50            20ms
        p99            15s
        others' p99    3ms

        SINCE                     BREAKER
        1970-01-01T00:00:00.000Z  open
        "#);
    }

    #[test]
    fn destinations_are_a_table() {
        let shown = |answer| shown(serde_json::from_value(answer).unwrap());
        assert_eq!(shown(json!({"destinations": []})), "no destinations");
        let one = |sn: &str, held: bool, breaker: &str, retry_after_ms: Option<u64>| {
            json!({
                "sn": sn, "configured": true, "held": held, "waiting": 12,
                "breaker": breaker, "in_flight": 0,
                "concurrency": 16, "rate": null, "retry_after_ms": retry_after_ms,
                "last_error": "down", "last_error_ms": 0,
            })
        };
        let table = shown(json!({"destinations": [
            one("shop", true, "open", Some(89_500)), one("mail", false, "closed", None),
        ]}));
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        let head = "SN STATUS WAITING CALLS RATE RETRY_AFTER LAST_ERROR_AT LAST_ERROR";
        assert_eq!(rows[0].join(" "), head);
        let row = "shop failing, held, Retry-After 12 0/16 - 90s 1970-01-01T00:00:00.000Z down";
        assert_eq!(rows[1].join(" "), row);
        let row = "mail ready 12 0/16 - - 1970-01-01T00:00:00.000Z down";
        assert_eq!(rows[2].join(" "), row);
    }

    fn on(instance: &str, breaker: &str, probes_in_ms: Option<u64>) -> serde_json::Value {
        json!({
            "instance": instance, "name": "host", "answers": false, "seen_ms": 0,
            "breaker": breaker, "probes_in_ms": probes_in_ms, "in_flight": 3, "concurrency": 16,
            "rate": null, "retry_after_ms": null, "last_error": null, "last_error_ms": null,
            "recent": {"calls": 9, "failures": 5, "p50_ms": 1, "p99_ms": 2}, "probed_ms": null,
        })
    }

    #[test]
    fn a_destination_in_trouble_is_shown_on_each_instance() {
        let one = |sn: &str, breaker: &str| {
            json!({
                "sn": sn, "configured": true, "held": false, "waiting": 12, "breaker": breaker,
                "in_flight": 6, "concurrency": 32, "rate": null, "retry_after_ms": null,
                "last_error": null, "last_error_ms": null,
                "instances": [on("a", breaker, Some(4_000)), on("b", "closed", None)],
            })
        };
        let answer = json!({"destinations": [one("shop", "open"), one("mail", "closed")]});
        insta::assert_snapshot!(shown(serde_json::from_value(answer).unwrap()), @r#"
        SN         STATUS   WAITING  CALLS  RATE  RETRY_AFTER  LAST_ERROR_AT  LAST_ERROR
        shop       failing  12       6/32   -     -            -              -
        on host a  failing  -        3/16   -     -            -              -
        on host b  ready    -        3/16   -     -            -              -
        mail       ready    12       6/32   -     -            -              -
        "#);
    }

    #[test]
    fn a_probe_shows_the_breaker_of_each_instance() {
        let all = |each| serde_json::from_value::<Vec<DestinationOnInstance>>(each).unwrap();
        let closed = BreakerState::Closed;
        assert_eq!(probed(closed, &[], &[]), "the breaker is closed");
        let before = all(json!([on("a", "open", Some(57_000)), on("b", "closed", None)]));
        let mut now = before.clone();
        now.iter_mut().for_each(|one| one.probed_ms = Some(delayd_wire::UnixMillis(0)));
        let shown = probed(closed, &before, &now[..1]);
        assert!(shown.contains("all instances have heard of the probe:"), "b is gone: {shown}");
        now[0].probed_ms = None;
        let shown = probed(closed, &before, &now);
        let lines: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines[0].join(" "),
            "the breaker is closed on the instance that answers; some instances have not heard \
             of the probe yet:"
        );
        let head =
            "INSTANCE NAME BREAKER PROBES_IN CALLS RATE RETRY_AFTER RECENT_CALLS PROBED SEEN";
        assert_eq!(lines[2].join(" "), head);
        let row = "a host open 57s 3/16 - - 9, 5 failed - 1970-01-01T00:00:00.000Z";
        assert_eq!(lines[3].join(" "), row);
        assert_eq!(lines.len(), 5);
    }
}
