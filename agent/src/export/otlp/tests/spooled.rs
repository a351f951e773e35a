//! Tests of what becomes of records that could not be delivered before the end.
//!
//! In: records, and a collector that is away or hangs. Out: assertions on the spool and on what the next run sends.
//! What can go wrong is what is tested.

use super::*;
use crate::export::catalog;

#[tokio::test]
async fn what_is_left_at_the_end_is_sent_first_by_the_next_run_and_each_once() {
    let dir = TestDir::new();
    let addr = Collector::start([]).await.kill().await;
    let first = rig(setup(addr, Some(&dir), 100));
    first.stall("a");
    first.xid(5);
    first.stall("b");
    let (left, setup_of_first) = first.give_up().await;
    assert_eq!(left, Left { spooled: 3, dropped: 0 });
    assert_eq!(setup_of_first.delivery.resume_at(), Some(5), "kept is not delivered: it is read again");
    setup_of_first.accounts();

    // A second run that reaches nobody either keeps them, and adds its own.
    let second = rig(setup(addr, Some(&dir), 100));
    second.stall("c");
    let (left, setup_of_second) = second.give_up().await;
    assert_eq!((left.spooled, setup_of_second.log("reloaded"), setup_of_second.log("reread")), (3, 3, 1));
    setup_of_second.accounts();

    let mut collector = Collector::start_at(addr, []).await;
    let third = rig(setup(addr, Some(&dir), 100));
    assert_eq!(collector.uids(3).await, ["boot:a:begin", "boot:b:begin", "boot:c:begin"]);
    third.xid(5);
    assert_eq!(collector.uids(1).await, uids([5]));
    let (left, setup_of_third) = third.finish(DEADLINE).await;
    assert_eq!(left, Left::default());
    until("removed", || !dir.path().join("undelivered.pb").exists()).await;
    setup_of_third.accounts();
    collector.nothing_more();
}

#[tokio::test]
async fn without_a_state_directory_what_is_left_is_dropped_and_counted() {
    let addr = Collector::start([]).await.kill().await;
    let rig = rig(setup(addr, None, 100));
    rig.stall("a");
    let (left, setup) = rig.give_up().await;
    assert_eq!((left.dropped, setup.dropped_logs("shutdown")), (1, 1));
    setup.accounts();
}

#[tokio::test]
async fn a_hung_collector_does_not_hold_up_the_end() {
    let dir = TestDir::new();
    let mut collector = Collector::start([Answer::Hang, Answer::Hang, Answer::Hang]).await;
    let rig = rig(setup(collector.addr, Some(&dir), 100));
    rig.stall("a");
    collector.asked().await;
    let began = Instant::now();
    let (left, setup) = rig.give_up().await;
    assert_eq!(left.spooled, 1);
    assert!(began.elapsed() < DEADLINE / 2, "{:?}", began.elapsed());
    setup.accounts();
}

#[tokio::test]
async fn a_restart_of_the_machine_does_not_lose_its_kernel_log() {
    let dir = TestDir::new();
    let addr = Collector::start([]).await.kill().await;
    let first = rig(setup(addr, Some(&dir), 100));
    first.xid(5);
    first.stall("a");
    first.give_up().await.1.accounts();
    // The same boot, but the kernel log cannot be read this time.
    let second = rig(setup(addr, Some(&dir), 100));
    let (left, setup_of_second) = second.give_up().await;
    assert_eq!((left.spooled, setup_of_second.log("reread")), (1, 1));
    setup_of_second.accounts();

    let mut collector = Collector::start_at(addr, []).await;
    let mut next_boot = setup(addr, Some(&dir), 100);
    next_boot.spool = Some(spool(&dir, "next", &next_boot.telemetry));
    let third = rig(next_boot);
    assert_eq!(collector.uids(2).await, ["boot:5", "boot:a:begin"]);
    let (_, setup_of_third) = third.finish(DEADLINE).await;
    assert_eq!((setup_of_third.log("acknowledged"), setup_of_third.log("reread")), (2, 0));
    setup_of_third.accounts();
    until("removed", || !dir.path().join("undelivered.pb").exists()).await;
    collector.nothing_more();
}

#[tokio::test]
async fn the_file_goes_when_its_records_made_room_for_newer_ones() {
    let dir = TestDir::new();
    let addr = Collector::start([]).await.kill().await;
    let first = rig(setup(addr, Some(&dir), 100));
    first.stall("a");
    first.stall("b");
    first.xid(1);
    first.give_up().await.1.accounts();
    let second = rig(setup(addr, Some(&dir), 2));
    second.xid(1); // read again
    (2..=3).for_each(|seq| second.xid(seq));
    assert_eq!(second.setup.dropped_logs("queue_full"), 3);
    until("removed", || !dir.path().join("undelivered.pb").exists()).await;
    let mut collector = Collector::start_at(addr, []).await;
    assert_eq!(collector.uids(2).await, uids([2, 3]));
    let (left, setup_of_second) = second.finish(DEADLINE).await;
    assert_eq!(left, Left::default());
    setup_of_second.accounts();
    assert!(!dir.path().join("undelivered.pb").exists(), "nothing of it is sent by a third run");
}

#[tokio::test]
async fn a_disk_and_a_collector_that_hang_do_not_hold_up_the_end() {
    let dir = TestDir::new();
    let hangs = || std::iter::repeat_n(Answer::Hang, 50);
    let mut collector = Collector::start(hangs()).await;
    let (mut setup, writer) = (setup(collector.addr, None, 100), StateWriter::start().unwrap());
    let errors = setup.telemetry.counter("warpgauge.state.errors", &[]);
    setup.spool = Some(Spool::new(dir.path(), Some("boot".into()), writer.clone(), errors.clone()));
    let rig = rig(setup);
    rig.stall("a");
    collector.asked().await;
    let thaw = writer.freeze().await;
    let (began, within) = (Instant::now(), Duration::from_millis(300));
    let setup = rig.setup.clone();
    let last = || Batch { points: vec![points::point(&catalog::XID_ERRORS, 20, 1)], ..Batch::default() };
    let left = rig.otlp.finish(began + within, last, async |_| {}).await;
    let took = began.elapsed();
    assert!(took < within * 4, "{took:?}");
    assert_eq!((left, errors.get()), (Left { spooled: 0, dropped: 1 }, 1));
    setup.accounts();
    drop(thaw);
}
