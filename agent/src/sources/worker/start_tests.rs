//! When a worker may be started, and when not.

use std::process::Command;

use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::desk::desk;
use super::ended::{Ended, Why};
use super::hold::{DriverHold, Reason, Seen};
use super::spawn::Process;
use super::{Parts, Worker};
use crate::config::Config;
use crate::host::{HostRoot, mono_now};
use crate::sources::{Outlet, queue};
use crate::telemetry::Telemetry;

fn worker(hold: &DriverHold, host: HostRoot, telemetry: &Telemetry) -> Worker {
    let (_, questions) = desk();
    let parts = Parts {
        config: Config::default().worker,
        host,
        lock_dir: None,
        hold: hold.clone(),
        questions,
        board: Board::default(),
    };
    Worker::new(parts, telemetry)
}

#[tokio::test]
async fn no_worker_is_started_once_the_driver_is_released() {
    let (hold, telemetry) = (DriverHold::default(), Telemetry::default());
    let mut worker = worker(&hold, HostRoot::default(), &telemetry);
    let (tx, _signals) = queue(10);
    hold.release(Reason::Manual); // after the source found that nothing is in the way
    worker.work(&Outlet::new(tx, "worker", &telemetry), &CancellationToken::new()).await;
    assert!(worker.spawner.is_none() && !hold.now().worker);
}

#[test]
fn a_former_agents_worker_has_a_moment_to_end_before_it_counts_as_given_up() {
    let (hold, telemetry) = (DriverHold::default(), Telemetry::default());
    let gauge = telemetry.gauge("warpgauge.worker.abandoned", &[]);
    let mut worker = worker(&hold, HostRoot::default(), &telemetry);
    let sleep = || Command::new("sleep").arg("60").spawn().unwrap();
    let (mut former, ours) = (sleep(), Process::of(sleep()));
    let pid = former.id();
    hold.set_worker(true);
    worker.shared.throttle.started(mono_now());
    worker.ended(Ended { why: Why::Held(pid), abandoned: false }, ours);
    let why = |worker: &mut Worker| worker.blocked().map(|why| (why.reason, why.pid));
    assert_eq!((why(&mut worker), gauge.get()), (Some(("held", pid)), 0));
    assert!(worker.blocked().unwrap().words().contains(&format!("(process {pid})")));
    worker.abandoned.as_mut().unwrap().ends_by = Some(mono_now());
    assert_eq!((why(&mut worker), gauge.get()), (Some(("abandoned", pid)), 1));
    assert!(hold.now().worker, "the driver is not free");
    former.kill().unwrap();
    former.wait().unwrap();
    assert_eq!((why(&mut worker), gauge.get(), hold.now().worker), (None, 0, false));
}

#[test]
fn while_the_next_worker_waits_it_is_said_why_the_last_one_ended() {
    let said = |why: Why| {
        let mut worker = worker(&DriverHold::default(), HostRoot::default(), &Telemetry::default());
        for _ in 0..2 {
            worker.shared.throttle.started(mono_now());
            worker.ended(Ended { why, abandoned: false }, Process::of(Command::new("true").spawn().unwrap()));
        }
        let said = worker.blocked().unwrap();
        (said.reason, said.again_s, said.words().ends_with("; again in 1 s"))
    };
    for (why, reason) in [
        (Why::Crashed, "crash_loop"),
        (Why::TooBig, "memory"),
        (Why::Hung, "hung"),
        (Why::Protocol, "protocol"),
    ] {
        assert_eq!(said(why), (reason, 1, true), "{why:?}");
    }
}

#[tokio::test]
async fn a_worker_that_cannot_be_started_is_said_until_one_can_be() {
    let (hold, telemetry) = (DriverHold::default(), Telemetry::default());
    let mut worker = worker(&hold, HostRoot::default(), &telemetry);
    worker.program.file = "/nowhere/warpgauge".into();
    let (tx, _signals) = queue(10);
    let outlet = Outlet::new(tx, "worker", &telemetry);
    for _ in 0..2 {
        worker.work(&outlet, &CancellationToken::new()).await;
    }
    let said = worker.blocked().unwrap();
    assert_eq!(said.reason, "no_start");
    assert!(
        said.words().contains("cannot be started: ") && said.words().ends_with("again in 1 s"),
        "{said:?}"
    );
}

#[test]
fn an_unload_that_happened_is_over_when_the_module_is_back() {
    let sys = crate::test_dir::TestDir::new();
    let host = HostRoot { sys: sys.path().to_path_buf(), ..HostRoot::default() };
    let module = sys.path().join("module/nvidia");
    std::fs::create_dir_all(&module).unwrap();
    let hold = DriverHold::default();
    let mut worker = worker(&hold, host, &Telemetry::default());
    let mut reason = || worker.blocked().map(|why| why.reason);
    assert_eq!(reason(), None);
    hold.release(Reason::Unload);
    assert_eq!(reason(), Some("released"), "it may be unloaded any moment");
    std::fs::remove_dir(&module).unwrap();
    assert_eq!(reason(), Some("released"), "there is nothing to take");
    std::fs::create_dir(&module).unwrap();
    assert_eq!((reason(), hold.now().released), (None, None));
    hold.release(Reason::Manual);
    std::fs::remove_dir(&module).unwrap();
    assert_eq!(reason(), Some("released"));
    std::fs::create_dir(&module).unwrap();
    assert_eq!(reason(), Some("released"), "nobody took it again");
    hold.take();
    assert_eq!(reason(), None);
    let device = sys.path().join("bus/pci/drivers/nvidia/0000:3b:00.0");
    std::fs::create_dir_all(&device).unwrap();
    let seen = Seen::look(&worker.host, Reason::Bind);
    assert_eq!(seen, Seen { module: true, bound: Some(vec!["0000:3b:00.0".into()]) });
    assert_eq!(Seen::look(&worker.host, Reason::Unload).bound, None);
}
