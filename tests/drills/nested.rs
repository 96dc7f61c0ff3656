//! A file system that can be made to stand still: an ext4 whose image is a file in another ext4,
//! which is frozen. So the kernel blocks writes and syncs as it does for a disk that stalls.
//! Injected delays do not show that: `write` returns at once until the kernel's memory for unsynced
//! pages is used up, and then it blocks as well.
//!
//! A keeper, a shell in a session of its own, makes the mounts. It removes them when its standard
//! input ends, at the latest with this process, however that ends.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const NEEDS: &str = "this drill freezes a file system: it needs mkfs.ext4, fsfreeze and loop \
                     devices, and has to run as root (in a container: --privileged)";

/// Mounts, answers in one line, and obeys lines.
const KEEPER: &str = r#"
    export PATH=$PATH:/usr/sbin:/sbin
    cd "$1" || exit
    trap '' INT TERM HUP
    tell() { said=$("$@" 2>&1) && echo done || echo "$@: $said"; }
    image() { truncate -s "$2" "$1.img" && mkfs.ext4 -q -F "$1.img"; }
    nest() {
        mkdir lower upper && image lower 512M && mount -o loop lower.img lower &&
            image lower/upper 256M && mount -o loop lower/upper.img upper
    }
    tell nest
    while read -r order; do tell $order lower; done
    fsfreeze -u lower 2> /dev/null
    # A program may be dying in there.
    umount upper 2> /dev/null || umount -l upper
    umount lower 2> /dev/null || umount -l lower
    echo done
"#;

/// The two file systems. Dropping it removes them.
#[derive(Debug)]
pub struct Nested {
    keeper: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    upper: PathBuf,
}

impl Nested {
    /// Makes them in a folder.
    pub fn within(folder: &Path) -> Self {
        let mut keeper = Command::new("setsid")
            .args(["sh", "-c", KEEPER, "nested"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{NEEDS}; setsid: {error}"));
        let orders = keeper.stdin.take();
        let answers = BufReader::new(keeper.stdout.take().unwrap());
        let mut nested = Self { keeper, orders, answers, upper: folder.join("upper") };
        nested.is_done();
        nested
    }

    /// A folder on the upper file system.
    pub fn folder(&self) -> &Path {
        &self.upper
    }

    /// Until this is dropped, nothing reaches the upper file system's disk.
    pub fn freeze(&mut self) -> Frozen<'_> {
        self.order("fsfreeze -f");
        Frozen(self)
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders.as_ref().unwrap(), "{order}").unwrap();
        self.is_done();
    }

    fn is_done(&mut self) {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(answer.trim() == "done", "{NEEDS}; it answered {answer:?}");
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.keeper.wait();
    }
}

/// The time for which it is frozen. Ends before a program is killed, which has to end its writes
/// first.
#[derive(Debug)]
pub struct Frozen<'a>(&'a mut Nested);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.order("fsfreeze -u");
    }
}
