//! `note`: notes of attempts.

/// Inserts nothing if the task is gone or in another lane.
pub(crate) static INSERT: &str = "INSERT INTO note (task, number, attempt, started, took, \
    outcome, answer)
             SELECT id, (SELECT ifnull(max(number), 0) + 1 FROM note \
             WHERE task = ?1), ?3, ?4, ?5, ?6, ?7
             FROM task WHERE id = ?1 AND lane = ?2";
/// Deletes all except the newest ones, whose number is a parameter.
pub(crate) static DELETE_OLDEST: &str = "DELETE FROM note WHERE task = ?1 \
    AND number <= (SELECT max(number) FROM note WHERE task = ?1) - ?2";
pub(crate) static DELETE_OF_TASK: &str = "DELETE FROM note WHERE task = ?";

rows! {
    of_task: "SELECT " [
        attempt = "n.attempt", started = "n.started", took = "n.took", outcome = "n.outcome",
        answer = "n.answer",
    ] " FROM note n JOIN task t ON t.id = n.task
         WHERE n.task = ? AND t.lane = ? ORDER BY n.number";
}
