//! Values that are one of several words.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::Visitor;
use strum::{VariantArray, VariantNames};

/// Declares values that are one of several words, in the given case. A word is read from a string,
/// and from nothing else.
macro_rules! words {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident $case:tt { $($(#[$about:meta])* $word:ident,)+ }
    )+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
        #[derive(strum::EnumCount, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
        #[serde(rename_all = $case)]
        #[strum(serialize_all = $case, const_into_str)]
        $visibility enum $name { $($(#[$about])* $word,)+ }

        #[allow(dead_code, reason = "not every word needs both")]
        impl $name {
            /// Every value.
            $visibility const ALL: [Self; <Self as strum::EnumCount>::COUNT] =
                *<Self as strum::VariantArray>::VARIANTS.first_chunk().expect("as many");

            /// The name.
            $visibility const fn as_str(self) -> &'static str {
                self.into_str()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                crate::word::read(from)
            }
        }
    )+};
}

words! {

/// A task's state. A task whose lease has expired counts as `scheduled`.
#[derive(PartialOrd, Ord, Hash)]
pub enum TaskState "lowercase" {
    /// Waits for its due time, for a retry, or for a free slot.
    Scheduled,
    /// A holder has the task until its lease ends.
    Leased,
    /// Acknowledged.
    Delivered,
    /// Out of attempts, or the receiver's answer was final. Kept until it is replayed or purged.
    Dead,
    /// Cancelled by a caller.
    Cancelled,
    /// Not delivered in time: past its `expires_after`, or due in a pause with `misfire` "skip".
    Expired,
}

/// How a task is delivered.
#[derive(Default)]
pub enum Mode "lowercase" {
    /// `push` if the content has `sn` or `url`, otherwise `pull`.
    #[default]
    Auto,
    /// delayd calls the receiver.
    Push,
    /// Consumers pull the task.
    Pull,
}

/// `push`: delayd calls the receiver. `pull`: consumers pull the task.
pub enum Way "lowercase" {
    /// delayd calls the receiver.
    Push,
    /// Consumers pull the task.
    Pull,
}

/// The kind of a lease's holder.
pub enum Holder "lowercase" {
    /// A worker, which calls the destination.
    Worker,
    /// A consumer, which pulled the task.
    Consumer,
    /// A receiver, which was called and acknowledges later.
    Receiver,
    /// A mover, which moves the task to another store.
    Mover,
}

/// Which failures a stored task survives.
pub enum Durability "kebab-case" {
    /// On disk before the answer.
    Fsynced,
    /// Redis with `appendfsync always`.
    AofAlways,
    /// Redis with `appendfsync everysec`: a crash of the machine may lose one second.
    AofEverysec,
    /// Redis without AOF, or with `appendfsync no`: a crash of the server loses it.
    Volatile,
}

/// What happens to tasks that were due while their topic was paused.
#[derive(Default)]
pub enum MisfirePolicy "lowercase" {
    /// They are delivered late.
    #[default]
    Fire,
    /// They expire without delivery.
    Skip,
    /// They become dead, and can be replayed.
    Dead,
}

/// The order of a list of tasks.
#[derive(Default)]
pub enum ListOrder "lowercase" {
    /// The earliest first.
    #[default]
    Oldest,
    /// The latest first.
    Newest,
}

/// The order of a list of topics. Topics of equal value follow each other by name.
#[derive(Default)]
pub enum TopicSort "snake_case" {
    /// By name.
    #[default]
    Name,
    /// The earliest due time first, so overdue topics come first; topics without tasks last.
    NextDue,
    /// The topic with the oldest overdue task first; topics without overdue tasks last.
    OldestOverdue,
    /// Most scheduled and leased tasks first.
    Pending,
    /// Most dead tasks first.
    Dead,
}

/// The state of a circuit breaker.
///
/// The order is from healthy to unhealthy.
#[derive(Default, PartialOrd, Ord)]
pub enum BreakerState "snake_case" {
    /// Calls go through.
    #[default]
    Closed,
    /// Probes go through.
    HalfOpen,
    /// No call goes through.
    Open,
}

}

impl TaskState {
    /// Whether the task has ended. (A dead task can still be replayed.)
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Leased)
    }
}

impl From<Way> for Mode {
    fn from(way: Way) -> Self {
        match way {
            Way::Push => Self::Push,
            Way::Pull => Self::Pull,
        }
    }
}

/// Reads a word from a string.
///
/// serde_json alone reports a number or a list as invalid JSON, and accepts `{"push": null}` for
/// `"push"`. This reader refuses both, and its error lists the words.
pub(crate) fn read<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Copy + VariantArray + VariantNames,
{
    struct Reader<T>(PhantomData<T>);

    impl<T: Copy + VariantArray + VariantNames> Visitor<'_> for Reader<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let names: Vec<_> =
                <T as VariantNames>::VARIANTS.iter().map(|name| format!("{name:?}")).collect();
            write!(f, "one of {}", names.join(", "))
        }

        fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<T, E> {
            let names = <T as VariantNames>::VARIANTS;
            let at = names.iter().position(|known| *known == name);
            at.map(|at| <T as VariantArray>::VARIANTS[at])
                .ok_or_else(|| E::unknown_variant(name, names))
        }
    }

    from.deserialize_str(Reader(PhantomData))
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    #[test]
    fn a_name_is_the_one_on_the_wire() {
        fn check<T: Copy + Serialize + VariantArray>(name: fn(T) -> &'static str) {
            for value in T::VARIANTS {
                assert_eq!(serde_json::to_value(value).unwrap(), name(*value));
            }
        }
        check(TaskState::as_str);
        check(Mode::as_str);
        check(Way::as_str);
        check(Holder::as_str);
        check(Durability::as_str);
        check(MisfirePolicy::as_str);
        check(ListOrder::as_str);
        check(TopicSort::as_str);
        check(BreakerState::as_str);
    }

    #[test]
    fn only_a_string_names_a_word() {
        let said = |json: &str| serde_json::from_str::<Mode>(json).unwrap_err().to_string();
        let check = |json: &str, says: &str| {
            assert!(said(json).starts_with(says), "{json}: {}", said(json))
        };
        assert_eq!(serde_json::from_str::<Mode>(r#""push""#).unwrap(), Mode::Push);
        check("5", r#"invalid type: integer `5`, expected one of "auto", "push", "pull""#);
        check(r#"["push"]"#, r#"invalid type: sequence, expected one of "auto", "push", "pull""#);
        check(r#"{"push":null}"#, r#"invalid type: map, expected one of "auto", "push", "pull""#);
        check(r#""fly""#, "unknown variant `fly`, expected one of `auto`, `push`, `pull`");
    }
}
