//! Which primary has which slot.

use std::sync::Arc;

use deadpool_redis::redis::{FromRedisValue, Value};

use super::address::Address;
use super::dial::DialTarget;
use super::node::{self, Node};
use super::slot::SLOTS;
use crate::store::{Error, Result};

/// Marks a slot without an owner.
const UNOWNED: u16 = u16::MAX;

/// The primaries and, in a cluster, their slots. Immutable: a change makes another map.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    nodes: Vec<Arc<Node>>,
    /// The index of each slot's owner in `nodes`; `None` if one server has all slots.
    owners: Option<Box<[u16]>>,
}

/// A range of slots and its owner, from `CLUSTER SLOTS`.
#[derive(Debug, PartialEq, Eq)]
struct SlotRange {
    first: u16,
    last: u16,
    owner: Address,
}

impl Map {
    /// A map of one server that has all slots.
    pub(crate) fn of_one(node: Node) -> Self {
        Self { nodes: vec![Arc::new(node)], owners: None }
    }

    /// The map of a cluster of which nothing is known yet.
    pub(crate) fn unknown() -> Self {
        Self { nodes: Vec::new(), owners: Some(vec![UNOWNED; SLOTS].into()) }
    }

    pub(crate) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// Whether some slots have no owner.
    pub(crate) fn has_holes(&self) -> bool {
        self.owners.as_ref().is_some_and(|owners| owners.contains(&UNOWNED))
    }

    /// The owner of a slot. Without a slot, any node that is up.
    pub(crate) fn owner(&self, slot: Option<u16>) -> Option<&Arc<Node>> {
        match (&self.owners, slot) {
            (Some(owners), Some(slot)) => self.nodes.get(usize::from(owners[usize::from(slot)])),
            _ => self.nodes.iter().find(|node| node.is_up()).or(self.nodes.first()),
        }
    }

    /// The node with a number.
    pub(crate) fn numbered(&self, number: u64) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.number == number)
    }

    /// The node at an address.
    pub(crate) fn at(&self, address: &Address) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.address.as_ref() == Some(address))
    }

    /// This map with another node.
    pub(crate) fn with(&self, node: Node) -> Self {
        let mut map = self.clone();
        map.nodes.push(Arc::new(node));
        map
    }

    /// This map with another owner of one slot, which must be one of its nodes.
    pub(crate) fn with_owner(&self, slot: u16, address: &Address) -> Self {
        let mut map = self.clone();
        let place = map.nodes.iter().position(|node| node.address.as_ref() == Some(address));
        if let (Some(owners), Some(place)) = (&mut map.owners, place) {
            owners[usize::from(slot)] = place as u16;
        }
        map
    }

    /// The map in the answer of the server at `asked` to `CLUSTER SLOTS`. Known nodes are kept.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an answer that cannot be read.
    pub(crate) fn told(
        &self,
        slots: Value,
        asked: &Address,
        params: &node::Params,
    ) -> Result<Self> {
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        let mut owners = vec![UNOWNED; SLOTS];
        for range in read(slots, asked)? {
            let known = nodes.iter().position(|node| node.address.as_ref() == Some(&range.owner));
            let place = known.unwrap_or_else(|| {
                let node = self.at(&range.owner).cloned();
                nodes.push(node.unwrap_or_else(|| {
                    Arc::new(Node::new(DialTarget::Server(range.owner.clone()), params))
                }));
                nodes.len() - 1
            });
            owners[usize::from(range.first)..=usize::from(range.last)].fill(place as u16);
        }
        Ok(Self { nodes, owners: Some(owners.into()) })
    }

    /// Whether the two maps are equal.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let numbers = |map: &Self| map.nodes.iter().map(|node| node.number).collect::<Vec<_>>();
        numbers(self) == numbers(other) && self.owners == other.owners
    }
}

fn read(slots: Value, asked: &Address) -> Result<Vec<SlotRange>> {
    let corrupt = || Error::Corrupt("CLUSTER SLOTS cannot be read".into());
    let ranges = Vec::<Vec<Value>>::from_redis_value(slots).map_err(|_| corrupt())?;
    let range = |fields: Vec<Value>| -> Option<SlotRange> {
        let mut fields = fields.into_iter();
        let first = u16::from_redis_value(fields.next()?).ok()?;
        let last = u16::from_redis_value(fields.next()?).ok()?;
        let mut primary = Vec::<Value>::from_redis_value(fields.next()?).ok()?.into_iter();
        let host = Option::<String>::from_redis_value(primary.next()?).ok()?.unwrap_or_default();
        let port = u16::from_redis_value(primary.next()?).ok()?;
        let owner = Address::read(&format!("{host}:{port}"), asked)?;
        (first <= last && usize::from(last) < SLOTS).then_some(SlotRange { first, last, owner })
    };
    ranges.into_iter().map(|fields| range(fields).ok_or_else(corrupt)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primary_of_each_range_is_read_and_replicas_are_passed_over() {
        let text = |text: &str| Value::BulkString(text.into());
        let node = |host: Value, port: i64| {
            Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![])])
        };
        let range = |first: i64, last: i64, nodes: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
        };
        let asked = Address { host: "10.0.0.9".into(), port: 9 };
        let slots = Value::Array(vec![
            range(0, 99, vec![node(text("10.0.0.1"), 1), node(text("10.0.0.2"), 2)]),
            range(100, 16_383, vec![node(text(""), 3)]),
        ]);
        let owner = |host: &str, port| Address { host: host.into(), port };
        let expected = [
            SlotRange { first: 0, last: 99, owner: owner("10.0.0.1", 1) },
            SlotRange { first: 100, last: 16_383, owner: owner("10.0.0.9", 3) },
        ];
        assert_eq!(read(slots, &asked).unwrap(), expected);
        let beyond = Value::Array(vec![range(0, 16_384, vec![node(text("a"), 1)])]);
        assert!(matches!(read(beyond, &asked), Err(Error::Corrupt(_))));
        assert!(matches!(read(Value::Int(1), &asked), Err(Error::Corrupt(_))));
    }
}
