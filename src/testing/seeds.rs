//! Runs the body of a fuzz target as a plain test: over its seeds in `fuzz/seeds`, and over some
//! thousand inputs that are made from them. `scripts/fuzz` runs the same bodies for any time.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};

const CASES: u32 = 4_000;
/// What readers of text are apt to stumble over.
const PIECES: [&str; 20] = [
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\0",
    "\n",
    " ",
    "é",
    "\u{feff}",
    "null",
    "-1",
    "1e309",
    "9223372036854775808",
    "\\ud800",
    "//",
    "@",
];

/// One change of a seed.
#[derive(Clone, Debug)]
enum Edit {
    Byte(Index, u8),
    Insert(Index, &'static str),
    Cut(Index, Index),
    Double(Index, Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = any::<Index>;
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        (place(), select(PIECES.to_vec())).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        (place(), place()).prop_map(|(from, to)| Edit::Cut(from, to)),
        (place(), place()).prop_map(|(from, to)| Edit::Double(from, to)),
    ]
}

fn edited(mut input: Vec<u8>, edits: Vec<Edit>) -> Vec<u8> {
    for edit in edits {
        let length = input.len();
        let place = |at: Index| at.index(length + 1);
        let range = |from, to| place(from).min(place(to))..place(from).max(place(to));
        match edit {
            Edit::Byte(at, byte) => match place(at) {
                end if end == length => input.push(byte),
                at => input[at] = byte,
            },
            Edit::Insert(at, piece) => {
                let at = place(at);
                input.splice(at..at, piece.bytes());
            }
            Edit::Cut(from, to) => drop(input.drain(range(from, to))),
            Edit::Double(from, to) => {
                let range = range(from, to);
                let piece = input[range.clone()].to_vec();
                input.splice(range.end..range.end, piece);
            }
        }
    }
    input
}

/// Runs `body` over all of it; a panic in it is the report.
pub(crate) fn run(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let files =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let seeds: Vec<Vec<u8>> =
        files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(seeds.len() >= 3, "{target} has too few seeds");
    seeds.iter().for_each(|seed| body(seed));
    let inputs = prop_oneof![
        4 => (select(seeds), vec(edit(), 1..6)).prop_map(|(seed, edits)| edited(seed, edits)),
        1 => vec(any::<u8>(), 0..200),
        1 => Just(Vec::new()),
    ];
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let ran = TestRunner::new(config).run(&inputs, |input| {
        body(&input);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{target}: {error}"));
}
