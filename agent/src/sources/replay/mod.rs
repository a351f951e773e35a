//! A recorded or written scenario → signals, deterministic.
//!
//! In: a file of one JSON object per line, `t` in seconds. Out: the signals of its lines in its order, with the ticks
//! and the lists of locks' holders that a live agent would have had in between.
//! What can go wrong: a line that is not in the format; it is left out and reported with file, line and remedy.

mod device;
mod given;
mod line;
mod lock_holders;
mod raw;

use std::io::{self, BufRead};
use std::time::Duration;

use crate::model::{MonoNs, Signal};

/// A line that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// From 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub problem: String,
}

/// How often time passes between two lines that are far apart.
const TICK: Duration = Duration::from_millis(250);
/// Most ticks between two lines, so that a hostile `t` cannot keep the agent busy: longer gaps tick more slowly.
const TICKS_MAX: u64 = 4_096;
/// So many lines without one in the format: it is no recording.
const STRANGE_MAX: usize = 20;
/// Longest line read; a sample has 200 bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Hands every signal of `input` to `push`, and ends with [`Signal::End`].
///
/// # Errors
/// When `input` cannot be read. Lines that are not in the format do not stop it: they are returned.
pub fn replay(mut input: impl BufRead, mut push: impl FnMut(Signal)) -> io::Result<Vec<BadLine>> {
    let (mut bad, mut good) = (Vec::new(), false);
    let mut now = MonoNs(0);
    let mut bytes = Vec::new();
    let mut locks = lock_holders::LockEdges::default();
    for number in 1.. {
        bytes.clear();
        if read_line(&mut input, &mut bytes)? == 0 {
            break;
        }
        match std::str::from_utf8(&bytes).map_err(|e| e.to_string()).and_then(line::parse) {
            Ok(None) => {}
            Ok(Some(signal)) => {
                good = true;
                tick(now, signal.at(), &mut push);
                now = now.max(signal.at());
                let ended = matches!(signal, Signal::End { .. });
                locks.push(signal, &mut push);
                if ended {
                    return Ok(bad);
                }
            }
            Err(problem) => bad.push(BadLine { line: number, problem }),
        }
        if !good && bad.len() >= STRANGE_MAX {
            break;
        }
    }
    if !good && let Some(first) = bad.first() {
        // One word on all of them.
        let problem = format!("this is not a recording: one JSON object per line ({})", first.problem);
        bad = vec![BadLine { line: first.line, problem }];
    }
    push(Signal::End { at: now });
    Ok(bad)
}

/// One line, at most [`LINE_BYTES_MAX`] of it; the rest of a longer one is passed over.
fn read_line(input: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let read = io::Read::take(&mut *input, LINE_BYTES_MAX).read_until(b'\n', bytes)?;
    if read as u64 == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
        input.skip_until(b'\n')?;
    }
    Ok(read)
}

fn tick(from: MonoNs, to: MonoNs, push: &mut impl FnMut(Signal)) {
    let Some(gap) = to.since(from) else { return };
    let step = TICK.max(gap / u32::try_from(TICKS_MAX).unwrap_or(u32::MAX));
    let mut at = from.after(step);
    while at < to {
        push(Signal::Tick { at });
        at = at.after(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signals(text: &str) -> (Vec<Signal>, Vec<BadLine>) {
        let mut signals = Vec::new();
        let bad = replay(text.as_bytes(), |s| signals.push(s)).unwrap();
        (signals, bad)
    }

    #[test]
    fn time_passes_between_the_lines() {
        let (signals, bad) = signals(
            "{\"t\":0,\"exit\":{\"pid\":7}}\n\n{\"t\":1,\"end\":{}}\n{\"t\":2,\"exit\":{\"pid\":8}}\n",
        );
        assert_eq!(bad, []);
        let at: Vec<f64> = signals.iter().map(|s| s.at().replay_seconds()).collect();
        assert_eq!(at, [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert!(matches!(signals.last(), Some(Signal::End { .. })), "nothing after the end");
    }

    #[test]
    fn a_bad_line_is_named_and_the_rest_is_used() {
        let (signals, bad) =
            signals("{\"t\":0,\"exit\":{\"pid\":7}}\nnot json\n{\"t\":0.1,\"exit\":{\"pid\":8}}");
        assert_eq!(signals.len(), 3, "two exits and the end");
        assert_eq!(bad.iter().map(|b| b.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn what_is_no_recording_is_told_in_one_line() {
        let strange = "# a document\n".repeat(STRANGE_MAX);
        for text in ["one line\n".to_owned(), format!("{strange}{{\"t\":0,\"exit\":{{\"pid\":7}}}}\n")] {
            let (signals, bad) = signals(&text);
            assert!(matches!(signals[..], [Signal::End { .. }]), "{signals:?}");
            assert_eq!((bad.len(), bad[0].line), (1, 1));
            assert!(bad[0].problem.starts_with("this is not a recording: one JSON object per line ("));
        }
        let (_, bad) = signals("{\"t\":0,\"exit\":{\"pid\":7}}\nx\ny\n");
        assert_eq!(bad.len(), 2, "a recording with bad lines is one");
    }

    #[test]
    fn a_hostile_time_does_not_keep_the_agent_busy() {
        let (signals, bad) = signals("{\"t\":9000000,\"end\":{}}");
        assert!(signals.len() as u64 <= TICKS_MAX + 1, "{}", signals.len());
        assert_eq!(bad, []);
    }

    #[test]
    fn an_endless_line_is_cut_and_reported() {
        let text = format!("{}\n{{\"t\":0,\"end\":{{}}}}", "x".repeat(200_000));
        let (signals, bad) = signals(&text);
        assert_eq!((signals.len(), bad.len(), bad[0].line), (1, 1, 1));
    }
}
