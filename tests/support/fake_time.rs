//! A clock that jumps, for one process. libfaketime reads from a file how far it is ahead, each
//! time the process reads the clock.

use std::path::PathBuf;
use std::process::Command;

/// The clock. Cheap to make. Its file is removed with its folder.
#[derive(Clone, Debug)]
pub struct FakeTime {
    file: PathBuf,
    library: String,
}

impl FakeTime {
    /// A clock that is not ahead, with its file in `folder`.
    pub fn right(folder: &std::path::Path) -> Self {
        let ask = || {
            let asked = Command::new("faketime")
                .args(["-m", "-f", "+0", "printenv", "LD_PRELOAD"])
                .output();
            let asked = asked.expect("these tests need faketime; scripts/test installs it");
            String::from_utf8(asked.stdout).unwrap().trim().to_owned()
        };
        // faketime names the memory that it shares with its child by its process id. It prints
        // nothing if a killed process has left that memory behind.
        let library =
            (0..20).map(|_| ask()).find(|library| !library.is_empty()).unwrap_or_default();
        assert!(!library.is_empty(), "faketime does not say where its library is");
        // Redis' jemalloc reads the time while it starts, and libfaketime allocates memory while it
        // starts: neither would ever be ready. libc's own malloc, loaded before jemalloc, does not
        // read the time.
        let library = format!("{library}:libc.so.6");
        let clock = Self { file: folder.join("faketime"), library };
        clock.set(0);
        clock
    }

    /// From now on the clock is `ahead_s` seconds ahead of the machine's.
    pub fn set(&self, ahead_s: i64) {
        // In one step, since the file may be read at any moment.
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{ahead_s:+}\n")).unwrap();
        std::fs::rename(&next, &self.file).unwrap();
    }

    /// The environment variables that give this clock to a process. Sleeps follow the monotonic
    /// clock, which does not change.
    pub fn variables(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("LD_PRELOAD", self.library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]
    }
}
