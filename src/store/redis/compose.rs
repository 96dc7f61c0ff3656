//! Composes a Lua script: the file in `lua/` with the definitions of `lua/lib/` that it uses.
//!
//! Redis runs a script from its first line in each call, and builds each function that it meets on
//! the way. So a definition costs time even if nothing calls it, unless the call returns before it,
//! or it stands in a branch that is not taken.
//!
//! A line in a file names files of the library:
//!
//! ```lua
//! -- uses: now, keys, lease
//! ```
//!
//! At this line, [`compose`] inserts the definitions that the rest of the block uses, and those
//! that they use in turn. A file may have several such lines, for example one in a rare branch. If
//! several lines can provide a definition, it is inserted at the last one that all its uses see.
//! Branches that share no such line get a copy each.
//!
//! A library file is a list of definitions: functions, constants and variables. Each begins with
//! `local` at the start of a line. The first `-- uses:` line of the file holds for all definitions;
//! one in a function holds for that function only.
//!
//! A library file uses only files before it in [`LIBRARY`], and only definitions above its own, so
//! one walk backwards finds all of them. No script defines a name that the library defines. Tests
//! hold these rules.
//!
//! The library file `constants` has no file: [`CONSTANTS`] is made of those of the program.
//!
//! Comments are not sent.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::LazyLock;

use crate::model::task::TaskId;
use crate::store::{
    EXPIRED, FURTHEST_DEADLINE, INSTANCE_TTL, LAST_MOMENT, LEASE_RAN_OUT, MAX_EXPIRIES,
    MAX_RECEIPTS, MAX_RECENT, MAX_SAMPLED, MISFIRED, SKIPPED, UNPLANNED, UNREADABLE,
};

/// The definitions of what the scripts share with the rest of the program.
static CONSTANTS: LazyLock<String> = LazyLock::new(|| {
    let constants: [(&str, &dyn Debug); 14] = [
        ("EXPIRED", &EXPIRED),
        ("FURTHEST_DEADLINE_MS", &FURTHEST_DEADLINE.as_millis()),
        ("INSTANCE_TTL_MS", &INSTANCE_TTL.as_millis()),
        ("LAST_MOMENT", &LAST_MOMENT.0),
        ("LEASE_RAN_OUT", &LEASE_RAN_OUT),
        ("MAX_EXPIRIES", &MAX_EXPIRIES),
        ("MAX_ID", &TaskId::MAX.0),
        ("MAX_RECEIPTS", &MAX_RECEIPTS),
        ("MAX_RECENT", &MAX_RECENT),
        ("MAX_SAMPLED", &MAX_SAMPLED),
        ("MISFIRED", &MISFIRED),
        ("SKIPPED", &SKIPPED),
        ("UNPLANNED", &UNPLANNED),
        ("UNREADABLE", &UNREADABLE),
    ];
    // Lua reads numbers and quoted texts as Rust writes them.
    constants.iter().map(|(name, value)| format!("local {name} = {value:?}\n")).collect()
});

macro_rules! library {
    ($($name:ident),+) => {
        [
            ("constants", CONSTANTS.as_str()),
            $((stringify!($name), include_str!(concat!("lua/lib/", stringify!($name), ".lua")))),+
        ]
    };
}

/// The library: names and texts.
static LIBRARY: LazyLock<[(&str, &str); 20]> = LazyLock::new(|| {
    library![
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
        recurring,
        overdue,
        forget,
        where,
        open,
        lanes,
        registry
    ]
});

/// The definitions of each library file.
static DEFINITIONS: LazyLock<Vec<(&str, Vec<LuaDefinition<'_>>)>> =
    LazyLock::new(|| LIBRARY.iter().map(|(name, text)| (*name, definitions(text))).collect());

/// A line of code, or a `-- uses:` line.
#[derive(Clone)]
struct LuaLine<'a> {
    indent: usize,
    text: &'a str,
    /// The names in the code.
    names: Vec<&'a str>,
    /// The files that a `-- uses:` line names, and the files that these use.
    provides: BTreeSet<&'static str>,
}

impl<'a> LuaLine<'a> {
    /// Reads a line; `None` if it is blank or another comment.
    fn read(line: &'a str) -> Option<Self> {
        let text = line.trim_start();
        let used = files_named(text);
        if text.is_empty() || (text.starts_with("--") && used.is_empty()) {
            return None;
        }
        let names = if used.is_empty() { names_in(text) } else { Vec::new() };
        let mut provides = BTreeSet::new();
        used.into_iter().for_each(|file| provide(file, &mut provides));
        Some(Self { indent: line.len() - text.len(), text, names, provides })
    }
}

/// A definition of a library file.
struct LuaDefinition<'a> {
    /// `local a, b = …` defines two names.
    names: Vec<&'a str>,
    lines: Vec<LuaLine<'a>>,
}

/// Composes the script of a file, without its flags.
pub(super) fn compose(file: &str) -> String {
    let mut script: Vec<LuaLine<'_>> = file.lines().filter_map(LuaLine::read).collect();
    for (name, definitions) in DEFINITIONS.iter().rev() {
        if !script.iter().any(|line| line.provides.contains(name)) {
            continue;
        }
        for LuaDefinition { names, lines } in definitions.iter().rev() {
            for place in places_of(names, name, &script).into_iter().rev() {
                let indent = script[place].indent;
                let indented = |line: &LuaLine<'static>| LuaLine {
                    indent: line.indent + indent,
                    ..line.clone()
                };
                script.splice(place + 1..place + 1, lines.iter().map(indented));
            }
        }
    }
    let code = script.into_iter().filter(|line| line.provides.is_empty());
    code.map(|LuaLine { indent, text, .. }| format!("{:indent$}{text}\n", "")).collect()
}

/// The `-- uses:` lines at which a definition of a file is inserted, in order.
fn places_of(names: &[&str], file: &str, script: &[LuaLine<'_>]) -> BTreeSet<usize> {
    let provides = |at: &usize| script[*at].provides.contains(file);
    let lines: Vec<_> =
        (0..script.len()).filter(provides).map(|at| (at, end_of_block(script, at))).collect();
    let mut last_seen = BTreeSet::new();
    for (at, line) in script.iter().enumerate() {
        if names.iter().any(|name| line.names.contains(name)) {
            last_seen.extend(lines.iter().rfind(|(place, end)| *place < at && at < *end));
        }
    }
    // What one of these lines provides is seen in the whole rest of its block.
    let mut places = BTreeSet::new();
    let mut seen_to = 0;
    for (place, end) in last_seen {
        if place >= seen_to {
            places.insert(place);
            seen_to = end;
        }
    }
    places
}

/// Where the block of a line ends: at the first line after it that is indented less.
fn end_of_block(script: &[LuaLine<'_>], at: usize) -> usize {
    let rest = script[at..].iter().position(|line| line.indent < script[at].indent);
    rest.map_or(script.len(), |length| at + length)
}

/// The files that a `-- uses:` line names.
fn files_named(line: &str) -> Vec<&str> {
    let names = line.trim_start().strip_prefix("-- uses: ");
    names.map_or_else(Vec::new, |names| names.trim_end().split(", ").collect())
}

/// Adds a library file and those that all its definitions may use.
fn provide(file: &str, provided: &mut BTreeSet<&'static str>) {
    let (name, text) =
        LIBRARY.iter().find(|(other, _)| *other == file).expect("a test composes every script");
    if provided.insert(*name) {
        let head = text.lines().filter(|line| line.starts_with("-- "));
        head.flat_map(files_named).for_each(|used| provide(used, provided));
    }
}

fn definitions(text: &str) -> Vec<LuaDefinition<'_>> {
    let mut all: Vec<LuaDefinition<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(names) = names_defined(line) {
            all.push(LuaDefinition { names, lines: Vec::new() });
        }
        if let Some(last) = all.last_mut() {
            last.lines.extend(LuaLine::read(line));
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
fn names_in(code: &str) -> Vec<&str> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = code.as_bytes();
    let mut names = Vec::new();
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
                    names.push(&code[start..at]);
                }
            }
            _ => at += 1,
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::iter::repeat;

    use super::super::script::files;
    use super::*;

    /// The names that a text defines at the start of a line.
    fn defined_by(text: &str) -> BTreeSet<&str> {
        text.lines().filter_map(names_defined).flatten().collect()
    }

    fn lines_of(text: &str) -> Vec<LuaLine<'_>> {
        text.lines().filter_map(LuaLine::read).collect()
    }

    /// The names that the library defines, and their files.
    fn library() -> BTreeMap<&'static str, &'static str> {
        let of_file = |(file, text): &(&'static str, &'static str)| {
            defined_by(text).into_iter().zip(repeat(*file))
        };
        LIBRARY.iter().flat_map(of_file).collect()
    }

    #[test]
    fn each_uses_line_names_the_library_files_that_the_code_below_uses() {
        let library = library();
        for (own, text) in LIBRARY.iter().chain(files()) {
            let lines = lines_of(text);
            let named: BTreeSet<(usize, &str)> = lines
                .iter()
                .enumerate()
                .flat_map(|(at, line)| files_named(line.text).into_iter().map(move |f| (at, f)))
                .collect();
            let mut needed = BTreeSet::new();
            for (at, line) in lines.iter().enumerate() {
                let files = line.names.iter().filter_map(|name| library.get(*name));
                for file in files.copied().filter(|file| file != own) {
                    let provides = |place: &usize| {
                        named.contains(&(*place, file)) && at < end_of_block(&lines, *place)
                    };
                    let place = (0..at).rev().find(provides);
                    needed.insert((place.unwrap_or_else(|| panic!("{own}: {}", line.text)), file));
                }
            }
            assert_eq!(named, needed, "-- uses: in {own}.lua, by line of code");
        }
    }

    #[test]
    fn files_of_the_library_use_only_files_before_them() {
        for (place, (name, text)) in LIBRARY.iter().enumerate() {
            let before: BTreeSet<_> = LIBRARY[..place].iter().map(|(name, _)| *name).collect();
            let used: BTreeSet<_> = text.lines().flat_map(files_named).collect();
            assert!(used.is_subset(&before), "{name}.lua uses a file behind it");
        }
    }

    #[test]
    fn a_name_is_defined_once() {
        let mut seen = BTreeSet::new();
        for (name, text) in LIBRARY.iter() {
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
        let library = library();
        for (name, text) in files() {
            let code = compose(text);
            let script = lines_of(&code);
            for (at, line) in script.iter().enumerate() {
                let defined = names_defined(line.text).unwrap_or_default();
                let uses =
                    |line: &LuaLine<'_>| defined.iter().any(|name| line.names.contains(name));
                if defined.iter().any(|name| library.contains_key(name)) {
                    let rest = &script[at + 1..end_of_block(&script, at)];
                    assert!(rest.iter().any(uses), "{name}.lua does not use {defined:?}");
                }
            }
        }
    }

    /// Copies of a variable would differ after the first change.
    #[test]
    fn a_script_has_one_copy_of_each_variable() {
        let library = library();
        for (name, text) in files() {
            let mut seen = BTreeSet::new();
            let code = compose(text);
            for line in code.lines() {
                let is_function = line.trim_start().starts_with("local function");
                let defined = names_defined(line.trim_start()).unwrap_or_default();
                for variable in defined.into_iter().filter(|name| *name != name.to_uppercase()) {
                    assert!(
                        is_function || !library.contains_key(variable) || seen.insert(variable),
                        "{name}.lua has two copies of {variable}"
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

    /// A settle of a task that its holder delivered built thirty functions that it did not call.
    #[test]
    fn a_definition_stands_at_the_last_line_that_all_its_uses_see() {
        let script = "\
-- uses: keys
if ARGV[2] == '' then return BODIES end
-- uses: keys
if ARGV[3] == '' then
  -- uses: lease
  return deadline_of(ARGV[2])
end
return LEASED
";
        let expected = "\
local BODIES = KEYS[1]
if ARGV[2] == '' then return BODIES end
local LEASED = KEYS[6]
if ARGV[3] == '' then
  local function deadline_of(id)
    return tonumber(redis.call('ZSCORE', LEASED, id) or nil)
  end
  return deadline_of(ARGV[2])
end
return LEASED
";
        assert_eq!(compose(script), expected);
    }

    #[test]
    fn branches_that_share_no_line_get_a_copy_each() {
        let script = "\
if ARGV[2] == '' then
  -- uses: keys
  return BODIES
else
  -- uses: keys
  return BODIES
end
";
        let copy = "  local BODIES = KEYS[1]\n";
        assert_eq!(compose(script), script.replace("  -- uses: keys\n", copy));
    }

    #[test]
    fn names_are_told_from_fields_and_texts() {
        let names = names_in("a.b = c..d .. 'e \\' f' .. \"g\" .. h[1]");
        assert_eq!(names, ["a", "c", "d", "h", "1"]);
    }
}
