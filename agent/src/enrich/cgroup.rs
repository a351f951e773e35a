//! Cgroup path → container, pod, job.
//!
//! In: a path below the hierarchy's root, as /proc/PID/cgroup prints it. Out: [`Workload`].
//! Forms: kubelet with the systemd or the cgroupfs driver, containerd, CRI-O, Docker, Podman, kind, Slurm.
//! What can go wrong: whoever may make cgroups names them as he likes. So a pod counts only where the kubelet puts it
//! (at the top, or in the node container of a cluster in containers), the outermost one wins, the container is the
//! first inside it, and a Slurm job counts only below Slurm's own root.

use crate::model::Workload;

/// What the path says; all fields empty for a path of no known form.
pub fn workload(path: &str) -> Workload {
    // The kernel marks the path of a process whose cgroup was removed.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let segments: Vec<&str> = path.split(['/', ':']).filter(|s| !s.is_empty()).collect();
    // `..` comes from the kernel alone: the reader is in a cgroup namespace of its own.
    let above = segments.iter().take_while(|s| **s == "..").count();
    let segments = segments.get(above..).unwrap_or_default();
    if let Some((pod_uid, inside)) = pod(segments, 0 < above) {
        let container_id = inside.iter().find_map(|s| container_id(s)).map(str::to_owned);
        return Workload { container_id, pod_uid: Some(pod_uid), ..Workload::default() };
    }
    if let Some((job, step)) = slurm(segments) {
        return Workload { slurm_job: Some(job), slurm_step: step, ..Workload::default() };
    }
    // A user's own processes may be in Podman's containers, and in nobody else's.
    let of_user = segments.first() == Some(&"user.slice");
    let mut named = segments.iter().filter(|s| !of_user || s.starts_with("libpod-"));
    let container_id = named.find_map(|s| container_id(s)).map(str::to_owned);
    let systemd_unit = container_id.is_none().then(|| systemd_unit(segments)).flatten();
    Workload { container_id, systemd_unit, ..Workload::default() }
}

/// The pod's uid and what lies inside it. With `cut`, the kubelet's root may lie above what is seen.
fn pod<'a>(segments: &'a [&'a str], cut: bool) -> Option<(String, &'a [&'a str])> {
    let below = kubelet_root(segments).or(cut.then_some(segments))?;
    // A quality-of-service folder or two, then the pod.
    let at = below.iter().take(3).position(|s| pod_uid(s).is_some())?;
    let root_is_kubepods = cut || below.first().is_some_and(|s| s.contains("kubepods"));
    let uid = pod_uid(below.get(at)?)?;
    root_is_kubepods.then(|| (uid, below.get(at + 1..).unwrap_or_default()))
}

/// From the kubelet's `kubepods` folder on: at the top, below a cgroup root called `kubelet`, or below that of a node
/// that is itself a Docker container (kind).
fn kubelet_root<'a>(segments: &'a [&'a str]) -> Option<&'a [&'a str]> {
    let is_kubelet = |s: &&str| matches!(*s, "kubelet" | "kubelet.slice");
    let node = match segments {
        ["docker", id, rest @ ..] if container_id(id).is_some() => rest,
        ["system.slice", scope, rest @ ..]
            if scope.starts_with("docker-") && container_id(scope).is_some() =>
        {
            rest
        }
        _ => segments,
    };
    let in_node = node.len() < segments.len();
    let below = match node {
        [kubelet, rest @ ..] if is_kubelet(kubelet) => rest,
        _ if in_node => return None, // a container that only calls its own cgroups so
        _ => node,
    };
    let root = below.first()?;
    let is_root = matches!(*root, "kubepods" | "kubepods.slice" | "kubelet-kubepods.slice");
    is_root.then_some(below)
}

/// `pod<uid>`, or the systemd slice `…-pod<uid with underscores>.slice`; a uid is 8-4-4-4-12 or, for a static pod,
/// 32 hexadecimal digits.
fn pod_uid(segment: &str) -> Option<String> {
    let name = segment.strip_suffix(".slice").unwrap_or(segment);
    let uid = match name.strip_prefix("pod") {
        Some(uid) => uid,
        None => name.rsplit_once("-pod")?.1,
    };
    let is_hex = |s: &str| s.bytes().all(|b| b.is_ascii_hexdigit());
    if uid.len() == 32 && is_hex(uid) {
        return Some(uid.to_ascii_lowercase());
    }
    let groups: Vec<&str> = uid.split(['-', '_']).collect();
    let lengths = groups.iter().map(|g| g.len());
    let is_uid = lengths.eq([8, 4, 4, 4, 12]) && groups.iter().all(|g| is_hex(g));
    is_uid.then(|| groups.join("-").to_ascii_lowercase())
}

/// `<64 hex>` alone, or behind a runtime's prefix as in `cri-containerd-<64 hex>.scope`. The scope of a runtime's
/// monitor (`crio-conmon-…`) carries the container's id but is not the container.
fn container_id(segment: &str) -> Option<&str> {
    let name = segment.strip_suffix(".scope").unwrap_or(segment);
    let (prefix, id) = name.rsplit_once('-').unwrap_or(("", name));
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase());
    (is_id && !prefix.ends_with("conmon")).then_some(id)
}

/// Job and step below `slurm…` (v1) or `system.slice/…slurmstepd.scope` (v2).
fn slurm(segments: &[&str]) -> Option<(String, Option<String>)> {
    let below = match segments {
        ["system.slice", scope, rest @ ..] if scope.ends_with("slurmstepd.scope") => rest,
        [root, rest @ ..] if root.starts_with("slurm") => rest,
        _ => return None,
    };
    let mut below = below.iter();
    let job = below.find_map(|s| s.strip_prefix("job_"))?;
    let is_number = !job.is_empty() && job.bytes().all(|b| b.is_ascii_digit());
    let step = below.find_map(|s| s.strip_prefix("step_"));
    is_number.then(|| (job.to_owned(), step.map(str::to_owned)))
}

/// The service: the outermost below `system.slice`, since it may name what is inside it as it likes; a user's is his
/// manager, `user@<uid>.service`, for the same reason.
fn systemd_unit(segments: &[&str]) -> Option<String> {
    let is_slice = |s: &&&str| s.ends_with(".slice");
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let (root, below) = segments.split_first()?;
    // A slice may be in slices.
    let unit = below.iter().find(|s| !is_slice(s))?;
    let name = unit.strip_suffix(".service").filter(|name| !name.is_empty())?;
    let known = match *root {
        "system.slice" => true,
        "user.slice" => name.strip_prefix("user@").is_some_and(is_number),
        _ => false,
    };
    known.then(|| (*unit).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";
    const STATIC_UID: &str = "3f5e0c0d9a8b7c6d5e4f3a2b1c0d9e8f";

    /// `ID` in a path stands for 64 hexadecimal digits.
    #[track_caller]
    fn check(path: &str, pod: Option<&str>, container: bool, job: Option<(&str, &str)>) {
        let id = "c0ffee".repeat(10) + "0123";
        let found = workload(&path.replace("ID", &id));
        assert_eq!(found.pod_uid.as_deref(), pod, "pod of {path}");
        assert_eq!(found.container_id, container.then_some(id), "container of {path}");
        let found_job = found.slurm_job.as_deref().zip(found.slurm_step.as_deref());
        assert_eq!(found_job, job, "job of {path}");
    }

    #[test]
    fn every_form_seen_in_the_field() {
        let burst = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_1111_2222_3333_444455556666.slice";
        check(&format!("{burst}/cri-containerd-ID.scope"), Some(UID), true, None);
        check(&format!("/kubepods/besteffort/pod{UID}/ID"), Some(UID), true, None);
        check(
            "/kubepods.slice/kubepods-pod0a1b2c3d_1111_2222_3333_444455556666.slice/crio-ID.scope/container",
            Some(UID),
            true,
            None,
        );
        check(&format!("/kubepods/burstable/pod{STATIC_UID}/ID"), Some(STATIC_UID), true, None);
        check(
            "/../../kubepods-besteffort-pod0a1b2c3d_1111_2222_3333_444455556666.slice/cri-containerd-ID.scope",
            Some(UID),
            true,
            None,
        );
        check("/system.slice/docker-ID.scope", None, true, None);
        check(
            "/user.slice/user-7.slice/user@7.service/user.slice/libpod-ID.scope/container",
            None,
            true,
            None,
        );
        check("/user.slice/user-7.slice/user@7.service/docker-ID.scope", None, false, None);
        check("/machine.slice/libpod-ID.scope/container", None, true, None);
        check("/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", None, false, Some(("4711", "0")));
        check("/user.slice/user-1000.slice/session-3.scope", None, false, None);
        check(&format!("/docker/ID/kubelet{burst}/cri-containerd-ID.scope"), Some(UID), true, None);
        check("/slurm_node7/uid_1000/job_12/step_batch", None, false, Some(("12", "batch")));
        check(&format!("{burst}:cri-containerd:ID"), Some(UID), true, None);
        check(burst, Some(UID), false, None);
    }

    #[test]
    fn what_is_neither_container_nor_job_has_its_unit() {
        let id = "c0ffee".repeat(10) + "0123";
        for (path, want) in [
            ("/system.slice/ollama.service", Some("ollama.service")),
            ("/system.slice/ollama.service/system.slice/forged.service", Some("ollama.service")),
            ("/system.slice/system-getty.slice/getty@tty1.service (deleted)", Some("getty@tty1.service")),
            ("/user.slice/user-7.slice/user@7.service/app.slice/forged.service", Some("user@7.service")),
            ("/user.slice/user-7.slice/session-3.scope", None),
            ("/user.slice/user-7.slice/x.service", None),
            ("/system.slice/run-u7.scope/x.service", None),
            ("/system.slice/.service", None),
            ("/mine/system.slice/x.service", None),
            (&format!("/system.slice/docker-{id}.scope"), None),
            (&format!("/system.slice/x.service/{id}"), None),
            ("/system.slice/slurmstepd.scope/job_4711/step_0", None),
            (&format!("/kubepods/pod{UID}/system.slice/x.service"), None),
            ("/", None),
        ] {
            assert_eq!(workload(path).systemd_unit.as_deref(), want, "{path}");
        }
    }

    #[test]
    fn a_word_that_looks_like_a_pod_is_none() {
        for path in [
            "/podman/pod/podlet",
            "/machine.slice/machine-podman-pod0a1b2c3d.slice",
            &format!("/system.slice/pod{UID}"), // not below the kubelet's root
            "/kubepods/besteffort/pod0a1b2c3d-1111-2222-3333-44445555666", // a digit short
            "/kubepods/pod",
            "",
            "/",
            "0::/",
        ] {
            check(path, None, false, None);
        }
    }

    #[test]
    fn a_pod_counts_only_where_the_kubelet_puts_it() {
        let id = "c0ffee".repeat(10) + "0123";
        for (path, container) in [
            (format!("/user.slice/user-1000.slice/user@1000.service/kubepods/pod{UID}/x"), false),
            (
                format!(
                    "/system.slice/evil.service/kubepods.slice/kubepods-pod{}.slice",
                    UID.replace('-', "_")
                ),
                false,
            ),
            (format!("/system.slice/docker-{id}.scope/kubepods/pod{UID}"), true),
            (format!("/docker/{id}/kubepods/pod{UID}"), true),
            (format!("/kubepods-mine/a/b/c/pod{UID}"), false),
            (format!("/mine/kubepods/pod{UID}"), false),
        ] {
            check(&path.replace(&id, "ID"), None, container, None);
        }
        check(&format!("/docker/ID/kubelet/kubepods/pod{UID}"), Some(UID), false, None);
        check(&format!("/kubelet/kubepods/burstable/pod{UID}/ID"), Some(UID), true, None);
    }

    #[test]
    fn a_job_counts_only_below_slurms_own_root() {
        check(&format!("/kubepods/pod{UID}/slurm/job_1/step_0"), Some(UID), false, None);
        check("/user.slice/user-1.slice/slurm/job_1/step_0", None, false, None);
        check("/system.slice/node7_slurmstepd.scope/job_9/step_extern", None, false, Some(("9", "extern")));
    }

    #[test]
    fn the_path_of_a_removed_cgroup_is_read_too() {
        check(&format!("/kubepods/pod{UID}/ID (deleted)"), Some(UID), true, None);
    }

    #[test]
    fn a_forged_pod_further_in_does_not_win() {
        let forged = "ffffffff-ffff-ffff-ffff-ffffffffffff";
        let inner = "c0ffee".repeat(10) + "0123";
        let other = "d".repeat(64);
        let path = format!("/kubepods/pod{UID}/{inner}/kubepods/pod{forged}/{other}");
        let found = workload(&path);
        assert_eq!((found.pod_uid.as_deref(), found.container_id), (Some(UID), Some(inner)));
    }

    #[test]
    fn the_monitor_of_a_container_is_not_the_container() {
        check(
            "/kubepods.slice/kubepods-pod0a1b2c3d_1111_2222_3333_444455556666.slice/crio-conmon-ID.scope",
            Some(UID),
            false,
            None,
        );
        check("/machine.slice/libpod-conmon-ID.scope", None, false, None);
    }
}
