//! The model at small sizes, in the ordinary test suite.

use std::time::Duration;

use super::costs::Script;
use super::figures::Figures;
use super::run::run;
use super::setup::Setup;

/// A short run, whose tasks have short delays.
fn short(instances: usize, lanes: usize, rate: f64) -> Setup {
    let seconds = Duration::from_secs;
    let (delays, warm_up, span) = ((seconds(1), seconds(2)), seconds(4), seconds(3));
    Setup { delays, warm_up, span, ..Setup::new(instances, lanes, rate) }
}

/// Runs a setup and prints the figures.
fn shown(setup: &Setup) -> Figures {
    let figures = run(setup);
    println!("{}\n{}", Figures::HEAD, figures.row());
    figures
}

#[test]
fn one_instance_calls_few_scripts_for_a_task() {
    let figures = shown(&Setup { span: Duration::from_secs(20), ..short(1, 1, 20.0) });
    assert!((300..500).contains(&figures.tasks()), "{} tasks", figures.tasks());
    assert!(figures.claims_a_task() <= 2.0, "{} claims a task", figures.claims_a_task());
    let moves = figures.calls_a_task(&[Script::Add, Script::Claim, Script::Settle]);
    assert!((2.0..=3.0).contains(&moves), "{moves} calls a task that move tasks");
    assert!(figures.lateness_ms(50) < 3.0, "{} ms", figures.lateness_ms(50));
}

#[test]
fn the_time_of_all_scripts_is_the_time_that_the_server_is_busy() {
    let figures = shown(&short(3, 20, 200.0));
    let (by_clock, by_costs) = (figures.utilization, figures.utilization_by_costs());
    assert!(by_clock > 0.01, "{by_clock}");
    // At most one script runs across the beginning, and one across the end.
    assert!((by_clock - by_costs).abs() < 1e-3, "{by_clock} and {by_costs}");
}

#[test]
fn a_seed_gives_the_same_figures_again() {
    let figures = [1, 1, 2].map(|seed| run(&Setup { seed, ..short(3, 20, 100.0) }).json());
    assert_eq!(figures[0], figures[1]);
    assert_ne!(figures[0], figures[2], "the seed changes nothing");
}

#[test]
fn a_server_that_has_too_much_to_do_is_overloaded() {
    let seconds = Duration::from_secs;
    let short = short(2, 100, 12_000.0);
    let figures = shown(&Setup { warm_up: seconds(3), span: seconds(1), ..short });
    assert!(figures.is_overloaded());
}

#[test]
fn two_servers_share_the_work() {
    let [one, two] = [1, 2].map(|servers| shown(&Setup { servers, ..short(2, 20, 500.0) }));
    assert!(two.utilization < 0.7 * one.utilization);
}

/// Most tasks are added through an instance that does not own their lane.
#[test]
fn the_owner_of_a_lane_hears_of_tasks_that_others_store() {
    let figures = shown(&short(3, 20, 50.0));
    assert!((0.2..1.2).contains(&figures.calls_a_task(&[Script::Publish])));
    assert!(figures.claims_a_task() < 1.3, "{} claims a task", figures.claims_a_task());
}

/// A server that is late with all lanes makes them overdue, so that other instances stand in for
/// their owners. If all came at once, each would claim there, and the server would stay late for
/// good. The turns bring one every 2 s.
#[test]
fn a_late_server_does_not_bring_all_instances_to_all_lanes() {
    let seconds = Duration::from_secs;
    let figures = shown(&Setup {
        slowness: 20,
        sampled: 12,
        concurrency: 64,
        delays: (seconds(1), seconds(2)),
        warm_up: seconds(10),
        span: seconds(4),
        ..Setup::new(30, 450, 45.0)
    });
    assert!(!figures.is_overloaded());
    assert!(figures.claims_a_task() < 5.0, "{} claims a task", figures.claims_a_task());
}

/// After the stall, all lanes are overdue, and all instances stand in for all owners. That ends.
#[test]
fn the_instances_recover_from_a_server_that_stood_still() {
    let seconds = Duration::from_secs;
    let figures = shown(&Setup {
        slowness: 20,
        sampled: 12,
        stall: seconds(8),
        delays: (seconds(1), seconds(2)),
        warm_up: seconds(40),
        span: seconds(4),
        ..Setup::new(30, 450, 45.0)
    });
    assert!(!figures.is_overloaded());
    assert!(figures.lateness_ms(99) < 100.0, "{} ms", figures.lateness_ms(99));
    assert!(figures.claims_a_task() < 2.0, "{} claims a task", figures.claims_a_task());
}
