//! Pulls that wait: their queue per topic, the dispatcher that claims for them, and the delivery of what was claimed.

pub(crate) mod delivery;
pub(crate) mod dispatcher;
pub(crate) mod queue;
