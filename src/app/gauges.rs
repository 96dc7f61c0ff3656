//! Connects the metrics with the limits of calls, which each scrape reads.

use std::sync::Arc;

use crate::callback::Services;
use crate::limits::{DestinationLimits, SlotFigures};
use crate::metrics::{DestinationGauges, LimitFigures, Metrics};
use crate::model::task::Destination;

/// Connects the limits of calls with the metrics. Services of the configuration get their labels
/// first, because callers could otherwise use up all labels with hosts of their choice.
pub(super) fn connect(metrics: &Metrics, limits: &DestinationLimits, services: Arc<Services>) {
    for service in services.all() {
        service.metrics(&metrics.callbacks);
    }
    let callbacks = metrics.callbacks.clone();
    limits.observe_breakers(move |destination, to| {
        callbacks.service(destination.as_str()).breaker_changed(to);
    });
    let limits = limits.clone();
    metrics.destinations.read_by(move |names| read(&limits, &services, names));
}

fn read(limits: &DestinationLimits, services: &Services, names: &[Arc<str>]) -> LimitFigures {
    let allowance = |name: &Destination| {
        services.get(name.as_str()).map(|service| service.allowance()).unwrap_or_default()
    };
    let named: Vec<_> = names
        .iter()
        .map(|name| {
            let name: Destination = name.parse().expect("the label of a service is its name");
            let allowance = allowance(&name);
            (name, allowance)
        })
        .collect();
    let survey = limits.survey(&named);
    LimitFigures {
        in_flight: survey.in_flight,
        limit: survey.limit,
        services: survey.named.into_iter().map(figures).collect(),
        others: figures(survey.others),
    }
}

fn figures(figures: SlotFigures) -> DestinationGauges {
    let SlotFigures { in_flight, window, breakers } = figures;
    DestinationGauges { in_flight, window, breakers }
}
