//! The imports between the files of `src` and of `crates/*/src`, read from their `use` lines and
//! from paths in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::{MEMBERS, code, files, member, source};

/// All files, each named by its module path (`api::wire::json`), with what each imports. The module
/// paths of a crate in `crates/` begin with the crate's name.
pub(crate) struct Graph(BTreeMap<String, BTreeSet<String>>);

impl Graph {
    /// Reads all files but those of tests.
    pub(crate) fn read() -> Self {
        let mut paths = Vec::new();
        files(&source(""), &mut paths);
        MEMBERS.iter().for_each(|(name, _)| files(&member(name), &mut paths));
        let modules: Modules = paths
            .into_iter()
            .filter(|path| !is_test(path))
            .map(|path| (module_of(&path), Module::of(&code(&path))))
            .collect();
        let imports = |(name, module): (&String, &Module)| {
            let files = module.imported.iter().filter_map(|path| file_of(path, name, &modules));
            (name.clone(), files.filter(|file| file != name).collect())
        };
        Self(modules.iter().map(imports).collect())
    }

    /// All imports from one file to another, below a first-level module.
    pub(crate) fn below(&self, folder: &str) -> impl Iterator<Item = (&str, &str)> {
        let is_below = move |module: &str| first(module) == folder;
        let edges =
            self.0.iter().flat_map(|(from, all)| all.iter().map(|to| (from.as_str(), to.as_str())));
        edges.filter(move |(from, to)| is_below(from) && is_below(to))
    }

    /// The groups of files of a first-level module that import each other in a circle.
    pub(crate) fn cycles(&self, folder: &str) -> Vec<Vec<&str>> {
        let files: Vec<&str> =
            self.0.keys().map(String::as_str).filter(|module| first(module) == folder).collect();
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            files.iter().map(|file| (*file, self.reach(file, folder))).collect();
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for file in &files {
            let circle: Vec<&str> =
                reach[file].iter().copied().filter(|other| reach[other].contains(file)).collect();
            if circle.len() > 1 && circle.iter().all(|file| seen.insert(*file)) {
                cycles.push(circle);
            }
        }
        cycles
    }

    /// What a file imports within its folder, directly or by way of others.
    fn reach(&self, file: &str, folder: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut open = vec![file];
        while let Some(next) = open.pop() {
            for (_, to) in self
                .0
                .get_key_value(next)
                .into_iter()
                .flat_map(|(_, all)| all.iter().map(|to| (next, to)))
            {
                if first(to) == folder && found.insert(to.as_str()) {
                    open.push(to);
                }
            }
        }
        found
    }
}

fn first(module: &str) -> &str {
    module.split("::").next().unwrap_or_default()
}

fn is_test(path: &Path) -> bool {
    let name = path.file_stem().unwrap().to_str().unwrap();
    name == "tests" || name == "testing" || name.ends_with("_tests")
}

/// `src/api/wire/json.rs` is `api::wire::json`, `src/api/mod.rs` is `api`, and
/// `crates/bench/src/load.rs` is `bench::load`.
fn module_of(path: &Path) -> String {
    let of_member = MEMBERS
        .iter()
        .find_map(|(name, _)| path.strip_prefix(member(name)).ok().map(|path| (Some(*name), path)));
    let (member, path) =
        of_member.unwrap_or_else(|| (None, path.strip_prefix(source("")).unwrap()));
    let relative = path.with_extension("");
    let mut names: Vec<&str> = relative.iter().map(|name| name.to_str().unwrap()).collect();
    names.pop_if(|name| matches!(*name, "mod" | "lib"));
    member.into_iter().chain(names).collect::<Vec<_>>().join("::")
}

type Modules = BTreeMap<String, Module>;

/// The paths that a file names.
struct Module {
    /// In `use` lines, and as `crate::…` anywhere.
    imported: BTreeSet<String>,
    /// In `pub use` lines. Who takes a name from here imports the file that it is re-exported from.
    exported: Vec<String>,
}

impl Module {
    fn of(code: &str) -> Self {
        let (mut imported, mut exported, mut rest) = (Vec::new(), Vec::new(), String::new());
        let mut after = code;
        while let Some((before, tail)) = split_at_use(after) {
            let (tree, tail) = tail.split_once(';').unwrap_or((tail, ""));
            let is_public = before
                .trim_end()
                .rsplit(['\n', ';'])
                .next()
                .is_some_and(|line| line.trim().starts_with("pub"));
            expand(tree, "", if is_public { &mut exported } else { &mut imported });
            rest.push_str(before);
            after = tail;
        }
        rest.push_str(after);
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        // `pub(in crate::worker)` imports nothing.
        let rest = rest.replace("(in crate::", "(");
        imported.extend(rest.match_indices("crate::").map(|(at, _)| {
            rest[at..]
                .split(|c| !is_part(c))
                .next()
                .unwrap_or_default()
                .trim_end_matches(':')
                .to_owned()
        }));
        Self { imported: imported.into_iter().collect(), exported }
    }
}

/// What stands before the next `use`, and what after it.
fn split_at_use(code: &str) -> Option<(&str, &str)> {
    let (at, word) = code.match_indices("use ").find(|(at, _)| {
        let before = &code[..*at];
        before.trim_end_matches(' ').is_empty()
            || before.trim_end_matches(' ').ends_with('\n')
            || before.ends_with("pub ")
            || before.ends_with("pub(crate) ")
            || before.ends_with("pub(super) ")
    })?;
    Some((&code[..at], &code[at + word.len()..]))
}

/// `a::{b, c::{d, e}}` becomes `a::b`, `a::c::d` and `a::c::e`.
fn expand(tree: &str, before: &str, paths: &mut Vec<String>) {
    let Some((head, list)) = tree.split_once('{') else {
        paths.push(format!("{before}{}", tree.split_whitespace().next().unwrap_or_default()));
        return;
    };
    let before = format!("{before}{}", head.trim());
    let (mut depth, mut start) = (0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                let item = list[start..at].trim();
                if !item.is_empty() {
                    expand(item, &before, paths);
                }
                start = at + 1;
                if c == '}' {
                    return;
                }
            }
            _ => {}
        }
    }
}

/// The file that a path leads into: that of its longest beginning which is a module, or, if that
/// one re-exports the rest of the path, the file that the rest is in.
fn file_of(path: &str, module: &str, modules: &Modules) -> Option<String> {
    let mut names: Vec<&str> =
        if module.is_empty() { Vec::new() } else { module.split("::").collect() };
    let mut rest: Vec<&str> = path.split("::").map(str::trim).collect();
    match rest[0] {
        "crate" => {
            let is_member = MEMBERS.iter().any(|(name, _)| *name == first(module));
            names.truncate(usize::from(is_member));
            rest.remove(0);
        }
        "self" => drop(rest.remove(0)),
        "super" => {
            while rest.first() == Some(&"super") {
                rest.remove(0);
                names.pop();
            }
        }
        child if modules.contains_key(&join(&names, child)) => {}
        _ => return None,
    }
    while let Some(name) = rest.first()
        && modules.contains_key(&join(&names, name))
    {
        names.push(rest.remove(0));
    }
    let (file, found) = modules.get_key_value(&names.join("::"))?;
    let from = found
        .exported
        .iter()
        .find(|path| rest.first().is_some_and(|item| path.rsplit("::").next() == Some(item)));
    from.and_then(|path| file_of(path, file, modules)).or_else(|| Some(file.clone()))
}

fn join(names: &[&str], name: &str) -> String {
    names.iter().copied().chain([name]).collect::<Vec<_>>().join("::")
}

/// The first-level modules that are folders, and the crates beside this one.
pub(crate) fn folders() -> BTreeSet<String> {
    let entries = fs::read_dir(source("")).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    let folders = folders.map(|entry| entry.file_name().into_string().unwrap());
    folders.chain(MEMBERS.iter().map(|(name, _)| (*name).to_owned())).collect()
}
