//! All sizes of `docs/performance/capacity.md`. See `scripts/capacity`.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::capacity::figures::Figures;
use crate::capacity::run::run;
use crate::capacity::setup::Setup;

const INSTANCES: [usize; 6] = [1, 2, 4, 10, 20, 50];
const LANES: [usize; 4] = [10, 100, 1_000, 10_000];
const RATES: [f64; 3] = [20.0, 1_000.0, 10_000.0];

/// The sizes that are compared with a real Redis, as in `scripts/performance/capacity_real.py`.
const REAL_INSTANCES: [usize; 3] = [1, 2, 4];
const REAL_LANES: [usize; 3] = [1, 10, 100];
const REAL_RATES: [f64; 2] = [20.0, 1_000.0];

/// Deployments of the sizing table: tasks per second, instances and lanes.
const DEPLOYMENTS: [(f64, usize, usize); 3] =
    [(1_000.0, 2, 100), (10_000.0, 4, 100), (100_000.0, 20, 200)];
/// The highest utilization of a server in the sizing table. Sockets come on top of it.
const HIGHEST_UTILIZATION: f64 = 0.4;
/// More servers take too long to simulate.
const MOST_SERVERS: usize = 128;

/// Setups that run one after the other, until one decides that the rest need not run.
struct Series {
    name: &'static str,
    setups: Vec<Setup>,
    /// Whether the setups after this one are left out.
    is_last: fn(&Figures) -> bool,
}

/// Prints the figures of many sizes. The environment variable `CAPACITY_ONLY` names the series to
/// run, `CAPACITY_SIZES` their sizes as `tasks/s,lanes,instances`, separated by semicolons, and
/// `CAPACITY_FIGURES` a file to which the figures are written as JSON.
pub(crate) fn print_the_curves() {
    let only = std::env::var("CAPACITY_ONLY").unwrap_or_else(|_| "curves,sizing,check".into());
    let is_wanted = |series: &Series| only.split(',').any(|name| name == series.name);
    let sizes = std::env::var("CAPACITY_SIZES").ok();
    let has_size = |setup: &Setup| {
        let size = format!("{},{},{}", setup.rate, setup.lanes, setup.instances);
        sizes.as_ref().is_none_or(|sizes| sizes.split(';').any(|wanted| wanted == size))
    };
    let of_sizes = |mut series: Series| {
        series.setups.retain(has_size);
        series
    };
    let figures = run_all(all().into_iter().filter(is_wanted).map(of_sizes).collect());
    if let Some(path) = std::env::var_os("CAPACITY_FIGURES") {
        let text = serde_json::to_string_pretty(&figures).unwrap();
        std::fs::write(path, text + "\n").unwrap();
    }
}

fn all() -> Vec<Series> {
    let mut all = Vec::new();
    for (rate, instances, lanes) in DEPLOYMENTS {
        let servers = (0..).map(|power| 1 << power).take_while(|servers| *servers <= MOST_SERVERS);
        let setup = |servers| Setup { servers, ..Setup::new(instances, lanes, rate) };
        let is_last = |figures: &Figures| figures.utilization <= HIGHEST_UTILIZATION;
        all.push(Series { name: "sizing", setups: servers.map(setup).collect(), is_last });
    }
    for rate in RATES {
        for lanes in LANES {
            let setups = INSTANCES.map(|instances| Setup::new(instances, lanes, rate)).to_vec();
            // More instances are too much as well.
            all.push(Series { name: "curves", setups, is_last: Figures::is_overloaded });
        }
    }
    let stall = |seconds| Setup {
        stall: Duration::from_secs(seconds),
        warm_up: Duration::from_secs(240),
        ..Setup::new(50, 10_000, 1_000.0)
    };
    all.push(Series { name: "stall", setups: vec![stall(5), stall(20)], is_last: |_| false });
    for rate in REAL_RATES {
        for lanes in REAL_LANES {
            let setups = REAL_INSTANCES.map(|instances| Setup::new(instances, lanes, rate));
            all.push(Series { name: "check", setups: setups.to_vec(), is_last: |_| false });
        }
    }
    all
}

/// Runs all series, on as many threads as there are processors, and prints each size when it is
/// done. Returns the figures by the names of the series, in their order.
fn run_all(all: Vec<Series>) -> Value {
    println!("{}", Figures::HEAD);
    let next = Mutex::new(all.iter().enumerate());
    let done: Mutex<BTreeMap<usize, Vec<Value>>> = Mutex::default();
    let work = || {
        while let Some((place, series)) = { next.lock().unwrap().next() } {
            for setup in &series.setups {
                let began = Instant::now();
                let figures = run(setup);
                println!("{}   ({:.1} s)", figures.row(), began.elapsed().as_secs_f64());
                let _ = std::io::stdout().flush();
                done.lock().unwrap().entry(place).or_default().push(figures.json());
                if (series.is_last)(&figures) {
                    break;
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut named: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (place, figures) in done.into_inner().unwrap() {
        named.entry(all[place].name).or_default().extend(figures);
    }
    json!(named)
}
