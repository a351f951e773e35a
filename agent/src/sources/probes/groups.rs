//! Names for the agent's own kprobe events, and the events that dead agents left behind.
//!
//! In: the agent's process number and start, the lines of tracefs' `kprobe_events` and `kprobe_profile`. Out: [`Group`],
//! removed events, counts of missed hits. One agent, one group: another one that lives is never touched.
//! What can go wrong: the file may not be read or written; what is left then blocks nothing. In another pid namespace
//! nobody can tell who lives: then nothing is removed.

use std::fs;
use std::io;
use std::path::Path;

use warpgauge_ebpf::attach::{Definition, KPROBE_EVENTS, remove};

use super::hooks::Edge;
use super::kernel::Support;
use super::thread_files::ThreadFiles;
use crate::host::HostRoot;
use crate::model::Pid;

/// How the group of every agent begins.
const PREFIX: &str = "warpgauge_";

/// The kernel takes names of at most 63 bytes; this leaves room for what stands around a function's (`w4194304_`, `_try`).
/// The longest in the table has 50.
const LONGEST_FUNCTION: usize = 48;

/// The events of one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pid: u32,
    /// When the process began. Unit: ticks after boot.
    start: u64,
}

/// What was found at the start.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Events of agents that are gone.
    pub removed: usize,
    /// Events that should have gone and did not, and the first reason.
    pub kept: Option<(usize, String)>,
}

impl Group {
    /// This agent's own. `own_pid`: in procfs' own pid namespace.
    pub fn own(host: &HostRoot, own_pid: u32) -> Self {
        let stat = ThreadFiles::default().process(host, Pid(own_pid));
        Self { pid: own_pid, start: stat.ok().flatten().map_or(0, |stat| stat.start) }
    }

    /// Its name.
    pub fn name(&self) -> String {
        format!("{PREFIX}{}_{}", self.pid, self.start)
    }

    fn parse(name: &str) -> Option<Self> {
        let (pid, start) = name.strip_prefix(PREFIX)?.split_once('_')?;
        Some(Self { pid: pid.parse().ok()?, start: start.parse().ok()? })
    }

    /// The event on a function's edge. `kprobe_profile` names events without their groups, so a name has the agent's
    /// number, too.
    pub fn event(&self, module: &str, function: &str, edge: Edge) -> Definition {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let word: String =
            function.chars().map(|c| if is_word(c) { c } else { '_' }).take(LONGEST_FUNCTION).collect();
        let (ending, returns) = match edge {
            Edge::Entry => ("", None),
            Edge::Return { at_once } => ("_r", Some(at_once)),
        };
        Definition {
            group: self.name(),
            name: format!("w{}_{word}{ending}", self.pid),
            function: if module.is_empty() { function.to_owned() } else { format!("{module}:{function}") },
            returns,
        }
    }

    /// Removes what agents that are gone have left, and what this one left in an earlier try.
    pub fn clear_stale(&self, tracefs: &Path, host: &HostRoot, host_pids: Support) -> Cleared {
        // without the file there is nothing to clear, and why is said where events are made
        let text = fs::read_to_string(tracefs.join(KPROBE_EVENTS)).unwrap_or_default();
        let mut files = ThreadFiles::default();
        let mut lives = |owner: &Self| {
            let process = files.process(host, Pid(owner.pid));
            // who may not be looked at may live
            host_pids != Support::Yes
                || process.map_or(true, |stat| stat.is_some_and(|s| s.start == owner.start))
        };
        let mut cleared = Cleared::default();
        for event in stale(&text, self, &mut lives) {
            match remove(tracefs, event) {
                Ok(()) => cleared.removed += 1,
                // its owner has been quicker
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => cleared.kept.get_or_insert_with(|| (0, error.to_string())).0 += 1,
            }
        }
        cleared
    }

    /// Hits that the kernel did not pass on to this agent's events, by their names; all others' are left out.
    pub fn missed<'a>(&self, profile: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        let own = format!("w{}_", self.pid);
        profile.lines().filter_map(move |line| {
            let mut words = line.split_ascii_whitespace();
            let (name, _hits, missed) = (words.next()?, words.next()?, words.next()?);
            Some((name.starts_with(&own).then_some(name)?, missed.parse().ok()?))
        })
    }
}

/// Events of groups whose owners are gone, and of one's own. Lines are `p:group/name function` or `r4096:…`.
fn stale<'a>(lines: &'a str, own: &Group, lives: &mut impl FnMut(&Group) -> bool) -> Vec<&'a str> {
    let event = |line: &'a str| {
        let (kind, event) = line.split_ascii_whitespace().next()?.split_once(':')?;
        kind.starts_with(['p', 'r']).then_some(())?;
        let group = Group::parse(event.split_once('/')?.0)?;
        Some((group, event))
    };
    let events = lines.lines().filter_map(event);
    events.filter(|(owner, _)| owner == own || !lives(owner)).map(|(_, event)| event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    const OWN: Group = Group { pid: 7, start: 99 };
    const LINES: &str = "p:kprobes/p_do_exit_0 do_exit\n\
        r4096:warpgauge_7_99/w7_rm_ioctl_r nvidia:rm_ioctl\n\
        p:warpgauge_7_98/w7_rm_ioctl nvidia:rm_ioctl\n\
        r64:warpgauge_8_50/w8_nvidia_open_r nvidia:nvidia_open\n\
        p:warpgauge_9_51/w9_nvidia_open nvidia:nvidia_open\n\
        p:warpgauge_x_1/own_of_somebody nvidia:rm_ioctl\n\
        p:warpgauge_12/old nvidia:rm_ioctl\nr:\np\n\n";

    #[test]
    fn only_what_has_no_owner_is_stale() {
        let mut asked = Vec::new();
        let found = stale(LINES, &OWN, &mut |owner| {
            asked.push(owner.name());
            owner.pid == 8
        });
        let want =
            ["warpgauge_7_99/w7_rm_ioctl_r", "warpgauge_7_98/w7_rm_ioctl", "warpgauge_9_51/w9_nvidia_open"];
        assert_eq!(found, want);
        assert_eq!(asked, ["warpgauge_7_98", "warpgauge_8_50", "warpgauge_9_51"]);
    }

    #[test]
    fn the_dead_are_cleared_and_the_living_left_alone() {
        let dir = TestDir::new();
        let host = HostRoot { proc: dir.path().join("proc"), ..HostRoot::default() };
        let process = |pid: u32, start: u64| {
            let at = host.proc(pid.to_string());
            fs::create_dir_all(&at).unwrap();
            let zeros = "0 ".repeat(18);
            fs::write(at.join("stat"), format!("{pid} (a) b) S {zeros}{start} 0\n")).unwrap();
        };
        process(7, 99);
        process(8, 50);
        process(9, 52); // another one under the same number
        fs::write(dir.path().join(KPROBE_EVENTS), LINES).unwrap();
        assert_eq!(Group::own(&host, 7), OWN);
        let cleared = OWN.clear_stale(dir.path(), &host, Support::Yes);
        assert_eq!(cleared, Cleared { removed: 3, kept: None });
        let text = fs::read_to_string(dir.path().join(KPROBE_EVENTS)).unwrap();
        let appended = text.strip_prefix(LINES).expect("nothing is truncated");
        let want =
            "-:warpgauge_7_99/w7_rm_ioctl_r\n-:warpgauge_7_98/w7_rm_ioctl\n-:warpgauge_9_51/w9_nvidia_open\n";
        assert_eq!(appended, want);
        // where the numbers mean other processes only one's own are cleared
        assert_eq!(OWN.clear_stale(dir.path(), &host, Support::No).removed, 1);
        assert_eq!(OWN.clear_stale(Path::new("/nowhere"), &host, Support::Yes), Cleared::default());
    }

    #[test]
    fn names_are_the_agents_own_and_fit() {
        let event = OWN.event("nvidia", "rm_ioctl.constprop.0", Edge::Return { at_once: 4096 });
        assert_eq!(
            (event.group.as_str(), event.name.as_str()),
            ("warpgauge_7_99", "w7_rm_ioctl_constprop_0_r")
        );
        assert_eq!((event.function.as_str(), event.returns), ("nvidia:rm_ioctl.constprop.0", Some(4096)));
        let largest = Group { pid: u32::MAX, start: u64::MAX };
        let event = largest.event("nvidia_uvm", &"x".repeat(500), Edge::Entry);
        assert!(event.group.len() < 64 && event.name.len() < 64, "{event:?}");
        assert_eq!(Group::parse(&largest.name()), Some(largest));
    }

    #[test]
    fn missed_hits_are_those_of_the_own_events() {
        let profile = "  w7_rm_ioctl                                              12               0\n\
            \x20 w7_rm_ioctl_r                                            12               3\n\
            \x20 w77_rm_ioctl_r                                           12               5\n\
            \x20 p_do_exit_0                                               1               9\nbad\n\n";
        let missed: Vec<_> = OWN.missed(profile).collect();
        assert_eq!(missed, [("w7_rm_ioctl", 0), ("w7_rm_ioctl_r", 3)]);
    }
}
