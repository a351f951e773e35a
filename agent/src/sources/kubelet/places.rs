//! What on the disk tells that the kubelet was restarted, or gave devices.
//!
//! In: the socket's path. Out: [`Seen`], to be compared with the one before. Nothing is opened.
//! What can go wrong: the folders beside the socket's are not mounted; then a change is seen at the next round only.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// One look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The socket: another one after a restart. `None`: there is none.
    pub socket: Option<Stamp>,
    /// What is written when a plugin comes or goes, or devices are given.
    devices: [Option<Stamp>; PLACES.len()],
}

/// Below the kubelet's folder: sockets of device plugins; what was given by them, and by DRA drivers, which the kubelet
/// writes as soon as it has decided. Source: Kubernetes' device manager and DRA manager.
const PLACES: [&str; 3] =
    ["device-plugins", "device-plugins/kubelet_internal_checkpoint", "dra_manager_state"];

/// A file as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    /// Seconds and nanoseconds.
    changed: (i64, i64),
}

impl Seen {
    /// Looks; a few system calls.
    pub fn look(socket: &Path) -> Self {
        // …/kubelet/pod-resources/kubelet.sock
        let kubelet = socket.parent().and_then(Path::parent);
        Self {
            socket: stamp(socket),
            devices: PLACES.map(|place| kubelet.and_then(|folder| stamp(&folder.join(place)))),
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let data = fs::metadata(path).ok()?;
    Some(Stamp { device: data.dev(), inode: data.ino(), changed: (data.ctime(), data.ctime_nsec()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn a_new_socket_and_a_new_checkpoint_are_seen() {
        let dir = TestDir::new();
        let (sockets, plugins) = (dir.path().join("pod-resources"), dir.path().join("device-plugins"));
        fs::create_dir(&sockets).unwrap();
        let socket = sockets.join("kubelet.sock");
        let nothing = Seen::look(&socket);
        assert_eq!(nothing, Seen::default());
        fs::write(&socket, "").unwrap();
        let there = Seen::look(&socket);
        assert!(there.socket.is_some() && there == Seen::look(&socket));
        fs::create_dir(&plugins).unwrap();
        let with_plugins = Seen::look(&socket);
        assert_ne!(with_plugins, there);
        // As the kubelet writes it: a new file under the old name.
        let written = |text: &str| {
            fs::write(plugins.join(".new"), text).unwrap();
            fs::rename(plugins.join(".new"), plugins.join("kubelet_internal_checkpoint")).unwrap();
            Seen::look(&socket)
        };
        let (first, second) = (written("1"), written("2"));
        assert!(first != with_plugins && first != second);
        assert_eq!(first.socket, second.socket);
        fs::write(sockets.join("next"), "").unwrap();
        fs::rename(sockets.join("next"), &socket).unwrap();
        assert_ne!(Seen::look(&socket).socket, second.socket, "another kubelet");
    }
}
