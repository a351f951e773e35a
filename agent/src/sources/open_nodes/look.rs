//! One process: which of the driver's nodes it has open.
//!
//! In: /proc/PID, the device numbers of what its descriptors refer to (not their names: a container may have any).
//! Out: [`Look`]. Nothing is opened but folders of procfs, and nothing of it waits for the driver, but for the
//! environment, which waits for whoever changes the process's memory: it is read last, only where no node tells more, and
//! not while the process is in a wait that nothing ends.
//! What can go wrong: the process ends, or may not be looked at; a file system that does not answer holds up the look.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, StatxFlags, statx};

use super::kinds::Kinds;
use super::visible;
use crate::host::HostRoot;
use crate::host::hidden::is_hidden;
use crate::model::open_nodes::{OpenNode, Visible};
use crate::model::{Pid, StartTicks, Tid};
use crate::sources::probes::thread_files::ThreadFiles;

/// Descriptors of one process that are looked at; the lowest ones.
const DESCRIPTORS_MAX: usize = 65_536;
/// Nodes of one process: 16 GPUs with 7 instances, whose capabilities are two each, fit.
const NODES_MAX: usize = 256;
/// Threads of one process that are looked at before its environment is.
const THREADS_MAX: usize = 4_096;
/// The kernel lets an environment grow to some megabytes; what stands further behind is not looked for.
const ENVIRON_MAX: u64 = 256 * 1024;

/// What a look gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Look {
    /// There is no such process.
    Gone,
    /// It is ending, or in a wait that a look at it might share: what was known of it holds.
    Unchanged,
    /// It may not be looked at, or not now; why.
    Refused(&'static str),
    /// This it has.
    Has(Held),
}

/// What a process has.
#[derive(Debug, PartialEq, Eq)]
pub struct Held {
    /// When it began.
    pub start: StartTicks,
    /// Nodes of devices, in order, each once.
    pub nodes: Vec<OpenNode>,
    /// It has any of the driver's nodes.
    pub any: bool,
    /// What its environment says, where it was looked at.
    pub visible: Option<Visible>,
    /// It is the server or the control program of MPS.
    pub mps: bool,
    /// It has more descriptors, or more nodes, than were looked at.
    pub cut: bool,
}

/// Looks at a process; one of the agent's own (`own`, or a child of it) has nothing.
pub fn look(host: &HostRoot, kinds: &Kinds, own: u32, pid: u32, files: &mut ThreadFiles) -> Look {
    let stat = match files.process(host, Pid(pid)) {
        Ok(Some(stat)) => stat,
        Ok(None) if is_hidden(host, Pid(pid)) => return Look::Refused("not_permitted"),
        Ok(None) => return Look::Gone,
        Err(error) => return refusal(&error),
    };
    let mut held = Held {
        start: StartTicks(stat.start),
        nodes: Vec::new(),
        any: false,
        visible: None,
        mps: false,
        cut: false,
    };
    // The first thread of a process may have ended before the others: what they have open is not seen by it.
    if matches!(stat.state, 'Z' | 'X') {
        return Look::Unchanged;
    }
    if pid == own || stat.parent == own {
        return Look::Has(held);
    }
    let folder = host.proc(pid.to_string());
    if let Err(error) = descriptors(&folder.join("fd"), kinds, &mut held) {
        return refusal(&error);
    }
    if !held.any {
        return Look::Has(held);
    }
    let program = fs::read_link(folder.join("exe")).unwrap_or_default();
    held.mps = program.file_name().and_then(|name| name.to_str()).is_some_and(is_mps);
    if held.nodes.is_empty() {
        if stat.state == 'D' || any_waits(host, pid, files) {
            return Look::Unchanged;
        }
        held.visible = environ(&folder.join("environ")).ok().and_then(|environ| visible::of(&environ));
    }
    // another process may have come under the number meanwhile
    match files.process(host, Pid(pid)) {
        Ok(Some(after)) if after.start == stat.start => Look::Has(held),
        _ => Look::Unchanged,
    }
}

fn descriptors(folder: &Path, kinds: &Kinds, held: &mut Held) -> io::Result<()> {
    let (at, mut nodes) = (File::open(folder)?, BTreeSet::new());
    for (number, entry) in fs::read_dir(folder)?.enumerate() {
        if number >= DESCRIPTORS_MAX || nodes.len() >= NODES_MAX {
            held.cut = true;
            break;
        }
        // What a server of files knows better than the kernel does not matter: it is not asked.
        let Ok(stat) = statx(&at, entry?.file_name(), AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE) else {
            continue; // closed meanwhile
        };
        if FileType::from_raw_mode(u32::from(stat.stx_mode)) != FileType::CharacterDevice {
            continue;
        }
        if let Some(node) = kinds.node(stat.stx_rdev_major, stat.stx_rdev_minor) {
            held.any = true;
            nodes.extend(node);
        }
    }
    held.nodes = nodes.into_iter().collect();
    Ok(())
}

/// Whether any thread is in a wait that nothing ends: it may have the process's memory locked.
fn any_waits(host: &HostRoot, pid: u32, files: &mut ThreadFiles) -> bool {
    let threads = fs::read_dir(host.proc(format!("{pid}/task"))).into_iter().flatten().flatten();
    let numbers = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    numbers
        .take(THREADS_MAX)
        .any(|tid| files.read(host, Pid(pid), Tid(tid)).stat.is_some_and(|stat| stat.state == 'D'))
}

fn environ(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(ENVIRON_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Both programs of MPS that live long.
fn is_mps(name: &str) -> bool {
    matches!(name, "nvidia-cuda-mps-server" | "nvidia-cuda-mps-control")
}

fn refusal(error: &io::Error) -> Look {
    match error.kind() {
        ErrorKind::NotFound => Look::Gone,
        ErrorKind::PermissionDenied => Look::Refused("not_permitted"),
        // it ended while it was looked at
        _ if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Look::Gone,
        _ => Look::Refused("unreadable"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::test_dir::TestDir;

    /// A procfs with one process, whose descriptors refer to devices that every machine has.
    struct Made {
        dir: TestDir,
        host: HostRoot,
    }

    const PID: u32 = 70_000_000; // above the kernel's limit: nobody has it

    impl Made {
        fn new(state: char, links: &[(&str, &str)]) -> Self {
            let dir = TestDir::new();
            let host = HostRoot { proc: dir.path().to_owned(), ..HostRoot::default() };
            let folder = dir.path().join(PID.to_string());
            fs::create_dir_all(folder.join("fd")).unwrap();
            let stat = format!("{PID} (a) b) {state} 5 0 0 0 -1 0 1 0 0 0 3 4 0 0 20 0 1 0 600 0 0\n");
            fs::write(folder.join("stat"), stat).unwrap();
            for (number, target) in links {
                symlink(target, folder.join("fd").join(number)).unwrap();
            }
            Self { dir, host }
        }

        fn with(self, file: &str, content: &str) -> Self {
            fs::write(self.dir.path().join(PID.to_string()).join(file), content).unwrap();
            self
        }

        /// As if memory devices (major 1; null is 3, full is 7) were GPUs.
        fn look(&self, own: u32) -> Look {
            let kinds = Kinds::read(&self.host, Some(&[1]));
            look(&self.host, &kinds, own, PID, &mut ThreadFiles::default())
        }
    }

    fn has(nodes: &[u32], any: bool) -> Held {
        let nodes = nodes.iter().map(|minor| OpenNode::Gpu { minor: *minor }).collect();
        Held { start: StartTicks(600), nodes, any, visible: None, mps: false, cut: false }
    }

    #[test]
    fn what_descriptors_refer_to_counts_whatever_it_is_called() {
        let dir = TestDir::new();
        let renamed = dir.path().join("gpu");
        symlink("/dev/null", &renamed).unwrap();
        let links = [
            ("3", "/dev/full"),
            ("4", renamed.to_str().unwrap()),
            ("5", "/dev/null"),
            ("6", "/dev/tty"),
            ("7", "/nowhere"),
        ];
        assert_eq!(Made::new('S', &links).look(1), Look::Has(has(&[3, 7], true)));
        assert_eq!(Made::new('S', &links[3..]).look(1), Look::Has(has(&[], false)));
        assert_eq!(Made::new('S', &links).look(5), Look::Has(has(&[], false)), "a child of the agent's");
        assert_eq!(Made::new('S', &links).look(PID), Look::Has(has(&[], false)), "the agent itself");
        assert_eq!(Made::new('Z', &links).look(1), Look::Unchanged);
        assert_eq!(Made::new('D', &links).look(1), Look::Has(has(&[3, 7], true)));
        let gone =
            look(&Made::new('S', &[]).host, &Kinds::default(), 1, PID - 1, &mut ThreadFiles::default());
        assert_eq!(gone, Look::Gone);
    }

    #[test]
    fn the_servers_of_mps_are_known_by_their_program() {
        for (program, want) in [
            ("/usr/bin/nvidia-cuda-mps-server", true),
            ("/opt/mps/nvidia-cuda-mps-control", true),
            ("/usr/bin/nvidia-cuda-mps", false),
            ("/nvidia-cuda-mps-server/python3", false),
        ] {
            let made = Made::new('S', &[("3", "/dev/null")]);
            symlink(program, made.dir.path().join(PID.to_string()).join("exe")).unwrap();
            assert_eq!(made.look(1), Look::Has(Held { mps: want, ..has(&[3], true) }), "{program}");
        }
    }

    /// Minors from 248 on are of no GPU: the process has the driver open, and no device.
    #[test]
    fn the_environment_is_read_only_where_no_node_says_more() {
        let environ = "CUDA_VISIBLE_DEVICES=0\0";
        let control = |state| Made::new(state, &[("3", "/dev/null")]).with("environ", environ);
        let looked = |made: &Made, major: u32| {
            fs::write(made.dir.path().join("devices"), format!("Character devices:\n{major} nvidia-uvm\n"))
                .unwrap();
            let kinds = Kinds::read(&made.host, None);
            look(&made.host, &kinds, 1, PID, &mut ThreadFiles::default())
        };
        let seen = visible::of(environ.as_bytes());
        assert!(seen.is_some());
        assert_eq!(looked(&control('S'), 1), Look::Has(Held { visible: seen, ..has(&[], true) }));
        assert_eq!(looked(&control('D'), 1), Look::Unchanged, "its memory may be locked for long");
        assert_eq!(looked(&control('S'), 2), Look::Has(has(&[], false)), "none of the driver's");
        assert_eq!(control('S').look(1), Look::Has(has(&[3], true)), "a node says more");
    }
}
