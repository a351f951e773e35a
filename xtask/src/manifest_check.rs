//! `cargo xtask manifests`: the Kubernetes manifests of `deploy/`, by Kubernetes' own types and decoder.
//!
//! In: the Go module `tests/kubernetes`. Out: `target/kubernetes/manifest-check`, and what it says.
//! What can go wrong: a manifest that an API server would refuse; or the check cannot be built (see [`crate::go`]).

use std::path::PathBuf;

use anyhow::Context as _;

use crate::go::Program;
use crate::{shell, workspace};

const CHECK: Program = Program {
    title: "the check of the Kubernetes manifests",
    module: "tests/kubernetes",
    package: ".",
    binary: "target/kubernetes/manifest-check",
};

/// The program; `None` where it cannot be built, which is said.
pub(crate) fn build() -> Option<PathBuf> {
    CHECK.build()
}

/// Checks what is shipped.
pub(crate) fn run() -> anyhow::Result<()> {
    let check = build().context("there is no check without Go")?;
    let manifest = workspace::path("deploy/daemonset.yaml");
    shell::run(std::process::Command::new(check).arg(manifest))?;
    println!("deploy/daemonset.yaml is as Kubernetes wants it.");
    Ok(())
}
