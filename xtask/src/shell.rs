//! Running other programs, with errors that name the program.
//!
//! In: a program and its arguments; always in the checkout's root. Out: success, or its output.
//! What can go wrong: the program is missing, or ends with another status than 0.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::workspace;

/// A command in the checkout's root.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(workspace::root());
    // What cargo says to xtask about xtask: build scripts that look at it would run again, and with them half the tree.
    let about_xtask = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_MANIFEST") || name.starts_with("CARGO_PKG")
    });
    about_xtask.for_each(|name| {
        command.env_remove(name);
    });
    command
}

/// Runs to the end; output goes where ours goes.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs to the end and gives back what was printed; warnings go where ours go only if it fails.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let done =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", shown(command)))?;
    if !done.status.success() {
        let words = String::from_utf8_lossy(&done.stderr);
        bail!("{} ended with {}: {}", shown(command), done.status, words.trim());
    }
    String::from_utf8(done.stdout).with_context(|| format!("{} printed what is not text", shown(command)))
}

fn shown(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Where `program` is on PATH.
pub(crate) fn which(program: &str) -> Option<std::path::PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let uids = status.lines().find_map(|l| l.strip_prefix("Uid:")).unwrap_or_default();
        uids.split_ascii_whitespace().nth(1) == Some("0")
    })
}

/// Makes tracefs visible, as the kernel's own documentation has it; many machines have it mounted already. Where it
/// cannot be mounted, the agent and the tests that need it say so.
pub(crate) fn mount_tracefs() {
    let place = "/sys/kernel/tracing";
    if Path::new(place).join("events").is_dir() || !is_root() {
        return;
    }
    if let Err(e) = run(&mut command("mount", &["-t", "tracefs", "tracefs", place])) {
        println!("tracefs cannot be mounted, so driver probes will be off: {e:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_the_command_and_its_words() {
        let error =
            output(Command::new("sh").args(["-c", "echo no such luck >&2; exit 3"])).expect_err("fails");
        let text = format!("{error:#}");
        assert!(text.contains("sh -c") && text.contains("no such luck") && text.contains('3'), "{text}");
        assert_eq!(output(Command::new("sh").args(["-c", "echo yes"])).expect("runs"), "yes\n");
    }
}
