//! A small file system in memory, which ends with this process.
//!
//! The store restarts and truncates its log the sooner, the smaller the disk is. On a large disk no
//! recording would be long enough. The mount needs no root: it belongs to a namespace of its own,
//! which a shell keeps until its standard input ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const KEEPER: &str = r#"mount -t tmpfs -o size=24m power-cut "$1" && echo done && read -r _"#;

/// Dropping it removes the file system, unless a program still uses it.
#[derive(Debug)]
pub struct Volume {
    keeper: Child,
    folder: PathBuf,
}

impl Volume {
    /// Mounts it on a folder, as programs within see it.
    pub fn on(folder: &Path) -> Self {
        let mut keeper = Command::new("unshare")
            .args(["-Urm", "sh", "-c", KEEPER, "volume"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the power-cut tests need unshare (util-linux)");
        let mut said = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert!(
            said.trim() == "done",
            "the power-cut tests mount a file system in a user namespace (unshare -Urm), which \
             this machine forbids"
        );
        Self { keeper, folder: folder.to_owned() }
    }

    /// The command, to be run within.
    pub fn inside(&self, command: &Command) -> Command {
        let mut nsenter = Command::new("nsenter");
        nsenter.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        nsenter
            .args(["--user", "--mount", "--preserve-credentials", "--target"])
            .arg(self.keeper.id().to_string())
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args());
        nsenter
    }

    /// The path of a file, as this process sees it.
    pub fn path(&self, name: &str) -> PathBuf {
        let root = format!("/proc/{}/root", self.keeper.id());
        Path::new(&root).join(self.folder.strip_prefix("/").unwrap()).join(name)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
