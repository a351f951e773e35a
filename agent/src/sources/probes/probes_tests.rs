//! Tests of the source as a whole: what keeps it from working.
//!
//! In: configurations. Out: reasons. That the kernel takes the programs is tested where they can be loaded.

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
        budget: None,
    }
}

/// Runs a source that cannot work; gives the reason.
async fn reason(config: ProbesConfig, host: HostRoot) -> &'static str {
    let telemetry = Telemetry::default();
    let (tx, _rx) = queue(8);
    let outlet = Outlet::new(tx, "probes", &telemetry);
    match Probes::new(config, host, &telemetry).run(&outlet, &CancellationToken::new()).await {
        Exit::Unavailable(lacks) => lacks[0].reason,
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
    let nowhere = HostRoot {
        proc: "/nowhere".into(),
        sys: "/nowhere".into(),
        dev: "/nowhere".into(),
        ..HostRoot::default()
    };
    assert_eq!(reason(config(), nowhere).await, "no_tracefs");
}
