//! What a start would find at the store's path, for `delayd check`.
//!
//! Creates, writes and locks nothing, so it may run beside a delayd that has the file, and as
//! another user. Permissions tell whether files can be written.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::fault::explain;
use super::{format, schema, space};
use crate::store::embedded::Embedded;
use crate::store::embedded::Params;
use crate::store::{Error, Result};

/// The suffixes of the files: the database first, then those beside it.
const FILES: [&str; 5] = ["", "-wal", "-shm", "-ballast", ".lock"];

/// The result of a probe.
#[derive(Debug)]
pub struct Probe {
    /// The file and its state, for people.
    pub found: String,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

impl Embedded {
    /// Checks whether [`open`](Self::open) would succeed for this user. Changes nothing. Ignores
    /// the lock: a delayd that has the file is not a fault.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if the folder or a file cannot be written, or if another program or
    /// a newer version wrote the file.
    pub fn probe(params: &Params) -> Result<Probe> {
        let path = &params.path;
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let folder = absolute.parent().unwrap_or(Path::new("/"));
        let there = nearest(folder)?;
        if !there.is_dir() {
            return Err(schema::no_folder(there));
        }
        ensure_usable(there, Access::WRITE_OK | Access::EXEC_OK, "create files in")?;
        for end in FILES {
            let mut name = path.clone().into_os_string();
            name.push(end);
            let file = PathBuf::from(name);
            if file.exists() {
                ensure_usable(&file, Access::READ_OK | Access::WRITE_OK, "read and write")?;
            }
        }
        let room = space::Params::of(path, params.reserve).warning(there)?;
        Ok(Probe { found: found(path, &absolute)?, warnings: room.into_iter().collect() })
    }
}

/// The folder, or the existing one in which a start would create it.
fn nearest(folder: &Path) -> Result<&Path> {
    for folder in folder.ancestors() {
        match folder.try_exists() {
            Ok(true) => return Ok(folder),
            Ok(false) => {}
            // A path below a file does not exist either; the next step finds the file.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {}
            Err(error) => {
                return Err(Error::Misconfigured(format!(
                    "cannot look at the folder {}: {error}",
                    folder.display()
                )));
            }
        }
    }
    Ok(Path::new("/"))
}

fn ensure_usable(path: &Path, access: Access, doing: &str) -> Result<()> {
    let checked = accessat(CWD, path, access, AtFlags::EACCESS);
    checked.map_err(|error| {
        let user = rustix::process::geteuid().as_raw();
        let (path, error) = (path.display(), std::io::Error::from(error));
        Error::Misconfigured(format!("the user with id {user} cannot {doing} {path}: {error}"))
    })
}

fn found(path: &Path, absolute: &Path) -> Result<String> {
    let name = absolute.display();
    schema::ensure_no_folder(absolute)?;
    match std::fs::metadata(path) {
        Ok(file) if file.len() > 0 => {
            let db = schema::look_at_rest(path)?;
            schema::ensure_is_ours(&db, path)?;
            let version = db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
            let age =
                match version.map_err(|failure| explain(path, &failure))?.cmp(&schema::version()) {
                    std::cmp::Ordering::Less => {
                        ", of an older version: the next start brings it up to date"
                    }
                    std::cmp::Ordering::Equal => "",
                    std::cmp::Ordering::Greater => return Err(schema::too_new(path)),
                };
            if age.is_empty() {
                format::check(&db, path)?;
            }
            Ok(format!("{name}{age}"))
        }
        _ => Ok(format!("{name}, which is not there yet: the start creates it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::clock::Clock;

    fn params(path: PathBuf) -> Params {
        Params { path, reserve: 1 << 20, clock: Clock::system() }
    }

    /// Everything in a folder: names, bytes and times of the last change.
    fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let of = |path: PathBuf| {
            let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
            (path.clone(), std::fs::read(path).unwrap(), changed)
        };
        let mut contents: Vec<_> = entries.map(of).collect();
        contents.sort();
        contents
    }

    fn refusal(path: &Path) -> String {
        Embedded::probe(&params(path.to_owned())).unwrap_err().to_string()
    }

    #[test]
    fn a_probe_leaves_everything_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        // Characters that would have to be escaped in a URI.
        let path = folder.path().join("a b%20?#.db");
        let probe = || Embedded::probe(&params(path.clone())).unwrap().found;
        assert!(
            probe().ends_with("a b%20?#.db, which is not there yet: the start creates it"),
            "{}",
            probe()
        );
        assert!(contents(folder.path()).is_empty());
        let open = Embedded::open(params(path.clone())).unwrap();
        assert!(probe().ends_with("a b%20?#.db"), "{}", probe());
        drop(open);
        let stopped = contents(folder.path());
        assert!(probe().ends_with("a b%20?#.db"));
        assert_eq!(contents(folder.path()), stopped);
    }

    #[test]
    fn what_a_start_would_refuse_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(refusal(folder.path()).contains("expected a file, got a folder"));
        std::fs::write(at("text"), "x".repeat(5_000)).unwrap();
        assert!(refusal(&at("text")).contains("is no store of delayd"));
        assert!(refusal(&at("text/delayd.db")).contains("expected a folder, got a file"));
        rusqlite::Connection::open(at("other"))
            .unwrap()
            .execute_batch("CREATE TABLE other (x)")
            .unwrap();
        assert!(refusal(&at("other")).contains("a database of another program"));
        drop(Embedded::open(params(at("newer"))).unwrap());
        let newer = rusqlite::Connection::open(at("newer")).unwrap();
        newer.pragma_update(None, "user_version", 999).unwrap();
        newer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        assert!(refusal(&at("newer")).contains("newer version"));
    }
}
