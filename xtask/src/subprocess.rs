//! Running other programs: their output is captured or passed on, and a failure names the whole command.
//!
//! In: a [`Command`]. Out: its standard output, or nothing.
//! What can go wrong: the program is missing, or fails; the error has its own words.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Runs to the end; output goes where ours goes.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs to the end and gives back what was printed; warnings go where ours go only if it fails.
pub fn output(command: &mut Command) -> Result<String> {
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
