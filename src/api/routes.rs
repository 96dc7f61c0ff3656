//! The table of all routes: one row for each.
//!
//! A row declares the path, the summary, the handler, who may call it, and the longest body. The
//! types of request and answer are those of the handler's signature, or the row has them. Dispatch,
//! authorization, limits and the OpenAPI document derive from it. The method derives from the kind
//! of the row: a call takes `POST`, a page takes `GET`.

use std::sync::LazyLock;

use axum::routing::get;
use delayd_wire as wire;
use delayd_wire::Stored;

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
use crate::api::middleware::route::{Route, RouteAnswer};
use crate::api::middleware::router::Routes;
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
        Route::raw("/delay/task/add", "Store a task", (&[Produce], Topic), add::add)
            .body(Content)
            .reads::<new_task::Request>()
            .answers::<Stored>()
            .errors(&[1022])
            .takes_key(),
        Route::raw(
            "/delay/task/add_batch",
            "Store many tasks",
            (&[Produce], EachOfThem),
            add::add_batch,
        )
        .body(Batch)
        .reads::<add::BatchRequest>()
        .answers::<wire::Batch>()
        .errors(&[1022]),
        Route::raw(
            "/delay/task/pull",
            "Take due tasks, or read one task's content",
            (&[Consume], Topic),
            pull::pull,
        )
        .reads::<pull::Request>()
        .answers::<wire::Pulled>()
        .answers::<wire::PulledMany>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/task/ack",
            "Acknowledge a leased task",
            (&[Consume], Topic),
            settle::ack,
        )
        .errors(UNKNOWN_OR_CONFLICT),
        Route::call(
            "/delay/task/nack",
            "Return a leased task for another attempt",
            (&[Consume], Topic),
            settle::nack,
        )
        .errors(UNKNOWN_OR_CONFLICT),
        Route::call("/delay/task/extend", "Extend a lease", (&[Consume], Topic), settle::extend)
            .errors(UNKNOWN_OR_CONFLICT),
        Route::call("/delay/task/cancel", "Cancel a task", (&[Produce], Topic), manage::cancel)
            .errors(UNKNOWN_OR_CONFLICT),
        Route::raw(
            "/delay/task/update",
            "Reschedule a task, or replace its content",
            (&[Produce], Topic),
            manage::update,
        )
        .body(Content)
        .reads::<manage::UpdateRequest>()
        .answers::<wire::Moved>()
        .errors(UNKNOWN_OR_CONFLICT),
        Route::call(
            "/delay/task/get",
            "Show a task",
            (&[Produce, Consume, View, Admin], Topic),
            task::get,
        )
        .only_reads()
        .errors(UNKNOWN),
        Route::call("/delay/task/find", "Find a task in all topics", (READ, All), find::find)
            .only_reads(),
        Route::call(
            "/delay/task/list",
            "Show the tasks of a topic in one state",
            (READ, Topic),
            list::list,
        )
        .only_reads()
        .errors(UNKNOWN),
        Route::call(
            "/delay/task/cancel_many",
            "Cancel the tasks of a topic that a filter selects",
            (&[Admin], Topic),
            many::cancel,
        )
        .errors(UNKNOWN),
        Route::call(
            "/delay/task/update_many",
            "Give another due time to the tasks of a topic that a filter selects",
            (&[Admin], Topic),
            many::update,
        )
        .errors(UNKNOWN),
        Route::call(
            "/delay/task/search",
            "Find the tasks of a topic whose content contains a text",
            (&[Admin], Topic),
            search::search,
        )
        .only_reads()
        .errors(UNKNOWN),
        Route::call(
            "/delay/task/records",
            "Show whole tasks, or lease them for a move to another store",
            (&[Admin], Topic),
            transfer::records,
        )
        .errors(UNKNOWN),
        Route::call(
            "/delay/task/moved",
            "Remove tasks that were moved to another store",
            (&[Admin], Topic),
            transfer::moved,
        )
        .errors(UNKNOWN),
        Route::raw(
            "/delay/task/adopt",
            "Store tasks of another store under their ids",
            (&[Admin], EachOfThem),
            adopt::adopt,
        )
        .body(Batch)
        .reads::<adopt::AdoptRequest>()
        .answers::<wire::AdoptAnswer>()
        .errors(&[1009]),
    ]
}

fn dead_letters() -> Vec<Route> {
    vec![
        Route::call(
            "/delay/dead/causes",
            "Group dead tasks by cause",
            (READ, TopicOrAll),
            dead::causes::causes,
        )
        .only_reads()
        .errors(UNKNOWN),
        Route::call(
            "/delay/dead/replay",
            "Schedule dead tasks again",
            (&[Admin], Topic),
            dead::replay,
        )
        .errors(UNKNOWN),
        Route::call("/delay/dead/purge", "Delete dead tasks", (&[Admin], Topic), dead::purge)
            .errors(UNKNOWN),
    ]
}

fn topics() -> Vec<Route> {
    vec![
        Route::call(
            "/delay/topic/list",
            "List the names of all topics, or pages of topics with counts",
            (READ, EachOfThem),
            topics_list::list,
        )
        .only_reads(),
        Route::call("/delay/topic/get", "Show a topic", (READ, Topic), topic::get)
            .only_reads()
            .errors(UNKNOWN),
        Route::call("/delay/topic/set", "Create or change a topic", (&[Admin], Topic), policy::set)
            .errors(UNKNOWN),
        Route::call("/delay/topic/pause", "Pause a topic", (&[Admin], Topic), topic::pause)
            .errors(UNKNOWN),
        Route::call("/delay/topic/resume", "Resume a topic", (&[Admin], Topic), topic::resume)
            .errors(UNKNOWN),
        Route::call(
            "/delay/topic/purge",
            "Delete all tasks of a topic",
            (&[Admin], Topic),
            topic::purge,
        )
        .errors(UNKNOWN),
        Route::call(
            "/delay/topic/forecast",
            "Count future tasks by due time",
            (READ, Topic),
            topic::forecast,
        )
        .only_reads()
        .errors(UNKNOWN),
        Route::call(
            "/delay/topic/delete",
            "Delete an empty topic",
            (&[Admin], Topic),
            topic::delete,
        )
        .errors(UNKNOWN_OR_CONFLICT),
    ]
}

/// These calls need access to all topics: a service receives tasks of any topic.
fn destinations() -> Vec<Route> {
    vec![
        Route::call(
            "/delay/destination/list",
            "List destinations and their state",
            (READ, All),
            destination::list,
        )
        .only_reads(),
        Route::call(
            "/delay/destination/get",
            "Show all that the instance knows about a destination",
            (READ, All),
            destination::get,
        )
        .only_reads()
        .errors(UNKNOWN),
        Route::call(
            "/delay/destination/probe",
            "Let an open circuit breaker probe now",
            (&[Admin], All),
            destination::probe,
        )
        .errors(UNKNOWN),
        Route::call(
            "/delay/destination/hold",
            "Hold a destination: stop its calls",
            (&[Admin], All),
            destination::hold,
        )
        .errors(UNKNOWN),
        Route::call(
            "/delay/destination/release",
            "Release a destination from a hold and from its Retry-After",
            (&[Admin], All),
            destination::release,
        )
        .errors(UNKNOWN),
    ]
}

/// The figures are of all topics. Every token may ask what it may do.
fn deployment() -> Vec<Route> {
    vec![
        Route::call(
            "/delay/whoami",
            "Show what the caller's token may do",
            (&Scope::ALL, EachOfThem),
            overview::whoami,
        )
        .only_reads(),
        Route::call(
            "/delay/overview",
            "Show the state of the deployment",
            (READ, All),
            overview::overview,
        )
        .only_reads(),
        Route::call(
            "/delay/forecast",
            "Count the waiting tasks of all topics by service and due time",
            (READ, All),
            forecast::forecast,
        )
        .only_reads(),
        Route::raw("/delay/live", "Send the overview of each second", (READ, All), live::serve)
            .only_reads()
            .reads::<wire::LiveRequest>()
            .streams::<wire::Overview>(),
    ]
}

/// These calls need access to all topics: the figures are of all of them.
fn instances() -> Vec<Route> {
    vec![
        Route::call(
            "/delay/instance/list",
            "List the living instances",
            (READ, All),
            instance::list,
        )
        .only_reads(),
        Route::call(
            "/delay/instance/get",
            "Show how the instance that answers works: store, clock, disk, reloads, errors",
            (READ, All),
            instance::get,
        )
        .only_reads(),
        Route::call(
            "/delay/series",
            "Figures of this instance over time",
            (READ, All),
            instance::series,
        )
        .only_reads(),
    ]
}

fn audits() -> Vec<Route> {
    vec![
        Route::call("/delay/audit/list", "List administrative actions", (READ, All), audit::list)
            .only_reads(),
    ]
}

/// Load balancers and probes have no token. The pages at `/` and `/docs` hold no data; they send
/// calls with the reader's token. `/metrics` needs a token, because metrics name services.
fn pages() -> Vec<Route> {
    let health = |statuses| RouteAnswer::Health(described::<health::Health>, statuses);
    vec![
        Route::page(
            "/healthz",
            "Liveness: the process answers",
            health(&[200]),
            get(health::alive),
        ),
        Route::page(
            "/readyz",
            "Readiness: the instance can take requests",
            health(&[200, 503]),
            get(health::ready),
        ),
        Route::page(
            "/metrics",
            "Metrics for Prometheus",
            RouteAnswer::Text("application/openmetrics-text"),
            get(metrics::serve),
        )
        .needs(READ)
        .errors(&[1001, 1003, 1029]),
        Route::page(
            "/metrics/topics",
            "Figures of the first 1,000 topics, for Prometheus",
            RouteAnswer::Text("application/openmetrics-text"),
            get(metrics::topics),
        )
        .needs(READ)
        .errors(&[1001, 1003, 1029]),
        Route::page(
            "/openapi.json",
            "This document",
            RouteAnswer::Text("application/json"),
            get(async || openapi::serve(&ROUTES)),
        ),
        Route::page(
            "/docs",
            "A page that shows this document and sends calls",
            RouteAnswer::Text("text/html"),
            get(docs::page),
        ),
        Route::part("/", get(dashboard::page)),
        Route::part("/dashboard/app.js", get(dashboard::script)),
        Route::part("/dashboard/app.css", get(dashboard::style)),
        Route::part("/docs/explorer.js", get(docs::script)),
        Route::part("/docs/explorer.css", get(docs::style)),
        Route::part("/docs/icon.svg", get(docs::icon)),
    ]
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
