//! Composes a Lua script: the file in `lua/`, preceded by the functions of `lua/lib/` that it uses.
//! Redis compiles all functions of a script anew for each call, so every unused function would cost
//! time.
//!
//! The head of a file names the files of the library that it uses:
//!
//! ```lua
//! -- uses: now, keys, lease
//! ```
//!
//! A library file is a list of definitions: functions, constants and variables. Each begins with
//! `local` at the start of a line. [`compose`] takes the definitions whose names the script
//! contains, and those that they contain in turn. A line `-- include: open` is replaced by that
//! whole file: statements that run at this place.
//!
//! A library file uses only files before it in [`LIBRARY`], and only definitions above its own, so
//! one walk backwards finds all of them. No script defines a name that the library defines. Tests
//! hold these rules, and that each head names exactly the files that its file uses.
//!
//! Comments are not sent.

use std::collections::BTreeSet;

macro_rules! library {
    ($($name:ident),+) => {
        [$((stringify!($name), include_str!(concat!("lua/lib/", stringify!($name), ".lua")))),+]
    };
}

/// The library: names and texts.
const LIBRARY: [(&str, &str); 18] = library![
    now,
    keys,
    entry,
    record,
    owner,
    idempotency,
    entries,
    expiry,
    schedule,
    lease,
    ending,
    sweep,
    forget,
    where,
    check,
    open,
    lanes,
    registry
];

/// A definition of a library file.
struct Definition<'a> {
    /// `local a, b = …` defines two names.
    names: Vec<&'a str>,
    code: String,
}

/// Composes the script of a file, without its flags.
pub(super) fn compose(file: &str) -> String {
    let script = with_included(file);
    let code = code_of(&script);
    let mut files = used_by(&script);
    let mut names: BTreeSet<String> = names_in(&code);
    let mut parts = vec![code.clone()];
    for (name, text) in LIBRARY.iter().rev().copied() {
        if !files.contains(name) {
            continue;
        }
        files.extend(used_by(text));
        for definition in definitions(text).into_iter().rev() {
            if definition.names.iter().any(|name| names.contains(*name)) {
                names.extend(names_in(&definition.code));
                parts.push(definition.code);
            }
        }
    }
    parts.reverse();
    parts.concat()
}

fn text_of(name: &str) -> &'static str {
    let file = LIBRARY.iter().find(|(other, _)| *other == name);
    file.expect("a test composes every script").1
}

fn with_included(file: &str) -> String {
    let text = |line: &str| match line.strip_prefix("-- include: ") {
        Some(name) => text_of(name.trim_end()).to_owned(),
        None => line.to_owned(),
    };
    file.split_inclusive('\n').map(text).collect()
}

/// The library files that a text names in its head.
fn used_by(text: &str) -> BTreeSet<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("-- uses: "))
        .flat_map(|names| names.split(", "))
        .collect()
}

/// The text without comments and blank lines.
fn code_of(text: &str) -> String {
    let is_code = |line: &&str| {
        !matches!(line.trim_start(), "" | "\n") && !line.trim_start().starts_with("--")
    };
    text.split_inclusive('\n').filter(is_code).collect()
}

fn definitions(text: &str) -> Vec<Definition<'_>> {
    let mut all: Vec<Definition<'_>> = Vec::new();
    for line in text.split_inclusive('\n') {
        if let Some(names) = names_defined(line) {
            all.push(Definition { names, code: String::new() });
        }
        if let Some(last) = all.last_mut() {
            last.code += &code_of(line);
        }
    }
    all
}

/// The names that a line defines for the rest of its file.
fn names_defined(line: &str) -> Option<Vec<&str>> {
    let rest = line.strip_prefix("local ")?;
    Some(match rest.strip_prefix("function ") {
        Some(function) => vec![&function[..function.find('(')?]],
        None => rest.split('=').next()?.split(',').map(str::trim).collect(),
    })
}

/// The names in some code, except fields (`entry.lease`).
fn names_in(code: &str) -> BTreeSet<String> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = code.as_bytes();
    let mut names = BTreeSet::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            quote @ (b'\'' | b'"') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            byte if is_word(byte) => {
                at += bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
                let is_field = code[..start].ends_with('.') && !code[..start].ends_with("..");
                if !is_field {
                    names.insert(code[start..at].to_owned());
                }
            }
            _ => at += 1,
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::script::files;
    use super::*;

    /// The names that a text defines at the start of a line.
    fn defined_by(text: &str) -> BTreeSet<&str> {
        text.lines().filter_map(names_defined).flatten().collect()
    }

    /// The library files, except `own`, that define a name of the text.
    fn needed_by(own: &str, text: &str) -> BTreeSet<&'static str> {
        let names = names_in(&code_of(text));
        let defines = |text| defined_by(text).iter().any(|name| names.contains(*name));
        LIBRARY
            .iter()
            .filter(|(file, text)| *file != own && defines(text))
            .map(|(file, _)| *file)
            .collect()
    }

    #[test]
    fn the_head_of_a_file_names_the_library_files_that_it_uses() {
        for (name, text) in LIBRARY.iter().chain(files()) {
            assert_eq!(used_by(text), needed_by(name, text), "-- uses: in {name}.lua");
        }
    }

    #[test]
    fn files_of_the_library_use_only_files_before_them() {
        for (place, (name, text)) in LIBRARY.iter().enumerate() {
            let before: BTreeSet<_> = LIBRARY[..place].iter().map(|(name, _)| *name).collect();
            assert!(used_by(text).is_subset(&before), "{name}.lua uses a file behind it");
        }
    }

    #[test]
    fn a_name_is_defined_once() {
        let mut seen = BTreeSet::new();
        for (name, text) in LIBRARY {
            for defined in defined_by(text) {
                assert!(seen.insert(defined), "{name}.lua defines {defined} a second time");
            }
        }
        for (name, text) in files() {
            let twice: Vec<_> = seen.intersection(&defined_by(text)).copied().collect();
            assert!(twice.is_empty(), "{name}.lua defines {twice:?} of the library");
        }
    }

    /// The library was more than half of most scripts.
    #[test]
    fn a_script_carries_only_what_it_uses() {
        for (name, text) in files() {
            let script = compose(text);
            let names: Vec<_> = definitions(&script)
                .into_iter()
                .flat_map(|part| part.names)
                .map(str::to_owned)
                .collect();
            let count = |name: &str| {
                definitions(&script)
                    .iter()
                    .filter(|part| names_in(&part.code).contains(name))
                    .count()
            };
            for defined in LIBRARY.iter().flat_map(|(_, text)| defined_by(text)) {
                if names.iter().any(|name| name == defined) {
                    let outside = names_in(&code_of(&with_included(text))).contains(defined);
                    assert!(
                        outside || count(defined) > 1,
                        "{name}.lua carries {defined} and does not use it"
                    );
                }
            }
        }
    }

    #[test]
    fn a_script_is_its_code_behind_what_it_uses_in_turn() {
        let script = "-- Does it.\n-- uses: lease\nreturn deadline_of(ARGV[2])\n";
        let expected = "local LEASED = KEYS[6]\n\
            local function deadline_of(id)\n  \
            return tonumber(redis.call('ZSCORE', LEASED, id) or nil)\nend\n\
            return deadline_of(ARGV[2])\n";
        assert_eq!(compose(script), expected);
    }

    #[test]
    fn names_are_told_from_fields_and_texts() {
        let names: Vec<_> =
            names_in("a.b = c..d .. 'e \\' f' .. \"g\" .. h[1]").into_iter().collect();
        assert_eq!(names, ["1", "a", "c", "d", "h"]);
    }
}
