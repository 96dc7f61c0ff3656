//! `destination`: the schedules of a lane.

pub(crate) static ID: &str = "SELECT id FROM destination WHERE lane = ? AND name = ?";
/// The next number in a range.
pub(crate) static NEXT_ID: &str =
    "SELECT ifnull(max(id) + 1, ?1) FROM destination WHERE id BETWEEN ?1 AND ?2";
pub(crate) static INSERT: &str =
    "INSERT INTO destination (id, lane, name, called) VALUES (?, ?, ?, ?)";
pub(crate) static SET_EARLIEST: &str = "UPDATE destination SET earliest = ? WHERE id = ?";
/// The earliest moment after another at which a called destination has a due task.
pub(crate) static EARLIEST_AFTER: &str =
    "SELECT min(earliest) FROM destination WHERE lane = ? AND called = 1 AND earliest > ?";
pub(crate) static DELETE_OF_TOPIC: &str =
    "DELETE FROM destination WHERE lane IN (SELECT id FROM lane WHERE topic = ?)";
/// The ids of the tasks that wait in a lane.
pub(crate) static WAITING_IDS: &str = "SELECT s.id \
    FROM destination d CROSS JOIN schedule s ON s.destination = d.id WHERE d.lane = ? LIMIT ?";
/// The moments that they wait for, up to one.
pub(crate) static WAITING_MOMENTS: &str = "SELECT s.due \
    FROM destination d CROSS JOIN schedule s ON s.destination = d.id WHERE d.lane = ? \
    AND s.due <= ?";

rows! {
    schedule: "SELECT " [called, earliest] " FROM destination WHERE id = ?";

    /// Deletes a host's destination, if that was its last task.
    released: "DELETE FROM destination WHERE id = ?1
                 AND NOT EXISTS (SELECT 1 FROM task WHERE destination = ?1 \
                 AND destination >= 1099511627776)
                 AND NOT EXISTS (SELECT 1 FROM schedule WHERE destination = ?1)
                 RETURNING " [lane, name] "";

    /// Called destinations with a due task whose earliest moment is after another.
    due: "SELECT " [id, name, earliest] " FROM destination
             WHERE lane = ? AND called = 1 AND earliest > ? AND earliest <= ?
             ORDER BY earliest, id LIMIT ?";

    /// Called destinations of one moment, after one of them. With the columns of `due`.
    due_at: "SELECT " [id, name, earliest] " FROM destination
             WHERE lane = ? AND called = 1 AND earliest = ? AND id > ? ORDER BY id LIMIT ?";

    /// The called destinations that tasks wait for, for the sampler.
    sampled: "SELECT " [id, name, earliest] " FROM destination
             WHERE lane = ? AND called = 1 AND earliest IS NOT NULL ORDER BY earliest, id LIMIT ?";

    /// The pulled tasks, with the columns of `sampled`.
    sampled_pull: "SELECT " [id, name, earliest] " FROM destination
             WHERE lane = ? AND name = '@pull' AND earliest IS NOT NULL LIMIT ?";

    by_earliest: "SELECT " [id, earliest]
        " FROM destination WHERE lane = ? AND earliest IS NOT NULL ORDER BY earliest";

    /// How many tasks wait for each called destination.
    waiting: "SELECT " [
        name = "d.name",
        count = "(SELECT count(*) FROM schedule s WHERE s.destination = d.id)",
    ]
        " FROM destination d WHERE d.lane = ? AND d.called = 1 AND d.earliest IS NOT NULL";
}
