//! Points that say how things stand, sent at every collection for as long as they do.
//!
//! In: what stands now. Out: its points, and the end of each series that no longer stands, so that a receiver does not
//! go on with its last value. Nothing can go wrong.

use std::collections::HashMap;
use std::sync::Arc;

use crate::export::catalog::{self, Metric};
use crate::export::point::{Point, Value};
use crate::model::WallNs;
use crate::telemetry::Attributes;

/// Points with the place of their metric in the catalogue.
pub type Placed = Vec<(usize, Point)>;

/// What stood at the latest collection.
#[derive(Debug, Default)]
pub struct Standing {
    sent: HashMap<(&'static str, Arc<Attributes>), (&'static Metric, u64)>,
    round: u64,
}

impl Standing {
    /// Begins a collection.
    pub fn begin(&mut self) {
        self.round += 1;
    }

    /// `value` stands as of `at`; `start` for sums.
    pub fn put(
        &mut self,
        metric: &'static Metric,
        attributes: &Arc<Attributes>,
        value: Value,
        (start, at): (WallNs, WallNs),
        out: &mut Placed,
    ) {
        self.sent.insert((metric.name, Arc::clone(attributes)), (metric, self.round));
        let start = (metric.kind != catalog::Kind::Gauge).then_some(start);
        let point = Point { metric, attributes: Arc::clone(attributes), start, at, value };
        out.push((place(metric), point));
    }

    /// Ends what was not put since the begin of this collection.
    pub fn finish(&mut self, at: WallNs, out: &mut Placed) {
        let round = self.round;
        self.sent.retain(|(_, attributes), (metric, put)| {
            if *put != round {
                out.push(ending(metric, attributes, at));
            }
            *put == round
        });
    }
}

/// The end of a series.
pub fn ending(metric: &'static Metric, attributes: &Arc<Attributes>, at: WallNs) -> (usize, Point) {
    let attributes = Arc::clone(attributes);
    (place(metric), Point { metric, attributes, start: None, at, value: Value::End })
}

/// Where a metric stands in the catalogue.
pub fn place(metric: &Metric) -> usize {
    catalog::find(metric.name).map_or(usize::MAX, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::device_catalog::{HEALTH, STATUS};

    #[test]
    fn what_stands_is_sent_each_time_and_then_ended_once() {
        let mut standing = Standing::default();
        let (a, b) = (Arc::new(vec![("hw.id", "a".to_owned())]), Arc::new(vec![("hw.id", "b".to_owned())]));
        let times = (WallNs(1), WallNs(9));
        let mut rounds = Vec::new();
        for kept in [vec![&a, &b], vec![&b], vec![&b]] {
            let mut out = Vec::new();
            standing.begin();
            for attributes in kept {
                standing.put(&HEALTH, attributes, Value::Count(1), times, &mut out);
            }
            standing.finish(WallNs(9), &mut out);
            rounds
                .push(out.into_iter().map(|(_, p)| (p.attributes[0].1.clone(), p.value)).collect::<Vec<_>>());
        }
        let one = |id: &str| (id.to_owned(), Value::Count(1));
        assert_eq!(
            rounds,
            [vec![one("a"), one("b")], vec![one("b"), ("a".into(), Value::End)], vec![one("b")]]
        );
        let mut out = Vec::new();
        standing.put(&STATUS, &a, Value::Count(1), times, &mut out);
        assert_eq!(out[0].1.start, Some(WallNs(1)), "a sum has a start");
    }
}
