//! Cgroup path → container, pod, job.
//!
//! In: a path below the hierarchy's root, as /proc/PID/cgroup prints it. Out: [`Workload`].
//! Forms: kubelet with the systemd or the cgroupfs driver, containerd, CRI-O, Docker, Podman, kind, Slurm.
//! What can go wrong: a workload may make cgroups of its own and name them as it likes; so the **outermost** pod
//! segment counts, and the container is the first one inside that pod.

use crate::model::Workload;

/// What the path says; all fields empty for a path of no known form.
pub fn workload(path: &str) -> Workload {
    let segments: Vec<&str> = path.split(['/', ':']).filter(|s| !s.is_empty()).collect();
    let (slurm_job, slurm_step) = slurm(&segments);
    let pod = segments.iter().enumerate().find_map(|(at, segment)| {
        let uid = pod_uid(segment)?;
        let below_kubepods = segments.get(..=at)?.iter().any(|s| s.contains("kubepods"));
        below_kubepods.then_some((at, uid))
    });
    let (pod_uid, inside) = match pod {
        Some((at, uid)) => (Some(uid), segments.get(at..).unwrap_or_default()),
        None => (None, segments.as_slice()),
    };
    let container_id = inside.iter().find_map(|s| container_id(s)).map(str::to_owned);
    Workload { container_id, pod_uid, slurm_job, slurm_step }
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

/// `…slurm…/job_N/step_S`: job and step, below a segment of Slurm's own.
fn slurm(segments: &[&str]) -> (Option<String>, Option<String>) {
    let Some(root) = segments.iter().position(|s| s.starts_with("slurm")) else { return (None, None) };
    let mut below = segments.get(root..).unwrap_or_default().iter();
    let digits = |s: &&str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let Some(job) = below.find_map(|s| s.strip_prefix("job_")).filter(digits) else { return (None, None) };
    let step = below.find_map(|s| s.strip_prefix("step_"));
    (Some(job.to_owned()), step.map(str::to_owned))
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
        check("/machine.slice/libpod-ID.scope/container", None, true, None);
        check("/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", None, false, Some(("4711", "0")));
        check("/user.slice/user-1000.slice/session-3.scope", None, false, None);
        check(&format!("/docker/ID/kubelet{burst}/cri-containerd-ID.scope"), Some(UID), true, None);
        check("/slurm_node7/uid_1000/job_12/step_batch", None, false, Some(("12", "batch")));
        check(&format!("{burst}:cri-containerd:ID"), Some(UID), true, None);
        check(burst, Some(UID), false, None);
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
