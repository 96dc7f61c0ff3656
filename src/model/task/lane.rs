//! The lane: a shard of a topic, the unit of locking and claiming.

use std::fmt;
use std::str::FromStr;

use super::{InvalidName, TaskId, Topic};

/// One shard of a topic, written `topic:shard`. In Redis it is one hash tag, so all keys of a lane
/// live on one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The topic.
    pub topic: Topic,
    /// The shard, from 0 to the number of shards of the topic − 1.
    pub shard: u16,
}

impl Lane {
    /// The lane of `id`, in a topic with `shards` lanes. It depends only on the id.
    pub fn of(topic: Topic, id: TaskId, shards: u16) -> Self {
        Self { topic, shard: Self::shard_of(id, shards) }
    }

    /// The shard of `id`, in a topic with `shards` lanes.
    pub fn shard_of(id: TaskId, shards: u16) -> u16 {
        u16::try_from(id.0 % u64::from(shards.max(1))).expect("a remainder of a u16 is a u16")
    }

    /// The shard of a key, in a topic with `shards` lanes: FNV-1a with 64 bits
    /// (<https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>). It must never change, because
    /// stored tasks depend on it.
    pub fn shard_of_key(key: &str, shards: u16) -> u16 {
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        u16::try_from(hash % u64::from(shards.max(1))).expect("a remainder of a u16 is a u16")
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.topic, self.shard)
    }
}

impl FromStr for Lane {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let malformed = || InvalidName("must be written topic:shard".into());
        let (topic, shard) = text.rsplit_once(':').ok_or_else(malformed)?;
        Ok(Self { topic: topic.parse()?, shard: shard.parse().map_err(|_| malformed())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_reads_back_what_it_writes_even_with_colons_in_the_topic() {
        let lane: Lane = "order:eu:3".parse().unwrap();
        assert_eq!((lane.topic.as_str(), lane.shard), ("order:eu", 3));
        assert_eq!(lane.to_string(), "order:eu:3");
    }

    #[test]
    fn a_keys_shard_never_changes() {
        // The published test vectors of FNV-1a: "" is the offset basis, "foobar" is
        // 0x85944171f73967e8.
        assert_eq!(u64::from(Lane::shard_of_key("", 256)), 0xcbf2_9ce4_8422_2325_u64 % 256);
        assert_eq!(u64::from(Lane::shard_of_key("foobar", 100)), 0x8594_4171_f739_67e8_u64 % 100);
        assert_eq!(Lane::shard_of_key("any", 1), 0);
    }

    #[test]
    fn an_id_alone_finds_its_lane() {
        let topic: Topic = "t".parse().unwrap();
        assert_eq!(Lane::of(topic.clone(), TaskId(17), 4).shard, 1);
        assert_eq!(Lane::of(topic, TaskId(17), 1).shard, 0);
    }
}
