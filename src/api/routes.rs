//! The table of all routes: one row for each.
//!
//! A row declares the path, the summary, the handler, who may call it, the longest body, and the
//! types of request and answer. Dispatch, authorization, limits and the OpenAPI document derive
//! from it. The method derives from the kind of the row: a call takes `POST`, a page takes `GET`.

use std::sync::LazyLock;

use axum::routing::get;
use delayd_wire as wire;
use delayd_wire::{Nothing, Stored, TopicShown};

use crate::api::auth::About::{All, EachOfThem, Topic, TopicOrAll};
use crate::api::handlers::migration::{adopt, transfer};
use crate::api::handlers::task::{
    add, find, get as task, list, manage, many, new_task, pull, search, settle,
};
use crate::api::handlers::topic::{list as topics_list, manage as topic, policy};
use crate::api::handlers::{
    audit, dead, destination, forecast, health, instance, live, metrics, overview,
};
use crate::api::middleware::route::BodySize::{Batch, Content};
use crate::api::middleware::route::{Answer, Route, Routes};
use crate::api::wire::schema::described;
use crate::api::{dashboard, docs, openapi};
use crate::model::token::Scope::{self, Admin, Consume, Produce, View};

mod schedules;

/// The scopes of calls that only read. `view` sees neither contents nor the texts of outcomes: the
/// handlers omit them.
const READ: &[Scope] = &[View, Admin];

/// Error codes of calls that name something that may not exist, or that may be in another state.
const UNKNOWN: &[u16] = &[1004];
const UNKNOWN_OR_CONFLICT: &[u16] = &[1004, 1009];

/// The table, indexed by path.
pub(crate) static ROUTES: LazyLock<Routes> = LazyLock::new(|| Routes::of(routes()));

fn routes() -> Vec<Route> {
    let mut routes = tasks();
    routes.extend(dead_letters());
    routes.extend(topics());
    routes.extend(destinations());
    routes.extend(schedules::schedules());
    routes.extend(deployment());
    routes.extend(instances());
    routes.extend(audits());
    routes.extend(pages());
    routes
}

fn tasks() -> Vec<Route> {
    vec![
        Route::call("/delay/task/add", "Store a task", add::add)
            .access(&[Produce], Topic)
            .body(Content)
            .reads::<new_task::Request>()
            .answers::<Stored>()
            .errors(&[1022])
            .takes_key(),
        Route::call("/delay/task/add_batch", "Store many tasks", add::add_batch)
            .access(&[Produce], EachOfThem)
            .body(Batch)
            .reads::<add::BatchRequest>()
            .answers::<wire::Batch>()
            .errors(&[1022]),
        Route::call("/delay/task/pull", "Take due tasks, or read one task's content", pull::pull)
            .access(&[Consume], Topic)
            .reads::<pull::Request>()
            .answers::<wire::Pulled>()
            .answers::<wire::PulledMany>()
            .errors(UNKNOWN),
        Route::call("/delay/task/ack", "Acknowledge a leased task", settle::ack)
            .access(&[Consume], Topic)
            .reads::<settle::AckRequest>()
            .answers::<Nothing>()
            .errors(UNKNOWN_OR_CONFLICT),
        Route::call("/delay/task/nack", "Return a leased task for another attempt", settle::nack)
            .access(&[Consume], Topic)
            .reads::<settle::NackRequest>()
            .answers::<wire::Returned>()
            .errors(UNKNOWN_OR_CONFLICT),
        Route::call("/delay/task/extend", "Extend a lease", settle::extend)
            .access(&[Consume], Topic)
            .reads::<settle::ExtendRequest>()
            .answers::<Nothing>()
            .errors(UNKNOWN_OR_CONFLICT),
        Route::call("/delay/task/cancel", "Cancel a task", manage::cancel)
            .access(&[Produce], Topic)
            .reads::<manage::CancelRequest>()
            .answers::<wire::Gone>()
            .errors(UNKNOWN_OR_CONFLICT),
        Route::call(
            "/delay/task/update",
            "Reschedule a task, or replace its content",
            manage::update,
        )
        .access(&[Produce], Topic)
        .body(Content)
        .reads::<manage::UpdateRequest>()
        .answers::<wire::Moved>()
        .errors(UNKNOWN_OR_CONFLICT),
        Route::call("/delay/task/get", "Show a task", task::get)
            .only_reads()
            .access(&[Produce, Consume, View, Admin], Topic)
            .reads::<task::Request>()
            .answers::<wire::Found>()
            .errors(UNKNOWN),
        Route::call("/delay/task/find", "Find a task in all topics", find::find)
            .only_reads()
            .access(READ, All)
            .reads::<find::Request>()
            .answers::<wire::FoundTasks>(),
        Route::call("/delay/task/list", "Show the tasks of a topic in one state", list::list)
            .only_reads()
            .access(READ, Topic)
            .reads::<list::Request>()
            .answers::<wire::Page>()
            .errors(UNKNOWN),
        Route::call(
            "/delay/task/cancel_many",
            "Cancel the tasks of a topic that a filter selects",
            many::cancel,
        )
        .access(&[Admin], Topic)
        .reads::<many::CancelRequest>()
        .answers::<wire::Changed>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/task/update_many",
            "Give another due time to the tasks of a topic that a filter selects",
            many::update,
        )
        .access(&[Admin], Topic)
        .reads::<many::UpdateRequest>()
        .answers::<wire::Changed>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/task/search",
            "Find the tasks of a topic whose content contains a text",
            search::search,
        )
        .only_reads()
        .access(&[Admin], Topic)
        .reads::<search::Request>()
        .answers::<wire::Page>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/task/records",
            "Show whole tasks, or lease them for a move to another store",
            transfer::records,
        )
        .access(&[Admin], Topic)
        .reads::<transfer::RecordsRequest>()
        .answers::<wire::Records>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/task/moved",
            "Remove tasks that were moved to another store",
            transfer::moved,
        )
        .access(&[Admin], Topic)
        .reads::<transfer::MovedRequest>()
        .answers::<wire::Ended>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/task/adopt",
            "Store tasks of another store under their ids",
            adopt::adopt,
        )
        .access(&[Admin], EachOfThem)
        .body(Batch)
        .reads::<adopt::AdoptRequest>()
        .answers::<wire::AdoptAnswer>()
        .errors(&[1009]),
    ]
}

fn dead_letters() -> Vec<Route> {
    vec![
        Route::call("/delay/dead/causes", "Group dead tasks by cause", dead::causes::causes)
            .only_reads()
            .access(READ, TopicOrAll)
            .reads::<dead::causes::Request>()
            .answers::<wire::Causes>()
            .errors(UNKNOWN),
        Route::call("/delay/dead/replay", "Schedule dead tasks again", dead::replay)
            .access(&[Admin], Topic)
            .reads::<dead::ReplayRequest>()
            .answers::<wire::Done>()
            .errors(UNKNOWN),
        Route::call("/delay/dead/purge", "Delete dead tasks", dead::purge)
            .access(&[Admin], Topic)
            .reads::<dead::PurgeRequest>()
            .answers::<wire::Done>()
            .errors(UNKNOWN),
    ]
}

fn topics() -> Vec<Route> {
    vec![
        Route::call(
            "/delay/topic/list",
            "List the names of all topics, or pages of topics with counts",
            topics_list::list,
        )
        .only_reads()
        .access(READ, EachOfThem)
        .reads::<topics_list::Request>()
        .answers::<wire::Topics>(),
        Route::call("/delay/topic/get", "Show a topic", topic::get)
            .only_reads()
            .access(READ, Topic)
            .reads::<topic::TopicRequest>()
            .answers::<TopicShown>()
            .errors(UNKNOWN),
        Route::call("/delay/topic/set", "Create or change a topic", policy::set)
            .access(&[Admin], Topic)
            .reads::<policy::Request>()
            .answers::<TopicShown>()
            .errors(UNKNOWN),
        Route::call("/delay/topic/pause", "Pause a topic", topic::pause)
            .access(&[Admin], Topic)
            .reads::<topic::TopicRequest>()
            .answers::<wire::Paused>()
            .errors(UNKNOWN),
        Route::call("/delay/topic/resume", "Resume a topic", topic::resume)
            .access(&[Admin], Topic)
            .reads::<topic::ResumeRequest>()
            .answers::<wire::Paused>()
            .errors(UNKNOWN),
        Route::call("/delay/topic/purge", "Delete all tasks of a topic", topic::purge)
            .access(&[Admin], Topic)
            .reads::<topic::PurgeRequest>()
            .answers::<wire::Purged>()
            .errors(UNKNOWN),
        Route::call("/delay/topic/forecast", "Count future tasks by due time", topic::forecast)
            .only_reads()
            .access(READ, Topic)
            .reads::<topic::ForecastRequest>()
            .answers::<wire::Forecast>()
            .errors(UNKNOWN),
        Route::call("/delay/topic/delete", "Delete an empty topic", topic::delete)
            .access(&[Admin], Topic)
            .reads::<topic::TopicRequest>()
            .answers::<Nothing>()
            .errors(UNKNOWN_OR_CONFLICT),
    ]
}

/// These calls need access to all topics: a service receives tasks of any topic.
fn destinations() -> Vec<Route> {
    vec![
        Route::call(
            "/delay/destination/list",
            "List destinations and their state",
            destination::list,
        )
        .only_reads()
        .access(READ, All)
        .reads::<wire::DestinationListRequest>()
        .answers::<wire::Destinations>(),
        Route::call(
            "/delay/destination/get",
            "Show all that the instance knows about a destination",
            destination::get,
        )
        .only_reads()
        .access(READ, All)
        .reads::<destination::HoldRequest>()
        .answers::<wire::DestinationDetail>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/destination/probe",
            "Let an open circuit breaker probe now",
            destination::probe,
        )
        .access(&[Admin], All)
        .reads::<destination::HoldRequest>()
        .answers::<wire::Probed>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/destination/hold",
            "Hold a destination: stop its calls",
            destination::hold,
        )
        .access(&[Admin], All)
        .reads::<destination::HoldRequest>()
        .answers::<wire::Held>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/destination/release",
            "Release a destination from a hold and from its Retry-After",
            destination::release,
        )
        .access(&[Admin], All)
        .reads::<destination::HoldRequest>()
        .answers::<wire::Held>()
        .errors(UNKNOWN),
    ]
}

/// The figures are of all topics. Every token may ask what it may do.
fn deployment() -> Vec<Route> {
    vec![
        Route::call("/delay/whoami", "Show what the caller's token may do", overview::whoami)
            .only_reads()
            .access(&Scope::ALL, EachOfThem)
            .reads::<wire::WhoAmIRequest>()
            .answers::<wire::WhoAmI>(),
        Route::call("/delay/overview", "Show the state of the deployment", overview::overview)
            .only_reads()
            .access(READ, All)
            .reads::<wire::OverviewRequest>()
            .answers::<wire::Overview>(),
        Route::call(
            "/delay/forecast",
            "Count the waiting tasks of all topics by service and due time",
            forecast::forecast,
        )
        .only_reads()
        .access(READ, All)
        .reads::<forecast::Request>()
        .answers::<wire::ServiceForecasts>(),
        Route::call("/delay/live", "Send the overview of each second", live::serve)
            .only_reads()
            .access(READ, All)
            .reads::<wire::LiveRequest>()
            .streams::<wire::Overview>(),
    ]
}

/// These calls need access to all topics: the figures are of all of them.
fn instances() -> Vec<Route> {
    vec![
        Route::call("/delay/instance/list", "List the living instances", instance::list)
            .only_reads()
            .access(READ, All)
            .reads::<wire::InstanceListRequest>()
            .answers::<wire::Instances>(),
        Route::call(
            "/delay/instance/get",
            "Show how the instance that answers works: store, clock, disk, reloads, errors",
            instance::get,
        )
        .only_reads()
        .access(READ, All)
        .reads::<wire::InstanceGetRequest>()
        .answers::<wire::InstanceDetail>(),
        Route::call("/delay/series", "Figures of this instance over time", instance::series)
            .only_reads()
            .access(READ, All)
            .reads::<instance::SeriesRequest>()
            .answers::<wire::Series>(),
    ]
}

fn audits() -> Vec<Route> {
    vec![
        Route::call("/delay/audit/list", "List administrative actions", audit::list)
            .only_reads()
            .access(READ, All)
            .reads::<audit::ListRequest>()
            .answers::<wire::AuditPage>(),
    ]
}

/// Load balancers and probes have no token. The pages at `/` and `/docs` hold no data; they send
/// calls with the reader's token. `/metrics` needs a token, because metrics name services.
fn pages() -> Vec<Route> {
    let health = |statuses| Answer::Health(described::<health::Health>, statuses);
    vec![
        Route::page("/healthz", "Liveness: the process answers", health(&[200]), || {
            get(health::alive)
        }),
        Route::page(
            "/readyz",
            "Readiness: the instance can take requests",
            health(&[200, 503]),
            || get(health::ready),
        ),
        Route::page(
            "/metrics",
            "Metrics for Prometheus",
            Answer::Text("application/openmetrics-text"),
            || get(metrics::serve),
        )
        .access(READ, All)
        .errors(&[1001, 1003, 1029]),
        Route::page(
            "/metrics/topics",
            "Figures of the first 1,000 topics, for Prometheus",
            Answer::Text("application/openmetrics-text"),
            || get(metrics::topics),
        )
        .access(READ, All)
        .errors(&[1001, 1003, 1029]),
        Route::page("/openapi.json", "This document", Answer::Text("application/json"), || {
            get(async || openapi::serve(&ROUTES))
        }),
        Route::page(
            "/docs",
            "A page that shows this document and sends calls",
            Answer::Text("text/html"),
            || get(docs::page),
        ),
        Route::part("/", || get(dashboard::page)),
        Route::part("/dashboard/app.js", || get(dashboard::script)),
        Route::part("/dashboard/app.css", || get(dashboard::style)),
        Route::part("/docs/explorer.js", || get(docs::script)),
        Route::part("/docs/explorer.css", || get(docs::style)),
        Route::part("/docs/icon.svg", || get(docs::icon)),
    ]
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
