//! Whether a pod has a cgroup: it lives.
//!
//! In: the mount point of the hierarchy that carries the containers, and a pod's uid. Out: yes or no, by a few looks at
//! the places where the kubelet makes a pod's cgroup.
//! What can go wrong: the kubelet's root is elsewhere (a node that is itself a container, a `--cgroup-root` of its own):
//! then no pod is found there, and who asks must not take that for an end.

use std::path::Path;

/// The kubelet's root, below the hierarchy's; and what its systemd slices are called by.
const ROOTS: [(&str, &str); 2] = [("", ""), ("kubelet", "kubelet-")];
/// Quality of service: of guaranteed pods none.
const CLASSES: [&str; 3] = ["", "burstable", "besteffort"];

/// Whether the pod has one; `uid` with dashes, or the 32 digits of a static pod.
pub fn lives(mount: &Path, uid: &str) -> bool {
    let escaped = uid.replace('-', "_");
    ROOTS.iter().flat_map(|root| CLASSES.map(|class| (root, class))).any(|((folder, prefix), class)| {
        let cgroupfs = mount.join(folder).join("kubepods").join(class).join(format!("pod{uid}"));
        let top = format!("{prefix}kubepods");
        let of_class = if class.is_empty() { top.clone() } else { format!("{top}-{class}") };
        let slice = |name: &str| format!("{name}.slice");
        let mut systemd = mount.to_path_buf();
        if !folder.is_empty() {
            systemd.push(slice(folder));
        }
        systemd.push(slice(&top));
        if !class.is_empty() {
            systemd.push(slice(&of_class));
        }
        systemd.push(slice(&format!("{of_class}-pod{escaped}")));
        cgroupfs.is_dir() || systemd.is_dir()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enrich::cgroup;
    use crate::test_dir::TestDir;

    #[test]
    fn a_pod_lives_where_its_cgroup_is_found_by_its_path_too() {
        let uid = "0a1b2c3d-1111-2222-3333-444455556666";
        let escaped = uid.replace('-', "_");
        for path in [
            format!("kubepods/pod{uid}"),
            format!("kubepods/burstable/pod{uid}"),
            format!("kubelet/kubepods/besteffort/pod{uid}"),
            format!("kubepods.slice/kubepods-pod{escaped}.slice"),
            format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{escaped}.slice"),
            format!(
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/\
                 kubelet-kubepods-besteffort-pod{escaped}.slice"
            ),
        ] {
            let mount = TestDir::new();
            assert!(!lives(mount.path(), uid));
            std::fs::create_dir_all(mount.path().join(&path)).unwrap();
            assert!(lives(mount.path(), uid), "{path}");
            assert!(!lives(mount.path(), &uid.replace('0', "1")), "{path}");
            assert_eq!(cgroup::workload(&format!("/{path}")).pod_uid.as_deref(), Some(uid), "{path}");
        }
    }
}
