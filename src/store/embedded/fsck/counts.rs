//! Checks the counts of each lane.

use rusqlite::Connection;
use rusqlite::types::Value;

use super::remedy::Remedy;
use super::{Page, Stage, read_lane};
use crate::store::Flaw;
use crate::store::embedded::sql;
use crate::store::embedded::sql::lane::counted;

/// The number of counts of a lane.
const COUNTS: usize = counted::rows_scheduled - counted::scheduled;

/// Triggers that change the counts as remedies change rows. Other writes count by themselves, which
/// costs less.
const FOLLOW: &str = "
    CREATE TEMP TRIGGER count_scheduled AFTER INSERT ON schedule BEGIN
        UPDATE lane SET scheduled = scheduled + 1 WHERE id = (SELECT lane FROM destination \
        WHERE id = NEW.destination);
    END;
    CREATE TEMP TRIGGER count_unscheduled AFTER DELETE ON schedule BEGIN
        UPDATE lane SET scheduled = scheduled - 1 WHERE id = (SELECT lane FROM destination \
        WHERE id = OLD.destination);
    END;
    CREATE TEMP TRIGGER count_unleased AFTER DELETE ON progress BEGIN
        UPDATE lane SET leased = leased - (OLD.leased = 1) WHERE id = OLD.lane;
    END;
    CREATE TEMP TRIGGER count_changed AFTER UPDATE ON progress BEGIN
        UPDATE lane SET leased = leased - (OLD.leased = 1) WHERE id = OLD.lane;
        UPDATE lane SET leased = leased + (NEW.leased = 1) WHERE id = NEW.lane;
    END;
    CREATE TEMP TRIGGER count_ended AFTER INSERT ON history BEGIN
        UPDATE lane SET delivered = delivered + (NEW.state = 2), dead = dead + (NEW.state = 3),
            cancelled = cancelled + (NEW.state = 4), expired = expired + (NEW.state = 5) \
            WHERE id = NEW.lane;
    END;
    CREATE TEMP TRIGGER count_forgotten AFTER DELETE ON history BEGIN
        UPDATE lane SET delivered = delivered - (OLD.state = 2), dead = dead - (OLD.state = 3),
            cancelled = cancelled - (OLD.state = 4), expired = expired - (OLD.state = 5) \
            WHERE id = OLD.lane;
    END;
    CREATE TEMP TRIGGER count_otherwise AFTER UPDATE ON history BEGIN
        UPDATE lane SET delivered = delivered - (OLD.state = 2), dead = dead - (OLD.state = 3),
            cancelled = cancelled - (OLD.state = 4), expired = expired - (OLD.state = 5) \
            WHERE id = OLD.lane;
        UPDATE lane SET delivered = delivered + (NEW.state = 2), dead = dead + (NEW.state = 3),
            cancelled = cancelled + (NEW.state = 4), expired = expired + (NEW.state = 5) \
            WHERE id = NEW.lane;
    END;";

const UNFOLLOW: &str = "
    DROP TRIGGER temp.count_scheduled;
    DROP TRIGGER temp.count_unscheduled;
    DROP TRIGGER temp.count_unleased;
    DROP TRIGGER temp.count_changed;
    DROP TRIGGER temp.count_ended;
    DROP TRIGGER temp.count_forgotten;
    DROP TRIGGER temp.count_otherwise;";

/// From here on the counts follow the rows.
pub(super) fn follow(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(FOLLOW)
}

pub(super) fn unfollow(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(UNFOLLOW)
}

/// One lane at a time, because it may have many rows.
pub(super) fn look(db: &Connection, after: i64) -> rusqlite::Result<Page> {
    let mut page = Page::default();
    let mut select = db.prepare_cached(counted::SQL)?;
    let mut found = select.query([after])?;
    let Some(row) = found.next()? else { return Ok(page) };
    let id: i64 = row.get(counted::id)?;
    let read = |first: usize| {
        (first..first + COUNTS).map(|column| row.get(column)).collect::<Result<Vec<i64>, _>>()
    };
    let (said, held) = (read(counted::scheduled)?, read(counted::rows_scheduled)?);
    if said != held {
        let lane = read_lane(row, (counted::topic, counted::shard))?;
        let subject = lane.as_ref().map_or_else(|| id.to_string(), ToString::to_string);
        let values: Vec<Value> = held.into_iter().chain([id]).map(Value::from).collect();
        page.find(
            Flaw::CountsWrong,
            lane.as_ref(),
            subject,
            vec![Remedy::new(sql::lane::SET_COUNTS, values)],
        );
    }
    page.rest = Some(Stage::Counts { after: id });
    Ok(page)
}
