//! Tests of the source as a whole: what keeps it from working, and that this host's kernel takes every program.
//!
//! In: configurations. Out: reasons; on a host with root and tracefs, loaded programs.

use super::*;
use crate::config::CgroupChoice;
use crate::sources::queue;

fn config() -> ProbesConfig {
    ProbesConfig {
        enabled: true,
        majors: Some(vec![4]),
        open_prefix: "/dev/tty".to_owned(),
        cgroup: CgroupChoice::Auto,
        scan_interval: Duration::from_millis(250),
        read_interval: Duration::from_secs(1),
    }
}

/// Runs a source that cannot work; gives the reason.
async fn reason(config: ProbesConfig, host: HostRoot) -> &'static str {
    let telemetry = Telemetry::default();
    let (tx, _rx) = queue(8);
    let outlet = Outlet::new(tx, "probes", &telemetry);
    match Probes::new(config, host, &telemetry).run(&outlet, &CancellationToken::new()).await {
        Exit::Unavailable(lack) => lack.reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_keeps_it_from_working_is_said() {
    let off = ProbesConfig { enabled: false, ..config() };
    assert_eq!(reason(off, HostRoot::default()).await, "disabled");
    if !object::is_built() {
        assert_eq!(reason(config(), HostRoot::default()).await, "not_built");
        return;
    }
    let everything = ProbesConfig { open_prefix: String::new(), ..config() };
    assert_eq!(reason(everything, HostRoot::default()).await, "open_prefix");
    let nowhere = HostRoot { proc: "/nowhere".into(), sys: "/nowhere".into(), dev: "/nowhere".into() };
    assert_eq!(reason(config(), nowhere).await, "no_tracefs");
}

#[test]
fn this_hosts_kernel_takes_every_program() {
    let root = rustix::process::geteuid().is_root();
    let tracefs = Kernel::look(&HostRoot::default(), tactics::events()).tracefs;
    if !object::is_built() || !root || tracefs.is_none() {
        eprintln!("skipped: needs the kernel object, root and tracefs");
        return;
    }
    for cgroup in [CgroupChoice::V1, CgroupChoice::V2] {
        let config = ProbesConfig { cgroup, ..config() };
        if cgroup_hierarchy::read(&HostRoot::default(), cgroup).is_err() {
            continue;
        }
        let ready = prepare(&config, &HostRoot::default()).expect("loads");
        assert!(ready.loaded.broken.is_empty(), "{:?}", ready.loaded.broken);
        assert_eq!(ready.majors.array()[..2], [4, 0]);
        let ioctl = ready.choices.iter().find(|choice| choice.probe == tactics::Probe::Ioctl);
        assert_eq!(ioctl.and_then(|choice| choice.tactic), Some(tactics::Tactic::SyscallTracepoint));
    }
}
