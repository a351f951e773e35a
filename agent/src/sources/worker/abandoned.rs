//! The worker that was given up: it hangs in the kernel, cannot be killed, and may still hold the driver.
//!
//! In: its pid and start time; /proc. Out: whether it still lives. While it does, no new worker is started: there is at
//! most one such process on a node. What can go wrong: its pid is used again; the start time tells them apart.

use std::path::Path;

/// One process, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned {
    /// Its pid.
    pub pid: u32,
    start: Option<u64>,
}

impl Abandoned {
    /// The process that has this pid now. `proc` is the /proc of the agent's own pid namespace.
    pub fn new(proc: &Path, pid: u32) -> Self {
        Self { pid, start: look(proc, pid).map(|(_, start)| start) }
    }

    /// Whether it is still there. A zombie has let go of everything, unless a thread of it still hangs in the kernel.
    pub fn lives(&self, proc: &Path) -> bool {
        let Some(began) = self.start else { return false };
        look(proc, self.pid).is_some_and(|(lives, start)| lives && start == began)
    }
}

/// Whether it lives, and its start time: by state letter, number of threads and start, fields 3, 20 and 22 of `stat`,
/// after the name in parentheses. Format: proc_pid_stat(5). A process whose first thread has ended is a zombie with more
/// than one thread until the last one ends.
fn look(proc: &Path, pid: u32) -> Option<(bool, u64)> {
    let text = std::fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    Some((!matches!(state, 'Z' | 'X') || threads > 1, start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn it_lives_until_its_pid_is_gone_a_zombie_or_another_process() {
        let proc = TestDir::new();
        let put_threads = |state: char, threads: u64, start: u64| {
            std::fs::create_dir_all(proc.path().join("77")).unwrap();
            let zeros = ["0"; 16].join(" ");
            let text = format!("77 (a) b) {state} {zeros} {threads} 0 {start} 0\n");
            std::fs::write(proc.path().join("77/stat"), text).unwrap();
        };
        let put = |state, start| put_threads(state, 1, start);
        assert!(!Abandoned::new(proc.path(), 77).lives(proc.path()), "never seen");
        put('D', 123);
        let abandoned = Abandoned::new(proc.path(), 77);
        assert!(abandoned.lives(proc.path()));
        for (state, start, want) in [('S', 123, true), ('Z', 123, false), ('S', 124, false)] {
            put(state, start);
            assert_eq!(abandoned.lives(proc.path()), want, "{state} {start}");
        }
        put_threads('Z', 2, 123);
        assert!(abandoned.lives(proc.path()), "a thread of it hangs");
        std::fs::remove_dir_all(proc.path().join("77")).unwrap();
        assert!(!abandoned.lives(proc.path()));
        let me = Abandoned::new(Path::new("/proc"), std::process::id());
        assert!(me.lives(Path::new("/proc")), "the real format");
    }
}
