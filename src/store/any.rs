//! The store that was picked at start, and how it has the verbs of the contract.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::Instant;

use super::{
    Durability, Error, Hint, Message, PING_TIMEOUT, Result, Signals, Store, counted, embedded,
    redis,
};
use crate::metrics::{Op, StoreMetrics};
use crate::model::breaker;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, StoreId};

/// Declares a part of the contract: the trait, and how the two stores and [`AnyStore`] have it.
/// `=> Op` names the operation as which [`AnyStore`] measures the verb. It boxes the futures,
/// because those of the stores are deep, and their callers' would be deeper.
macro_rules! contract {
    (
        $(#[$about:meta])*
        pub trait $part:ident $(: $base:ident)? {
            $(
                $(#[$doc:meta])*
                async fn $verb:ident(&self $(, $argument:ident: $type:ty)* $(,)?) -> $answer:ty
                    => $op:ident;
            )*
        }
    ) => {
        $(#[$about])*
        pub trait $part: $($base +)? Send + Sync + 'static {
            $(
                $(#[$doc])*
                fn $verb(&self $(, $argument: $type)*) -> impl Future<Output = $answer> + Send;
            )*
        }

        const _: () = {
            use tokio::time::Instant;
            use $crate::metrics::Op;
            use $crate::store::any::AnyStore;
            use $crate::store::counted;

            impl $part for AnyStore {
                $(async fn $verb(&self $(, $argument: $type)*) -> $answer {
                    let began = Instant::now();
                    let answer = match self {
                        Self::Embedded(store) => Box::pin(store.$verb($($argument),*)).await,
                        Self::Redis(store) => Box::pin(store.$verb($($argument),*)).await,
                    };
                    counted::count(self.metrics(), Op::$op, began, &answer);
                    answer
                })*
            }
        };

        contract! {
            $part for $crate::store::embedded::Embedded, std::convert::identity {
                $($verb($($argument: $type),*) -> $answer)*
            }
        }
        contract! {
            $part for $crate::store::redis::Redis, $crate::store::redis::Redis::session {
                $($verb($($argument: $type),*) -> $answer)*
            }
        }
    };
    (
        $part:ident for $store:ty, $verbs:path {
            $($verb:ident($($argument:ident: $type:ty),*) -> $answer:ty)*
        }
    ) => {
        impl $part for $store {
            $(async fn $verb(&self $(, $argument: $type)*) -> $answer {
                // The method of the type, not this one.
                $verbs(self).$verb($($argument),*).await
            })*
        }
    };
}

/// One of the two stores.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one store")]
pub enum AnyStore {
    /// SQLite in this process.
    Embedded(embedded::Embedded),
    /// Redis.
    Redis(redis::Redis),
}

/// Calls a method of whichever store it is.
macro_rules! either {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            AnyStore::Embedded($store) => $call,
            AnyStore::Redis($store) => $call,
        }
    };
}

impl AnyStore {
    /// Its name in the configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Embedded(_) => "embedded",
            Self::Redis(_) => "redis",
        }
    }

    /// What this store counts.
    pub fn metrics(&self) -> &Arc<StoreMetrics> {
        either!(self, store => store.metrics())
    }
}

impl Signals for AnyStore {
    async fn id(&self) -> Result<StoreId> {
        either!(self, store => store.id().await)
    }

    fn hints(&self) -> broadcast::Receiver<Hint> {
        either!(self, store => store.hints())
    }

    fn messages(&self) -> Option<broadcast::Receiver<Message>> {
        either!(self, store => store.messages())
    }

    fn tell_others(&self, message: Message) {
        either!(self, store => store.tell_others(message))
    }

    fn server_of(&self, lane: &Lane) -> u64 {
        either!(self, store => store.server_of(lane))
    }

    fn round_trip(&self, lane: &Lane) -> Duration {
        either!(self, store => store.round_trip(lane))
    }
}

impl Store for AnyStore {
    fn durability(&self) -> Durability {
        either!(self, store => store.durability())
    }

    fn breaker(&self) -> breaker::State {
        either!(self, store => store.breaker())
    }

    async fn ping(&self) -> Result<UnixMillis> {
        let began = Instant::now();
        let ping = async { either!(self, store => Box::pin(store.ping()).await) };
        let silent = |_| Err(Error::Unavailable("no answer to a ping".into()));
        let answer = tokio::time::timeout(PING_TIMEOUT, ping).await.unwrap_or_else(silent);
        counted::count(self.metrics(), Op::Ping, began, &answer);
        answer
    }

    async fn close(&self) {
        either!(self, store => Box::pin(store.close()).await)
    }
}
