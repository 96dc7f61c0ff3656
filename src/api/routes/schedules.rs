//! The rows of the calls under `/delay/schedule/`.

use delayd_wire::{self as wire, Nothing};

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
        Route::call(
            "/delay/schedule/set",
            "Create or change a recurring schedule",
            schedule::set::set,
        )
        .access(&[Admin], Topic)
        .body(Content)
        .reads::<schedule::set::Request>()
        .answers::<wire::ScheduleShown>(),
        Route::call(
            "/delay/schedule/get",
            "Show a recurring schedule with its last occurrences",
            schedule::manage::get,
        )
        .only_reads()
        .access(READ, Topic)
        .reads::<schedule::manage::Request>()
        .answers::<wire::ScheduleShown>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/schedule/list",
            "List the recurring schedules of a topic",
            schedule::manage::list,
        )
        .only_reads()
        .access(READ, Topic)
        .reads::<schedule::manage::ListRequest>()
        .answers::<wire::Schedules>()
        .errors(UNKNOWN),
        Route::call("/delay/schedule/pause", "Pause a recurring schedule", schedule::manage::pause)
            .access(&[Admin], Topic)
            .reads::<schedule::manage::Request>()
            .answers::<wire::ScheduleShown>()
            .errors(UNKNOWN),
        Route::call(
            "/delay/schedule/resume",
            "Resume a recurring schedule",
            schedule::manage::resume,
        )
        .access(&[Admin], Topic)
        .reads::<schedule::manage::Request>()
        .answers::<wire::ScheduleShown>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/schedule/delete",
            "Delete a recurring schedule",
            schedule::manage::delete,
        )
        .access(&[Admin], Topic)
        .reads::<schedule::manage::Request>()
        .answers::<Nothing>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/schedule/run",
            "Add an occurrence of a recurring schedule now",
            schedule::add::run,
        )
        .access(&[Produce], Topic)
        .reads::<schedule::add::RunRequest>()
        .answers::<wire::ScheduleRan>()
        .errors(&[1004, 1022])
        .takes_key(),
        Route::call(
            "/delay/schedule/backfill",
            "Add the occurrences of past moments",
            schedule::add::backfill,
        )
        .access(&[Admin], Topic)
        .reads::<schedule::add::BackfillRequest>()
        .answers::<wire::ScheduleBackfilled>()
        .errors(&[1004, 1022]),
        Route::call(
            "/delay/schedule/records",
            "Show whole recurring schedules, or pause them for a move to another store",
            schedule::transfer::records,
        )
        .access(&[Admin], Topic)
        .reads::<schedule::transfer::RecordsRequest>()
        .answers::<wire::ScheduleRecords>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/schedule/moved",
            "Delete recurring schedules that were moved to another store",
            schedule::transfer::moved,
        )
        .access(&[Admin], Topic)
        .reads::<schedule::transfer::MovedRequest>()
        .answers::<wire::SchedulesEnded>()
        .errors(UNKNOWN),
        Route::call(
            "/delay/schedule/adopt",
            "Store recurring schedules of another store, which continue here",
            schedule::adopt::adopt,
        )
        .access(&[Admin], Topic)
        .body(Batch)
        .reads::<schedule::adopt::Request>()
        .answers::<wire::ScheduleAdoptAnswer>()
        .errors(&[1009]),
        Route::call(
            "/delay/schedule/preview",
            "Show the next moments of a recurring schedule",
            schedule::preview::preview,
        )
        .only_reads()
        .access(&Scope::ALL, EachOfThem)
        .reads::<schedule::preview::PreviewRequest>()
        .answers::<wire::SchedulePreview>(),
    ]
}
