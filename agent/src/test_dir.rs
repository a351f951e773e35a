//! A directory of its own for a test, removed with it.
//!
//! In: nothing. Out: a path below the system's directory for temporary files.
//! What can go wrong: a test that is killed leaves its directory behind.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::host::HostRoot;

pub(crate) struct TestDir(PathBuf);

impl TestDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("warpgauge-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// A host of which only the boot id matters.
    pub(crate) fn host(&self, boot_id: &str) -> HostRoot {
        let random = self.0.join("sys/kernel/random");
        std::fs::create_dir_all(&random).unwrap();
        std::fs::write(random.join("boot_id"), boot_id).unwrap();
        HostRoot { proc: self.0.clone(), ..HostRoot::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
