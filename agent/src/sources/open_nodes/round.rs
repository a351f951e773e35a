//! One round of looks: at all processes, or at those that did something.
//!
//! In: which processes to look at. Out: signals of what they have open, all of it each time: said when it changes, and
//! again when all are looked at, so that what was lost on the way comes in after all.
//! What can go wrong: single processes, counted by reason; more of them than are kept, whose nodes are said once and not
//! remembered. Without the probes, a process under the number of one that ended between two rounds is not noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::kinds::Kinds;
use super::look::{Held, Look, look};
use crate::host::{HostRoot, mono_now};
use crate::model::open_nodes::OpenNodes;
use crate::model::{MonoNs, Pid, ProcessRole, Signal, StartTicks};
use crate::sources::probes::thread_files::ThreadFiles;
use crate::telemetry::{Counter, Telemetry};

/// Whom to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Those that are new, and those that have nodes open.
    All,
    /// These; of those that are marked, whatever was said before is forgotten.
    Some(BTreeMap<u32, bool>),
}

/// What is kept from round to round.
#[derive(Debug)]
pub struct Rounds {
    host: HostRoot,
    majors: Option<Vec<u32>>,
    own: u32,
    /// Processes of the round before.
    seen: BTreeSet<u32>,
    /// What was said of processes that have any of the driver's nodes open.
    told: BTreeMap<u32, Told>,
    files: ThreadFiles,
    failures: Failures,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    start: StartTicks,
    open: OpenNodes,
    mps: bool,
}

#[derive(Debug)]
struct Failures {
    not_permitted: Counter,
    unreadable: Counter,
    too_many: Counter,
}

impl Rounds {
    /// Processes of a node: a pid is at most 4 million, and nodes have some thousand.
    const SEEN_MAX: usize = 131_072;
    /// Processes with the driver's nodes open.
    pub const TOLD_MAX: usize = 16_384;

    /// Nothing was looked at; `own` is the agent's number in this procfs.
    pub fn new(host: HostRoot, majors: Option<Vec<u32>>, own: u32, telemetry: &Telemetry) -> Self {
        let counter = |reason| {
            let attributes = [("stage", "open_nodes"), ("reason", reason)];
            telemetry.counter("warpgauge.mapping.failures", &attributes)
        };
        let failures = Failures {
            not_permitted: counter("not_permitted"),
            unreadable: counter("unreadable"),
            too_many: counter("too_many"),
        };
        let (seen, told) = (BTreeSet::new(), BTreeMap::new());
        Self { host, majors, own, seen, told, files: ThreadFiles::default(), failures }
    }

    /// How many processes have any of the driver's nodes open.
    pub fn holders(&self) -> usize {
        self.told.len()
    }

    /// Looks, and appends what there is to say.
    pub fn look(&mut self, whom: Whom, out: &mut Vec<Signal>) {
        let kinds = Kinds::read(&self.host, self.majors.as_deref());
        if kinds.is_empty() {
            // Everybody is new to a driver that is loaded later.
            self.seen.clear();
            return;
        }
        match whom {
            Whom::All => {
                let all = self.list();
                let again: BTreeSet<u32> = self.told.keys().copied().collect();
                for pid in all.difference(&self.seen).chain(&again).copied().collect::<BTreeSet<_>>() {
                    self.look_at(pid, true, &kinds, out);
                }
                self.seen = all;
            }
            Whom::Some(pids) => {
                for (pid, anew) in pids {
                    self.look_at(pid, anew, &kinds, out);
                }
            }
        }
    }

    fn list(&self) -> BTreeSet<u32> {
        let Ok(entries) = fs::read_dir(&self.host.proc) else {
            self.failures.unreadable.add(1);
            return BTreeSet::new();
        };
        let number = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        entries.filter_map(number).take(Self::SEEN_MAX).collect()
    }

    /// `again`: also what was said before.
    fn look_at(&mut self, pid: u32, again: bool, kinds: &Kinds, out: &mut Vec<Signal>) {
        let at = mono_now(); // what happens during the look is news to come
        match look(&self.host, kinds, self.own, pid, &mut self.files) {
            Look::Has(held) => self.take(at, pid, held, again, out),
            Look::Unchanged => {}
            Look::Gone => {
                if self.told.remove(&pid).is_some() {
                    out.push(Signal::Exit { at, pid: Pid(pid) });
                }
            }
            Look::Refused("not_permitted") => self.failures.not_permitted.add(1),
            Look::Refused(_) => self.failures.unreadable.add(1),
        }
    }

    fn take(&mut self, at: MonoNs, pid: u32, held: Held, again: bool, out: &mut Vec<Signal>) {
        if held.cut {
            self.failures.too_many.add(1);
        }
        let before = self.told.remove(&pid);
        if !held.any && before.is_none() {
            return;
        }
        let open = OpenNodes { pid: Pid(pid), start: held.start, nodes: held.nodes, visible: held.visible };
        let now = Told { start: held.start, open, mps: held.mps };
        let is_news = again || before.as_ref() != Some(&now);
        if is_news {
            out.push(Signal::OpenNodes { at, open: Box::new(now.open.clone()) });
        }
        if is_news && now.mps {
            out.push(Signal::Role { at, pid: Pid(pid), role: ProcessRole::Mps });
        }
        if held.any && self.told.len() < Self::TOLD_MAX {
            self.told.insert(pid, now);
        } else if held.any {
            self.failures.too_many.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;
    use crate::test_dir::TestDir;

    /// A procfs in which memory devices (null is 1:3, full is 1:7) are GPUs.
    struct Node {
        dir: TestDir,
        rounds: Rounds,
        telemetry: Telemetry,
    }

    const PID: u32 = 70_000_000; // above the kernel's limit: nobody has it

    impl Node {
        fn new() -> Self {
            let (dir, telemetry) = (TestDir::new(), Telemetry::default());
            let host = HostRoot { proc: dir.path().to_owned(), ..HostRoot::default() };
            Self { rounds: Rounds::new(host, Some(vec![1]), 1, &telemetry), dir, telemetry }
        }

        fn folder(&self, pid: u32) -> PathBuf {
            self.dir.path().join(pid.to_string())
        }

        fn begins(&self, pid: u32, start: u32, devices: &[&str]) {
            let _ = fs::remove_dir_all(self.folder(pid)); // an earlier process
            fs::create_dir_all(self.folder(pid).join("fd")).unwrap();
            let stat = format!("{pid} (a) S 5 0 0 0 -1 0 1 0 0 0 3 4 0 0 20 0 1 0 {start} 0 0\n");
            fs::write(self.folder(pid).join("stat"), stat).unwrap();
            for (number, device) in devices.iter().enumerate() {
                symlink(device, self.folder(pid).join("fd").join(number.to_string())).unwrap();
            }
        }

        /// What a round says: `pid@start nodes`, exits and roles.
        fn says(&mut self, whom: Whom) -> Vec<String> {
            let mut out = Vec::new();
            self.rounds.look(whom, &mut out);
            let text = |signal: Signal| match signal {
                Signal::OpenNodes { open, .. } => {
                    let minors = open.nodes.iter().map(|node| match node {
                        crate::model::OpenNode::Gpu { minor } => minor.to_string(),
                        other => format!("{other:?}"),
                    });
                    let minors: Vec<_> = minors.collect();
                    format!("{}@{} [{}]", open.pid.0 - PID, open.start.0, minors.join(" "))
                }
                Signal::Exit { pid, .. } => format!("{} ends", pid.0 - PID),
                Signal::Role { pid, role, .. } => format!("{} {role:?}", pid.0 - PID),
                other => format!("{other:?}"),
            };
            out.into_iter().map(text).collect()
        }

        fn some(&mut self, pid: u32, anew: bool) -> Vec<String> {
            self.says(Whom::Some([(pid, anew)].into()))
        }

        fn failures(&self, reason: &str) -> u64 {
            let attributes = [("stage", "open_nodes"), ("reason", reason)];
            self.telemetry.counter("warpgauge.mapping.failures", &attributes).get()
        }
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn who_has_nodes_open_is_said_until_it_ends() {
        let mut node = Node::new();
        node.begins(PID, 600, &["/dev/full", "/dev/null"]);
        node.begins(PID + 1, 601, &["/dev/tty"]);
        fs::create_dir(node.dir.path().join("sys")).unwrap();
        assert_eq!(node.says(Whom::All), ["0@600 [3 7]"]);
        assert_eq!(node.says(Whom::All), ["0@600 [3 7]"], "again, for whoever missed it");
        assert_eq!(node.some(PID, false), NONE, "no news");
        fs::remove_file(node.folder(PID).join("fd/0")).unwrap();
        assert_eq!(node.some(PID, false), ["0@600 [3]"]);
        assert_eq!(node.some(PID, true), ["0@600 [3]"], "another program under the number");
        fs::remove_file(node.folder(PID).join("fd/1")).unwrap();
        assert_eq!(node.some(PID, false), ["0@600 []"]);
        assert_eq!(node.some(PID, false), NONE, "over");
        symlink("/dev/null", node.folder(PID).join("fd/9")).unwrap();
        assert_eq!(node.some(PID, false), ["0@600 [3]"]);
        fs::remove_dir_all(node.folder(PID)).unwrap();
        assert_eq!(node.says(Whom::All), ["0 ends"]);
        assert_eq!((node.says(Whom::All), node.some(PID, false)), (vec![], vec![]));
        assert!(node.rounds.told.is_empty());
    }

    #[test]
    fn only_who_is_new_is_looked_at_again() {
        let mut node = Node::new();
        node.begins(PID + 1, 601, &[]);
        assert_eq!(node.says(Whom::All), NONE);
        symlink("/dev/null", node.folder(PID + 1).join("fd/0")).unwrap();
        assert_eq!(node.says(Whom::All), NONE, "that the probes tell");
        node.begins(PID + 2, 700, &["/dev/null"]);
        assert_eq!(node.says(Whom::All), ["2@700 [3]"]);
        assert_eq!(node.some(PID + 1, false), ["1@601 [3]"]);
    }

    #[test]
    fn another_process_under_the_number_is_another_one() {
        let mut node = Node::new();
        node.begins(PID, 600, &["/dev/null"]);
        assert_eq!(node.says(Whom::All), ["0@600 [3]"]);
        node.begins(PID, 900, &["/dev/null"]);
        assert_eq!(node.some(PID, false), ["0@900 [3]"]);
        node.begins(PID, 950, &[]);
        assert_eq!(node.says(Whom::All), ["0@950 []"], "so that the former one's are over");
    }

    #[test]
    fn who_cannot_be_looked_at_is_counted_by_reason() {
        let mut node = Node::new();
        node.begins(PID, 600, &[]);
        fs::remove_dir(node.folder(PID).join("fd")).unwrap();
        fs::write(node.folder(PID).join("fd"), "no folder").unwrap();
        assert_eq!(node.says(Whom::All), NONE);
        assert_eq!((node.failures("unreadable"), node.failures("not_permitted")), (1, 0));
        assert_eq!(node.says(Whom::All), NONE);
        assert_eq!(node.failures("unreadable"), 1, "once");
    }

    #[test]
    fn without_the_driver_nobody_is_looked_at_and_everybody_is_new_to_it() {
        let mut node = Node::new();
        node.rounds.majors = None;
        node.begins(PID, 600, &["/dev/null"]);
        assert_eq!(node.says(Whom::All), NONE);
        assert!(node.rounds.seen.is_empty());
        fs::write(node.dir.path().join("devices"), "Character devices:\n1 nvidia-uvm\n").unwrap();
        assert_eq!(node.says(Whom::All), ["0@600 []"]);
    }

    #[test]
    fn the_server_of_mps_is_said_to_be_one() {
        let mut node = Node::new();
        node.begins(PID, 600, &["/dev/null"]);
        symlink("/usr/bin/nvidia-cuda-mps-server", node.folder(PID).join("exe")).unwrap();
        assert_eq!(node.says(Whom::All), ["0@600 [3]", "0 Mps"]);
    }
}
