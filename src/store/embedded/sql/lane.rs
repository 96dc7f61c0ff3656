//! `lane`: names and numbers of lanes, and their counts.

pub(crate) static ID: &str = "SELECT id FROM lane WHERE topic = ? AND shard = ?";
pub(crate) static INSERT: &str = "INSERT INTO lane (topic, shard) VALUES (?, ?)";
pub(crate) static DELETE_OF_TOPIC: &str = "DELETE FROM lane WHERE topic = ?";

/// Adds to the counts.
pub(crate) static COUNT: &str =
    "UPDATE lane SET scheduled = scheduled + ?, leased = leased + ?, delivered = delivered + ?,
     dead = dead + ?, cancelled = cancelled + ?, expired = expired + ? WHERE id = ?";
pub(crate) static PENDING: &str = "SELECT scheduled + leased FROM lane WHERE id = ?";
/// How many tasks were delivered, cancelled or expired.
pub(crate) static ENDED: &str = "SELECT delivered + cancelled + expired FROM lane WHERE id = ?";
pub(crate) static IS_EMPTY: &str =
    "SELECT scheduled + leased + delivered + dead + cancelled + expired = 0 FROM lane WHERE id = ?";
pub(crate) static TOPIC_HAS_TASKS: &str = "SELECT EXISTS (SELECT 1 FROM lane WHERE topic = ?
     AND scheduled + leased + delivered + dead + cancelled + expired > 0)";

rows! {
    /// The counts of a lane, and its earliest due moment.
    counts: "SELECT " [
        scheduled, leased, delivered, dead, cancelled, expired,
        earliest = "(SELECT min(earliest) FROM destination WHERE lane = ?1)",
    ] " FROM lane WHERE id = ?1";

    /// The counts of a lane, for the sampler.
    sampled: "SELECT " [id, scheduled, leased, delivered, dead, cancelled, expired]
        " FROM lane WHERE topic = ? AND shard = ?";

    /// What a purge would find in a lane. Tasks of each state end in the order of their moments.
    history: "SELECT " [
        ended = "delivered + cancelled + expired",
        delivered = "(SELECT min(finished) FROM history WHERE lane = l.id AND state = 2)",
        cancelled = "(SELECT min(finished) FROM history WHERE lane = l.id AND state = 4)",
        expired = "(SELECT min(finished) FROM history WHERE lane = l.id AND state = 5)",
        has_leftovers = "EXISTS (SELECT 1 FROM idempotency WHERE lane = l.id AND until <= ?3)
            OR EXISTS (SELECT 1 FROM owed_call WHERE lane = l.id)",
    ] " FROM lane l WHERE topic = ?1 AND shard = ?2";

    /// The next moments at which a worker has something to do in a lane.
    next_due: "SELECT " [
        first_deadline = "(SELECT min(due) FROM progress WHERE lane = l.id AND leased = 1)",
        last_deadline = "(SELECT max(due) FROM progress WHERE lane = l.id AND leased = 1)",
        earliest = "(SELECT min(earliest) FROM destination WHERE lane = l.id AND called = 1)",
        expires = "(SELECT min(moment) FROM expiry WHERE lane = l.id)",
    ] " FROM lane l WHERE topic = ? AND shard = ?";

    /// The same for a consumer, with the columns of `next_due`.
    next_pull: "SELECT " [
        first_deadline = "(SELECT min(due) FROM progress WHERE lane = l.id AND leased = 1)",
        last_deadline = "(SELECT max(due) FROM progress WHERE lane = l.id AND leased = 1)",
        earliest = "(SELECT min(earliest) FROM destination WHERE lane = l.id AND called = 0)",
        expires = "NULL",
    ] " FROM lane l WHERE topic = ? AND shard = ?";

    /// Topics that have lanes and are not registered.
    lost_topics: "SELECT " [topic, shards = "max(shard) + 1"]
        " FROM lane WHERE topic NOT IN (SELECT name FROM topic) GROUP BY topic";
}

// For a check.
rows! {
    /// The highest lane of each topic.
    last: "SELECT " [topic, shard = "max(shard)"] " FROM lane GROUP BY topic";
}
