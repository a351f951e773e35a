//! The agent in the file system of its image, with the mounts of the DaemonSet and no others.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use warpgauge_tests::harness::agent::Setup;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::needs;

/// Where something is mounted in the namespace of a process, below its own root.
fn mount_points(pid: u32) -> BTreeSet<String> {
    let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    table.lines().map(|line| line.split(' ').nth(4).unwrap().to_owned()).collect()
}

/// Whether a process has the file open, below its own root.
fn has_open(pid: u32, file: &str) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path.to_string_lossy().ends_with(file))
}

#[test]
fn the_agent_runs_in_its_image_with_the_mounts_of_the_daemonset() {
    needs!(Root, Probes, Image);
    let scratch = Scratch::new("image");
    let (state, socket) = (scratch.path().join("state"), scratch.path().join("run"));
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut command = Command::new(programs::xtask());
    command.args(["image", "run", "--instead", &format!("/var/lib/warpgauge={}", state.display())]);
    command.args(["--instead", &format!("/run/warpgauge={}", socket.display())]);
    // the kubelet's folders, which this machine need not have
    let folders = [
        "/var/lib/kubelet/pod-resources",
        "/var/lib/kubelet/device-plugins",
        "/var/log/pods",
        "/var/log/containers",
    ];
    for folder in folders {
        let own = scratch.path().join(folder.trim_start_matches('/'));
        command.args(["--instead", &format!("{folder}={}", own.display())]);
    }
    command.arg("--program").arg(programs::agent());
    let mut agent = Setup::of(scratch.path(), command).start();

    // what works, what is missing, and that it goes on
    let mut said = vec![
        "probe is at work probe=\"ioctl\"",
        "reason=\"unreachable\"",
        "endpoint=\"http://127.0.0.1:4317",
    ];
    let has_driver = fs::read_to_string("/proc/devices").unwrap().contains("nvidia");
    let has_device = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten().any(|device| {
        fs::read_to_string(device.path().join("vendor")).is_ok_and(|vendor| vendor.trim() == "0x10de")
    });
    said.extend((!has_driver).then_some("reason=\"no_driver\""));
    said.extend((!has_device).then_some("source=\"host\" reason=\"no_device\""));
    for words in said {
        wait_for(words, 60, || {
            assert!(agent.is_running(), "the agent ended:\n{}", agent.log());
            agent.log().contains(words).then_some(())
        });
    }
    wait_for("the open kernel log", 60, || has_open(agent.pid(), "/dev/kmsg").then_some(()));
    assert!(!agent.log().contains("source=\"kmsg\""), "the kernel log is read: {}", agent.log());
    let root = fs::read_link(format!("/proc/{}/root", agent.pid())).unwrap();
    assert!(root.ends_with("target/image/rootfs"), "{}", root.display());
    let below = |place: &str| ["/sys/", "/dev/"].iter().any(|mount| place.starts_with(mount));
    let places: BTreeSet<String> = mount_points(agent.pid()).into_iter().filter(|at| !below(at)).collect();
    let want = [
        "/",
        "/dev",
        "/proc",
        "/run/warpgauge",
        "/sys",
        "/usr/bin/warpgauge",
        "/var/lib/kubelet/device-plugins",
        "/var/lib/kubelet/pod-resources",
        "/var/lib/warpgauge",
        "/var/log/containers",
        "/var/log/pods",
    ];
    assert_eq!(places, want.map(str::to_owned).into());

    assert!(agent.terminate().success());
    assert!(state.join("lock").is_file(), "state is kept on the host");
    assert_eq!(
        fs::read_to_string("/proc/self/mountinfo").unwrap(),
        before,
        "the host's mounts are as they were"
    );
}
