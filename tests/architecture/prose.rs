//! The rules of prose and width, checked on every text file of the project.

use std::fs;
use std::path::{Path, PathBuf};

/// The widest line, in characters.
const WIDTH: usize = 100;

/// Folders that hold no prose of the project: build results, local data, inputs of the fuzzer.
const SKIPPED: &[&str] = &["target", "data", "node_modules", "seeds", "corpus", "snapshots"];

/// Words that call a process a person, or that are hard to read.
const AVOIDED: &[&str] = &["he", "him", "his", "whoever", "whom"];

const EXTENSIONS: &[&str] = &["rs", "lua", "sql", "toml", "md", "yml", "py", "mjs", "sh"];

/// The text files below the project's root. Scripts have no extension.
fn texts() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if name != ".git" && !SKIPPED.contains(&name) {
                    open.push(path);
                }
                continue;
            }
            let is_script = path.extension().is_none() && path.starts_with(root.join("scripts"));
            let has_prose = path
                .extension()
                .is_some_and(|end| EXTENSIONS.contains(&end.to_str().unwrap_or_default()));
            if is_script || has_prose {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 400, "only {} files were found", found.len());
    found
}

/// Whether a line of Markdown may be wide: a row of a table, a line of an example, or one word that
/// cannot be broken, such as an address.
fn may_be_wide(line: &str, in_example: bool) -> bool {
    let text = line.trim_start();
    in_example || text.starts_with('|') || !text.trim_start_matches("- ").contains(' ')
}

#[test]
fn no_line_is_wider_than_100_columns() {
    let mut wide = Vec::new();
    for path in texts() {
        let is_page = path.extension().is_some_and(|end| end == "md");
        let mut in_example = false;
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            if is_page && line.trim_start().starts_with("```") {
                in_example = !in_example;
            }
            let excused = is_page && may_be_wide(line, in_example);
            if line.chars().count() > WIDTH && !excused {
                wide.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(wide.is_empty(), "{} lines are too wide:\n{}", wide.len(), wide.join("\n"));
}

#[test]
fn no_process_is_called_a_person() {
    let mut found = Vec::new();
    for path in texts() {
        if path.ends_with("tests/architecture/prose.rs") {
            continue;
        }
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let is_avoided = |word: &str| AVOIDED.contains(&word.to_lowercase().as_str());
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(word) = words.into_iter().find(|word| is_avoided(word)) {
                found.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{} lines:\n{}", found.len(), found.join("\n"));
}

/// An operator searches the log for these lines.
#[test]
fn the_log_lines_of_the_documentation_are_in_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    super::files(&root.join("src"), &mut files);
    let sources = files.iter().map(|file| super::code(file));
    // A long text is split by a backslash and the indentation of the next line.
    let split = |code: String| code.split("\\\n").map(str::trim_start).collect::<Vec<_>>().concat();
    let sources = sources.map(split).collect::<String>();
    let page = fs::read_to_string(root.join("docs/LOGGING.md")).unwrap();
    let (_, table) = page.split_once("## The lines that matter").unwrap();
    let rows = table.lines().filter_map(|row| row.strip_prefix("| ")?.split(" | ").nth(1));
    let lines: Vec<_> = rows.flat_map(|lines| lines.split('`').skip(1).step_by(2)).collect();
    assert!(lines.len() > 30, "only {} lines were found", lines.len());
    for line in lines {
        for part in line.split('…') {
            assert!(sources.contains(part.trim()), "{line}: no source has {part:?}");
        }
    }
}
