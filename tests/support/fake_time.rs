//! A clock that jumps, for one process: libfaketime reads how far it is ahead from a file, each
//! time it is asked.

use std::path::PathBuf;
use std::process::Command;

/// The clock. Cheap to make; it goes with the folder that its file is in.
#[derive(Clone, Debug)]
pub struct FakeTime {
    file: PathBuf,
    library: String,
}

impl FakeTime {
    /// One that goes right, by a file in `folder`.
    pub fn right(folder: &std::path::Path) -> Self {
        let ask = || {
            let asked = Command::new("faketime")
                .args(["-m", "-f", "+0", "printenv", "LD_PRELOAD"])
                .output();
            let asked = asked.expect("these tests need faketime; scripts/test installs it");
            String::from_utf8(asked.stdout).unwrap().trim().to_owned()
        };
        // It names what it shares with its child by its process id, and says nothing where one that
        // was killed has left that behind.
        let library =
            (0..20).map(|_| ask()).find(|library| !library.is_empty()).unwrap_or_default();
        assert!(!library.is_empty(), "faketime does not say where its library is");
        // Redis' jemalloc asks for the time while it starts, libfaketime for memory while it
        // starts: neither would ever be ready. libc's own malloc, loaded before jemalloc, does
        // without the time.
        let library = format!("{library}:libc.so.6");
        let clock = Self { file: folder.join("faketime"), library };
        clock.set(0);
        clock
    }

    /// From now on it is so many seconds ahead of the machine's clock.
    pub fn set(&self, ahead_s: i64) {
        // In one step: a reader may come at any moment.
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{ahead_s:+}\n")).unwrap();
        std::fs::rename(&next, &self.file).unwrap();
    }

    /// The variables that give it to a process. Sleeps go by the monotonic clock, which stays as it
    /// is.
    pub fn variables(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("LD_PRELOAD", self.library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]
    }
}
