//! Where the programs under test are.
//!
//! In: the place of this test binary. Out: paths. What can go wrong: a plain `cargo test` has not built the agent for
//! use; it is built then, once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The checkout's root.
pub fn workspace() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_path_buf()
}

/// A program of the workspace.
///
/// # Panics
/// When it cannot be built.
#[expect(clippy::expect_used, reason = "a test fails by panicking")]
fn program(name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let packages =
            ["build", "--quiet", "--package", "warpgauge", "--package", "warpgauge-tests", "--bins"];
        let status = Command::new(env!("CARGO")).args(packages).current_dir(workspace()).status();
        assert!(status.expect("cargo starts").success(), "the programs under test must build");
    });
    let me = std::env::current_exe().expect("this test has a path");
    // target/debug/deps/warpgauge_tests-… → target/debug
    let folder = me.parent().and_then(Path::parent).expect("a test lies in target/debug/deps");
    folder.join(name)
}

/// The agent.
pub fn agent() -> PathBuf {
    program("warpgauge")
}

/// The process that makes real ioctls.
pub fn victim() -> PathBuf {
    program("ioctl-victim")
}

/// The OpenTelemetry Collector.
pub fn collector() -> PathBuf {
    let built = || workspace().join("target/collector/otelcol-test");
    std::env::var_os("WARPGAUGE_COLLECTOR").map_or_else(built, PathBuf::from)
}

/// The small built-in OTLP receiver that the demo falls back on.
pub fn receiver() -> PathBuf {
    program("otlp-receiver")
}
