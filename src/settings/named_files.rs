//! The files that hold values of settings, such as secrets, as read at one moment.
//!
//! Each has one line of visible ASCII.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::callback::line_of_file;

/// The texts of files, without the end of the line after them. Two are equal if their texts are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NamedFiles(BTreeMap<PathBuf, Result<String, String>>);

impl NamedFiles {
    /// Reads the files. An error is returned only when settings are made of them.
    pub fn read(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self::default().for_paths(paths)
    }

    /// The texts of these files. Those that are not among the texts are read now.
    pub fn for_paths(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut of_paths = BTreeMap::new();
        for path in paths {
            of_paths.entry(path).or_insert_with_key(|path| {
                self.0.remove(path).unwrap_or_else(|| line_of_file(path))
            });
        }
        Self(of_paths)
    }

    /// Uses an old text in the place of one that cannot be used. Returns a sentence for each.
    pub(super) fn keeping(mut self, old: &Self) -> (Self, Vec<String>) {
        let mut kept = Vec::new();
        for (path, text) in &mut self.0 {
            let (Err(got), Some(Ok(before))) = (&*text, old.0.get(path)) else { continue };
            kept.push(format!(
                "{}: expected a value, got {got}; its old value stays in force",
                path.display()
            ));
            *text = Ok(before.clone());
        }
        (self, kept)
    }

    /// The text of a file, or what was there in its place.
    pub(super) fn text(&self, path: &Path) -> Result<&str, &str> {
        match self.0.get(path) {
            Some(text) => text.as_deref().map_err(String::as_str),
            None => Err("nothing"),
        }
    }
}

impl fmt::Debug for NamedFiles {
    /// Omits the texts, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &NamedFiles, path: &Path) -> String {
        text.text(path).unwrap_or_else(|got| got).to_owned()
    }

    #[test]
    fn an_old_text_is_kept_in_the_place_of_one_that_cannot_be_used() {
        let path = PathBuf::from("/etc/token");
        let of = |text: Result<&str, &str>| {
            let text = text.map(str::to_owned).map_err(str::to_owned);
            NamedFiles([(path.clone(), text)].into())
        };
        let check =
            |new: Result<&str, &str>, old: Result<&str, &str>, expected: &str, says: usize| {
                let (texts, said) = of(new).keeping(&of(old));
                assert_eq!((kept(&texts, &path).as_str(), said.len()), (expected, says));
            };
        check(Ok("new"), Ok("old"), "new", 0);
        check(Err("nothing"), Ok("old"), "old", 1);
        check(Err("nothing"), Err("gone"), "nothing", 0);
        let (_, said) = of(Err("nothing")).keeping(&of(Ok("secret")));
        let expected = "/etc/token: expected a value, got nothing; its old value stays in force";
        assert_eq!(said, [expected]);
    }
}
