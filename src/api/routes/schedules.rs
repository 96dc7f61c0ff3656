//! The rows of the calls under `/delay/schedule/`.

use delayd_wire as wire;

use super::{READ, UNKNOWN};
use crate::api::auth::About::{EachOfThem, Topic};
use crate::api::handlers::schedule;
use crate::api::middleware::route::BodySize::{Batch, Content};
use crate::api::middleware::route::Route;
use crate::model::token::Scope::{self, Admin, Produce};

/// A schedule adds tasks for as long as it exists, so its changes need `admin`, and the audit log
/// records them. `run` adds one task, as an add does. A preview needs no topic: it computes
/// moments, and reads nothing that is stored.
pub(super) fn schedules() -> Vec<Route> {
    vec![
        Route::raw(
            "/delay/schedule/set",
            "Create or change a recurring schedule",
            (&[Admin], Topic),
            schedule::set::set,
        )
        .body(Content)
        .reads::<schedule::set::Request>()
        .answers::<wire::ScheduleShown>(),
        Route::call(
            "/delay/schedule/get",
            "Show a recurring schedule with its last occurrences",
            (READ, Topic),
            schedule::manage::get,
        )
        .only_reads()
        .errors(UNKNOWN),
        Route::call(
            "/delay/schedule/list",
            "List the recurring schedules of a topic",
            (READ, Topic),
            schedule::manage::list,
        )
        .only_reads()
        .errors(UNKNOWN),
        Route::call(
            "/delay/schedule/pause",
            "Pause a recurring schedule",
            (&[Admin], Topic),
            schedule::manage::pause,
        )
        .errors(UNKNOWN),
        Route::call(
            "/delay/schedule/resume",
            "Resume a recurring schedule",
            (&[Admin], Topic),
            schedule::manage::resume,
        )
        .errors(UNKNOWN),
        Route::call(
            "/delay/schedule/delete",
            "Delete a recurring schedule",
            (&[Admin], Topic),
            schedule::manage::delete,
        )
        .errors(UNKNOWN),
        Route::call(
            "/delay/schedule/run",
            "Add an occurrence of a recurring schedule now",
            (&[Produce], Topic),
            schedule::run::run,
        )
        .errors(&[1004, 1022])
        .takes_key(),
        Route::call(
            "/delay/schedule/records",
            "Show whole recurring schedules, or pause them for a move to another store",
            (&[Admin], Topic),
            schedule::transfer::records,
        )
        .errors(UNKNOWN),
        Route::call(
            "/delay/schedule/moved",
            "Delete recurring schedules that were moved to another store",
            (&[Admin], Topic),
            schedule::transfer::moved,
        )
        .errors(UNKNOWN),
        Route::raw(
            "/delay/schedule/adopt",
            "Store recurring schedules of another store, which continue here",
            (&[Admin], Topic),
            schedule::adopt::adopt,
        )
        .body(Batch)
        .reads::<schedule::adopt::Request>()
        .answers::<wire::ScheduleAdoptAnswer>()
        .errors(&[1009]),
        Route::raw(
            "/delay/schedule/preview",
            "Show the next moments of a recurring schedule",
            (&Scope::ALL, EachOfThem),
            schedule::preview::preview,
        )
        .only_reads()
        .reads::<schedule::preview::PreviewRequest>()
        .answers::<wire::SchedulePreview>(),
    ]
}
