//! A folder for one test.
//!
//! In: a name. Out: a fresh folder, removed at the end unless the test fails. What can go wrong: the disk is full.

use std::path::{Path, PathBuf};

/// Removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A fresh folder whose name begins with `name`.
    ///
    /// # Panics
    /// When it cannot be made.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("warpgauge-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir); // left by an earlier run with the same pid, or not there
        std::fs::create_dir_all(&dir).expect("a scratch folder");
        Self(dir)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    #[expect(clippy::print_stderr, reason = "a failing test says where its files are")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("its files are kept in {}", self.0.display());
            return;
        }
        let _ = std::fs::remove_dir_all(&self.0); // the system's own cleaning takes what stays
    }
}
