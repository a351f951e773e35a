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
        let by_cargo = std::env::var_os("CARGO_MANIFEST_DIR").is_some();
        if !by_cargo || std::env::var_os("WARPGAUGE_BUILT").is_some() {
            return; // `cargo xtask test`, or the demo (perhaps as another user): who started this has built them
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--bins", "--lib"]).current_dir(workspace());
        for package in ["warpgauge", "warpgauge-tests", "xtask", "dcgm-sim", "nvml-sim"] {
            cargo.args(["--package", package]);
        }
        // What cargo says to this test about itself would make build scripts run again.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_about_the_package(&name.to_string_lossy()))
        {
            cargo.env_remove(name);
        }
        let status = cargo.status();
        assert!(status.expect("cargo starts").success(), "the programs under test must build");
    });
    let me = std::env::current_exe().expect("this program has a path");
    let folder = me.parent().expect("a program lies in a folder");
    // A test lies in target/debug/deps, a program beside the others in target/debug.
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    folder.join(name)
}

fn is_about_the_package(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG")
        || variable.starts_with("CARGO_MANIFEST")
        || variable == "CARGO_CRATE_NAME"
}

/// The agent.
pub fn agent() -> PathBuf {
    program("warpgauge")
}

/// The process that makes real ioctls.
pub fn victim() -> PathBuf {
    program("ioctl-victim")
}

/// The process that calls the driver's double.
pub fn driver_caller() -> PathBuf {
    program("driver-caller")
}

/// The OpenTelemetry Collector.
pub fn collector() -> PathBuf {
    let built = || workspace().join("target/collector/otelcol-test");
    std::env::var_os("WARPGAUGE_COLLECTOR").map_or_else(built, PathBuf::from)
}

/// The check of Kubernetes manifests.
pub fn manifest_check() -> PathBuf {
    workspace().join("target/kubernetes/manifest-check")
}

/// The kubelet made of Kubernetes' own code.
pub fn kubelet_judge() -> PathBuf {
    workspace().join("target/kubernetes/kubelet-judge")
}

/// The developer commands.
pub fn xtask() -> PathBuf {
    program("xtask")
}

/// The simulated libdcgm.
pub fn dcgm_sim() -> PathBuf {
    program("libdcgm_sim.so")
}

/// The simulated libnvidia-ml.
pub fn nvml_sim() -> PathBuf {
    program("libnvml_sim.so")
}

/// NVIDIA's own libnvidia-ml.
pub fn real_nvml() -> PathBuf {
    let brought = || workspace().join("target/nvidia-ml/libnvidia-ml.so.1");
    std::env::var_os("WARPGAUGE_REAL_NVML").map_or_else(brought, PathBuf::from)
}

/// Prometheus.
pub fn prometheus() -> PathBuf {
    let brought = || workspace().join("target/prometheus/prometheus");
    std::env::var_os("WARPGAUGE_PROMETHEUS").map_or_else(brought, PathBuf::from)
}

/// Pods that come and go, through the agent's own stages.
pub fn churn() -> PathBuf {
    program("churn")
}

/// The small built-in OTLP receiver that the demo falls back on.
pub fn receiver() -> PathBuf {
    program("otlp-receiver")
}
