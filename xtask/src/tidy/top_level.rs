//! The top level stays as it is.
//!
//! In: what git tracks. Out: complaints about anything else at the root. What can go wrong: git is missing.

use std::collections::BTreeSet;

use crate::shell;

const ALLOWED: [&str; 12] = [
    "Cargo.toml",
    "Cargo.lock",
    "agent",
    "agent-ebpf",
    "xtask",
    "dcgm-ffi",
    "deploy",
    "tests",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "docs",
];

pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let listed = shell::output(&mut shell::command(
        "git",
        &["ls-files", "--cached", "--others", "--exclude-standard"],
    ))?;
    let roots: BTreeSet<&str> = listed.lines().filter_map(|path| path.split('/').next()).collect();
    let strangers = roots.into_iter().filter(|name| !name.starts_with('.') && !ALLOWED.contains(name));
    Ok(strangers.map(|name| format!("{name}: does not belong at the top level")).collect())
}
