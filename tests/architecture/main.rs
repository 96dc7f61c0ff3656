//! The rules of the layout, checked on the sources: which module may import which, and how long a
//! file may be.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]
#![allow(clippy::print_stdout, reason = "the imports are printed for readers")]

mod imports;
mod prose;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use imports::{Graph, folders};

/// A module of the first level, and which others of the first level it may name.
///
/// Imports run one way: model ← store, limits ← callback, topic ← worker ← app; api beside worker.
const RULES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("tls", &[]),
    ("dns", &[]),
    ("store", &["dns", "metrics", "model", "tls"]),
    ("topic", &["model", "store"]),
    ("audit", &["limits", "metrics", "model", "store"]),
    ("limits", &["model"]),
    ("trace", &["dns", "metrics", "model"]),
    ("callback", &["dns", "limits", "metrics", "model", "tls", "trace"]),
    ("outcome", &["callback", "model", "store"]),
    ("planner", &["model", "store"]),
    ("maintenance", &["metrics", "model", "planner", "store", "topic"]),
    ("instances", &["limits", "metrics", "model", "store"]),
    (
        "worker",
        &[
            "callback",
            "instances",
            "limits",
            "metrics",
            "model",
            "outcome",
            "store",
            "topic",
            "trace",
        ],
    ),
    (
        "api",
        &[
            "audit",
            "callback",
            "instances",
            "limits",
            "metrics",
            "model",
            "outcome",
            "planner",
            "sampler",
            "store",
            "tls",
            "topic",
            "trace",
        ],
    ),
    ("metrics", &["model"]),
    ("sampler", &["callback", "instances", "limits", "metrics", "model", "store", "topic"]),
    ("telemetry", &["metrics"]),
    ("settings", &["callback", "model", "store", "telemetry", "tls", "trace", "worker"]),
    (
        "app",
        &[
            "api",
            "audit",
            "callback",
            "instances",
            "limits",
            "maintenance",
            "metrics",
            "model",
            "outcome",
            "sampler",
            "settings",
            "store",
            "telemetry",
            "tls",
            "topic",
            "trace",
            "worker",
        ],
    ),
    ("cli", &["api", "app", "callback", "model", "settings", "store", "telemetry"]),
];

/// Crates that stay out of a module, and why.
const CRATES: &[(&str, &[&str], &str)] = &[
    ("store", &["axum", "reqwest", "hyper", "http", "tower"], "the store knows no HTTP"),
    (
        "worker",
        &["axum", "reqwest", "hyper", "rusqlite", "deadpool_redis"],
        "the worker knows neither HTTP nor a backend",
    ),
    (
        "callback",
        &["axum", "rusqlite", "deadpool_redis"],
        "the callback client knows neither the edge nor a store",
    ),
    (
        "api",
        &["reqwest", "rusqlite", "deadpool_redis", "config"],
        "the edge knows neither a backend nor the settings",
    ),
    (
        "model",
        &["axum", "reqwest", "hyper", "tower", "rusqlite", "deadpool_redis"],
        "the model does no I/O",
    ),
    ("outcome", &["tokio", "axum", "reqwest", "rand"], "the outcome is pure"),
];

/// The layers of a first-level module, the lowest first: files or folders in it. `mod.rs`, which
/// puts them together, stands above all. A layer imports itself and those below it.
const LAYERS: &[(&str, &[&str])] = &[
    ("store", &["error", "format", "check", "contract", "counted", "embedded", "redis", "any"]),
    (
        "api",
        &[
            "wire",
            "auth",
            "params",
            "long_poll",
            "places",
            "concurrency_limit",
            "memory_budget",
            "live",
            "forecasts",
            "state",
            "middleware",
            "transport",
            "handlers",
            "static_file",
            "docs",
            "dashboard",
            "openapi",
            "routes",
        ],
    ),
    (
        "worker",
        &[
            "params",
            "time",
            "ownership",
            "in_flight",
            "notes",
            "settler",
            "ambiguity",
            "shared",
            "idle_limits",
            "delays",
            "permits",
            "pages",
            "wake_ups",
            "due",
            "claim",
            "call",
            "lane",
            "poll",
            "supervisor",
        ],
    ),
];

/// The crates beside this one, and which of the project's crates each may depend on.
const MEMBERS: &[(&str, &[&str])] = &[("bench", &["delayd-wire"]), ("wire", &[])];

/// First-level modules, and crates, in which files still import each other in a circle.
const CIRCULAR: &[&str] = &[];

/// A file longer than this, tests and all, is asked to be two.
const LONGEST_FILE: usize = 500;

fn source(below: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(below)
}

/// The sources of a crate beside this one.
fn member(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates").join(name).join("src")
}

fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            files(&entry.unwrap().path(), found);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        found.push(path.to_owned());
    }
}

/// The files of a first-level module: `src/name.rs` or all of `src/name/`.
fn files_of(module: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in [source(&format!("{module}.rs")), source(module)] {
        if path.exists() {
            files(&path, &mut found);
        }
    }
    assert!(!found.is_empty(), "there is no module {module}");
    found
}

/// The code of a file, without its tests and comments.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The identifiers that follow `start`, such as the modules after `crate::`; braces are looked
/// into.
fn names_after(code: &str, start: &str) -> BTreeSet<String> {
    let identifier = |text: &str| {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
    };
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(start) {
        let rest = &code[at + start.len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let mut depth = 1;
                let mut fresh = true;
                for (i, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 1 => fresh = true,
                        c if fresh && c.is_alphabetic() => {
                            names.insert(identifier(&list[i..]));
                            fresh = false;
                        }
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            None => {
                names.insert(identifier(rest));
            }
        }
    }
    names
}

#[test]
fn every_module_has_a_rule() {
    let lib = fs::read_to_string(source("lib.rs")).unwrap();
    let modules: BTreeSet<String> = names_after(&lib, "pub mod ");
    let ruled: BTreeSet<String> = RULES.iter().map(|(module, _)| (*module).to_owned()).collect();
    assert_eq!(modules, ruled);
}

#[test]
fn imports_run_one_way() {
    for (module, allowed) in RULES {
        for file in files_of(module) {
            for name in names_after(&code(&file), "crate::") {
                let is_module = RULES.iter().any(|(other, _)| *other == name);
                let is_allowed = !is_module || name == *module || allowed.contains(&name.as_str());
                assert!(is_allowed, "{} may not import crate::{name}", file.display());
            }
        }
    }
}

#[test]
fn a_crate_depends_on_no_other_than_its_rule_allows() {
    for (name, allowed) in MEMBERS {
        let manifest = fs::read_to_string(member(name).with_file_name("Cargo.toml")).unwrap();
        let (_, dependencies) = manifest.split_once("\n[dependencies]\n").unwrap();
        for line in dependencies.lines().filter(|line| line.starts_with("delayd")) {
            let dependency = line.split([' ', '.', '=']).next().unwrap();
            assert!(allowed.contains(&dependency), "{name} may not depend on {dependency}");
        }
    }
}

/// Printed with `--no-capture`: for each folder and crate, its imports and its circles.
#[test]
fn no_files_import_each_other_in_a_circle() {
    let graph = Graph::read();
    let mut circular = BTreeSet::new();
    for folder in folders() {
        let cycles = graph.cycles(&folder);
        println!("{folder}: {} imports, {} circles", graph.below(&folder).count(), cycles.len());
        for cycle in &cycles {
            println!("    {}", cycle.join(", "));
            circular.insert(folder.clone());
        }
    }
    let known: BTreeSet<String> = CIRCULAR.iter().map(|folder| (*folder).to_owned()).collect();
    assert_eq!(
        circular, known,
        "found and known; take a folder from the list once it has no circle"
    );
}

#[test]
fn no_layer_imports_one_above_it() {
    let graph = Graph::read();
    for (folder, layers) in LAYERS {
        let layer = |module: &str| match module.split("::").nth(1) {
            None => layers.len(),
            Some(name) => layers.iter().position(|layer| *layer == name).unwrap_or(layers.len()),
        };
        for (from, to) in graph.below(folder) {
            println!("{from} ─▶ {to}");
            assert!(
                layer(from) >= layer(to),
                "{from} may not import {to}: it stands in a higher layer"
            );
        }
    }
}

#[test]
fn crates_stay_where_they_belong() {
    for (module, banned, why) in CRATES {
        for file in files_of(module) {
            let code = code(&file);
            for name in *banned {
                let names_it =
                    code.contains(&format!("use {name}::")) || code.contains(&format!(" {name}::"));
                assert!(!names_it, "{} uses {name}, but {why}", file.display());
            }
        }
    }
}

#[test]
fn no_file_is_two() {
    let mut all = Vec::new();
    files(&source(""), &mut all);
    MEMBERS.iter().for_each(|(name, _)| files(&member(name), &mut all));
    for file in all {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines; is it two?", file.display());
    }
}

#[test]
fn every_script_has_a_head_that_names_its_arguments_answer_and_transition() {
    let folder = source("store/redis/lua");
    for (folder, word) in [(folder.join("lib"), "."), (folder, "returns")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let head: String = text
                .lines()
                .take_while(|line| line.starts_with("--"))
                .collect::<Vec<_>>()
                .join("\n");
            assert!(head.contains(word), "{} has no {word} in its head", path.display());
        }
    }
}

/// A statement of the embedded store stands in the file of its table. What only looks at the file
/// itself may stand elsewhere.
#[test]
fn sql_stands_in_the_files_of_the_tables() {
    let mut all = Vec::new();
    files(&source("store/embedded"), &mut all);
    let of_a_test =
        |name: &str| ["tests.rs", "testing.rs", "fuzzed.rs"].iter().any(|end| name.ends_with(end));
    for file in all {
        let name = file.display().to_string();
        if name.contains("/sql/") || of_a_test(&name) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for line in code.lines().filter(|line| !line.contains("sqlite_schema")) {
            let verb = ["\"SELECT ", "\"INSERT ", "\"UPDATE ", "\"DELETE "]
                .into_iter()
                .find(|verb| line.contains(verb));
            assert!(
                verb.is_none(),
                "{name} holds a statement, which belongs to store/embedded/sql: {line}"
            );
        }
    }
}
