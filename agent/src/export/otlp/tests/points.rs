//! Tests of what becomes of points.
//!
//! In: batches of points, and a script for the collector. Out: assertions on the order in which they arrive.
//! What can go wrong is what is tested.

use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};

use super::*;
use crate::export::catalog;
use crate::export::point::{Point, Value};
use crate::model::WallNs;

pub(super) fn point(metric: &'static catalog::Metric, at: u64, value: u64) -> Point {
    let attributes = Arc::new(vec![("gpu.xid.class", "bus".to_owned())]);
    Point { metric, attributes, start: Some(WallNs(10)), at: WallNs(at), value: Value::Count(value) }
}

/// A zero at 10 that batch 1 introduced, and the value at the batch's own time.
fn batch(generation: u64, value: u64) -> Batch {
    let zero = point(&catalog::XID_ERRORS, 10, 0);
    let points = vec![point(&catalog::XID_ERRORS, 10 + generation * 10, value)];
    Batch { generation, zeros: vec![(1, zero)], points }
}

fn times_and_values(metrics: &[Metric]) -> Vec<(u64, i64)> {
    let sums = metrics.iter().map(|metric| match &metric.data {
        Some(metric::Data::Sum(sum)) => &sum.data_points,
        other => panic!("{other:?}"),
    });
    sums.flatten()
        .map(|point| match point.value {
            Some(number_data_point::Value::AsInt(n)) => (point.time_unix_nano, n),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn the_zero_arrives_before_the_value_and_is_not_lost_with_its_request() {
    let mut collector = Collector::start([Answer::LoseReply, Answer::Take, Answer::Take]).await;
    let rig = rig(setup(collector.addr, None, 100));
    rig.otlp.offer(batch(1, 1));
    for want in [(10, 0), (10, 0), (20, 1)] {
        assert_eq!(times_and_values(&collector.metrics().await), [want]);
    }
    until("settled", || rig.otlp.zeros_settled() == 1).await;
    rig.otlp.offer(batch(2, 3));
    assert_eq!(times_and_values(&collector.metrics().await), [(30, 3)], "its zero was settled meanwhile");
    let (_, setup) = rig.finish(DEADLINE).await;
    assert_eq!(setup.point_state("acknowledged"), 3);
    setup.accounts();
}

#[tokio::test]
async fn a_newer_batch_takes_the_place_of_one_that_could_not_leave() {
    let addr = Collector::start([]).await.kill().await;
    let rig = rig(setup(addr, None, 100));
    let failed = || rig.setup.telemetry.counter("warpgauge.metric.exports", &[("outcome", "failure")]).get();
    rig.otlp.offer(batch(1, 1));
    until("a try", || failed() > 0).await;
    rig.otlp.offer(batch(2, 4));
    rig.otlp.offer(batch(3, 9));
    let superseded = || rig.setup.sum_of("warpgauge.metric.points.dropped");
    until("superseded", || superseded() == 4).await;
    let mut collector = Collector::start_at(addr, []).await;
    for want in [(10, 0), (40, 9)] {
        assert_eq!(times_and_values(&collector.metrics().await), [want], "exact, without the ones between");
    }
    rig.finish(DEADLINE).await.1.accounts();
    collector.nothing_more();
}

#[tokio::test]
async fn an_end_is_told_though_newer_batches_took_the_place_of_its_own() {
    let addr = Collector::start([]).await.kill().await;
    let rig = rig(setup(addr, None, 100));
    let failed = || rig.setup.telemetry.counter("warpgauge.metric.exports", &[("outcome", "failure")]).get();
    let of = |class: &str, at, value| {
        let attributes = Arc::new(vec![("gpu.xid.class", class.to_owned())]);
        Point { attributes, value, ..point(&catalog::XID_ERRORS, at, 0) }
    };
    let batch = |generation, points| Batch { generation, zeros: vec![], points };
    rig.otlp.offer(batch(1, vec![of("bus", 20, Value::Count(1)), of("memory", 20, Value::End)]));
    until("a try", || failed() > 0).await;
    rig.otlp.offer(batch(2, vec![of("bus", 30, Value::Count(2)), of("driver", 30, Value::End)]));
    rig.otlp.offer(batch(3, vec![of("bus", 40, Value::Count(3))]));
    let dropped = || rig.setup.sum_of("warpgauge.metric.points.dropped");
    until("superseded", || dropped() == 2).await;
    let mut collector = Collector::start_at(addr, []).await;
    let mut points = Vec::new();
    for metric in collector.metrics().await {
        let Some(metric::Data::Sum(sum)) = metric.data else { panic!("a sum") };
        points.extend(sum.data_points.into_iter().map(|point| (point.time_unix_nano, point.flags)));
    }
    assert_eq!(points, [(20, 1), (30, 1), (40, 0)]);
    rig.finish(DEADLINE).await.1.accounts();
    collector.nothing_more();
}

#[tokio::test]
async fn many_points_leave_in_several_requests_and_refused_ones_are_counted() {
    let script = [Answer::Take, Answer::Refuse(Status::invalid_argument("no")), Answer::TakeAllBut(3)];
    let mut collector = Collector::start(script).await;
    let rig = rig(setup(collector.addr, None, 100));
    let points = (0..4_500).map(|n| point(&catalog::XID_ERRORS, 20, n)).collect();
    rig.otlp.offer(Batch { generation: 1, zeros: Vec::new(), points });
    for want in [2_000, 500] {
        assert_eq!(times_and_values(&collector.metrics().await).len(), want);
    }
    let (_, setup) = rig.finish(DEADLINE).await;
    let dropped =
        |reason| setup.telemetry.counter("warpgauge.metric.points.dropped", &[("reason", reason)]).get();
    assert_eq!(
        (setup.point_state("acknowledged"), dropped("refused"), dropped("rejected")),
        (2_497, 2_000, 3)
    );
    setup.accounts();
}

#[tokio::test]
async fn the_last_points_know_what_became_of_the_last_records() {
    let mut collector = Collector::start([]).await;
    let rig = rig(setup(collector.addr, None, 100));
    rig.stall("a");
    let setup = rig.setup.clone();
    let last = || {
        let acknowledged = setup.log("acknowledged");
        Batch { generation: 1, zeros: vec![], points: vec![point(&catalog::XID_ERRORS, 20, acknowledged)] }
    };
    rig.otlp.finish(Instant::now() + DEADLINE, last, async |_| {}).await;
    assert_eq!(times_and_values(&collector.metrics().await), [(20, 1)]);
    setup.accounts();
}
