//! The compiler that is installed: which release, from which commit, with which LLVM, and where.
//!
//! In: `rustc -vV`. Out: [`Rustc`]; everything the BPF build brings must fit to exactly this one.
//! What can go wrong: no rustc, or one that describes itself in another way.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::shell::output;

/// A compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rustc {
    /// Such as `1.95.0`.
    pub release: String,
    /// Tells builds of one release apart; keys everything that is kept.
    pub commit: String,
    /// Major version of its LLVM.
    pub llvm: u32,
    /// Architecture of the machine, as kernel programs call it.
    pub arch: String,
    /// Its folder.
    pub sysroot: PathBuf,
}

impl Rustc {
    /// Asks the compiler that cargo would use.
    pub fn ask() -> Result<Self> {
        let program = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let text = output(Command::new(&program).arg("-vV"))?;
        let sysroot = output(Command::new(&program).args(["--print", "sysroot"]))?;
        Self::parse(&text, sysroot.trim().into())
    }

    fn parse(text: &str, sysroot: PathBuf) -> Result<Self> {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.with_context(|| format!("`rustc -vV` does not say its {name}"))
        };
        let llvm = field("LLVM version")?;
        let llvm = llvm.split('.').next().unwrap_or_default();
        let host = field("host")?;
        Ok(Self {
            release: field("release")?.to_owned(),
            commit: field("commit-hash")?.to_owned(),
            llvm: llvm.parse().with_context(|| format!("LLVM version {llvm}"))?,
            arch: host.split('-').next().unwrap_or_default().to_owned(),
            sysroot,
        })
    }

    /// What the compiler's build is called in file names.
    pub fn key(&self) -> String {
        format!("{}-{}", self.release, self.commit.get(..12).unwrap_or(&self.commit))
    }
}

/// The cargo that started us, or the one on the path.
pub fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\ncommit-hash: 59807616e1fa2540724b\n\
        commit-date: 2026-04-14\nhost: aarch64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";

    #[test]
    fn the_compiler_describes_itself() {
        let rustc = Rustc::parse(TEXT, "/s".into()).expect("complete");
        assert_eq!(
            (rustc.llvm, rustc.arch.as_str(), rustc.key().as_str()),
            (22, "aarch64", "1.95.0-59807616e1fa")
        );
        let error = Rustc::parse("release: 1.95.0\n", "/s".into()).expect_err("incomplete");
        assert!(error.to_string().contains("LLVM version"), "{error}");
    }
}
