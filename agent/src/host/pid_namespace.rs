//! Is /proc that of the host's pid namespace?
//!
//! In: the namespace links of process 1 and of this one. Out: [`PidNamespace`]. The probes give the host's pids; in another namespace
//! the same number is another process, and an attribution would accuse an innocent one.
//! What can go wrong: the link may not be readable; then it cannot be told, and attribution by pid stays on.

use std::fs;

use super::HostRoot;

/// Inode number of the initial pid namespace, fixed in the kernel (`PROC_PID_INIT_INO`).
const INITIAL: &str = "pid:[4026531836]";

/// Whose pids /proc shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PidNamespace {
    /// The host's.
    Host,
    /// Another one's: attribution by pid is off.
    Foreign,
    /// Cannot be told.
    Unknown(String),
}

/// Looks at process 1 of the given /proc.
pub fn of(root: &HostRoot) -> PidNamespace {
    match fs::read_link(root.proc("1/ns/pid")) {
        Ok(link) if link.as_os_str() == INITIAL => PidNamespace::Host,
        Ok(_) => PidNamespace::Foreign,
        // A process of the initial namespace has no pid in any other: where it finds itself, /proc is the host's.
        Err(e) => match fs::read_link(root.proc("self/ns/pid")) {
            Ok(link) if link.as_os_str() == INITIAL => PidNamespace::Host,
            Ok(_) | Err(_) => PidNamespace::Unknown(e.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_the_initial_namespace_is_the_hosts() {
        let proc = std::env::temp_dir().join(format!("warpgauge-pidns-{}", std::process::id()));
        fs::create_dir_all(proc.join("1/ns")).unwrap();
        let root = HostRoot { proc: proc.clone(), ..HostRoot::default() };
        assert!(matches!(of(&root), PidNamespace::Unknown(_)));
        fs::create_dir_all(proc.join("self/ns")).unwrap();
        symlink("pid:[4026532100]", proc.join("self/ns/pid")).unwrap();
        assert!(matches!(of(&root), PidNamespace::Unknown(_)), "our own may be below the host's");
        fs::remove_file(proc.join("self/ns/pid")).unwrap();
        symlink(INITIAL, proc.join("self/ns/pid")).unwrap();
        assert_eq!(of(&root), PidNamespace::Host);
        symlink("pid:[4026532100]", proc.join("1/ns/pid")).unwrap();
        assert_eq!(of(&root), PidNamespace::Foreign);
        fs::remove_file(proc.join("1/ns/pid")).unwrap();
        symlink(INITIAL, proc.join("1/ns/pid")).unwrap();
        assert_eq!(of(&root), PidNamespace::Host);
        fs::remove_dir_all(&proc).unwrap();
    }
}
