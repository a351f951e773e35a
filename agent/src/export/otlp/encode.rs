//! OTLP's own form of records and points.
//!
//! In: neutral [`Record`]s and [`Point`]s. Out: messages of `opentelemetry-proto`.
//! Nothing can go wrong: every value has a form on the wire.

use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, DataPointFlags, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge,
    Metric, NumberDataPoint, Sum, metric, number_data_point,
};

use crate::export::catalog::{INTEGER_ATTRIBUTES, Kind};
use crate::export::point::{Latency, Point, Value};
use crate::export::record::{Attribute, Record};
use crate::model::{Severity, WallNs};

/// A record on the wire.
pub fn record(record: &Record) -> LogRecord {
    let (severity_number, severity_text) = severity(record.severity);
    LogRecord {
        time_unix_nano: record.time.0,
        observed_time_unix_nano: record.observed.0,
        severity_number,
        severity_text: severity_text.to_owned(),
        body: Some(text(&record.body)),
        attributes: record.attributes.iter().map(|(name, value)| pair(name, attribute(value))).collect(),
        event_name: record.event_name.to_owned(),
        ..LogRecord::default()
    }
}

/// Numbers and names of the log data model.
fn severity(severity: Severity) -> (i32, &'static str) {
    match severity {
        Severity::Info => (9, "INFO"),
        Severity::Warn => (13, "WARN"),
        Severity::Error => (17, "ERROR"),
        Severity::Fatal => (21, "FATAL"),
    }
}

/// Points on the wire; neighbours of one metric share its entry.
pub fn metrics<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for point in points {
        if metrics.last().is_none_or(|last| last.name != point.metric.name) {
            metrics.push(empty(point));
        }
        match metrics.last_mut().and_then(|last| last.data.as_mut()) {
            Some(metric::Data::Gauge(gauge)) => gauge.data_points.extend(number(point)),
            Some(metric::Data::Sum(sum)) => sum.data_points.extend(number(point)),
            Some(metric::Data::ExponentialHistogram(all)) => all.data_points.extend(histogram(point)),
            _ => {}
        }
    }
    metrics
}

fn empty(point: &Point) -> Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative as i32;
    let data = match point.metric.kind {
        Kind::Gauge => metric::Data::Gauge(Gauge::default()),
        Kind::Counter => {
            metric::Data::Sum(Sum { data_points: Vec::new(), aggregation_temporality, is_monotonic: true })
        }
        Kind::UpDownCounter => {
            metric::Data::Sum(Sum { data_points: Vec::new(), aggregation_temporality, is_monotonic: false })
        }
        Kind::ExponentialHistogram => metric::Data::ExponentialHistogram(ExponentialHistogram {
            data_points: Vec::new(),
            aggregation_temporality,
        }),
    };
    Metric {
        name: point.metric.name.to_owned(),
        description: point.metric.help.to_owned(),
        unit: point.metric.unit.to_owned(),
        metadata: Vec::new(),
        data: Some(data),
    }
}

fn number(point: &Point) -> Option<NumberDataPoint> {
    let value = match &point.value {
        Value::Count(n) => Some(number_data_point::Value::AsInt(i64::try_from(*n).unwrap_or(i64::MAX))),
        Value::Whole(n) => Some(number_data_point::Value::AsInt(*n)),
        Value::Nanos(ns) => Some(number_data_point::Value::AsDouble(seconds(*ns))),
        Value::Double(value) => Some(number_data_point::Value::AsDouble(*value)),
        Value::End => None,
        Value::Latency(_) => return None,
    };
    let no_value = DataPointFlags::NoRecordedValueMask as u32;
    Some(NumberDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: start(point),
        time_unix_nano: point.at.0,
        flags: if value.is_none() { no_value } else { 0 },
        value,
        ..NumberDataPoint::default()
    })
}

fn histogram(point: &Point) -> Option<ExponentialHistogramDataPoint> {
    let latency = match &point.value {
        Value::Latency(latency) => latency,
        Value::End => {
            return Some(ExponentialHistogramDataPoint {
                attributes: attributes(point),
                start_time_unix_nano: start(point),
                time_unix_nano: point.at.0,
                flags: DataPointFlags::NoRecordedValueMask as u32,
                ..ExponentialHistogramDataPoint::default()
            });
        }
        _ => return None,
    };
    Some(ExponentialHistogramDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: start(point),
        time_unix_nano: point.at.0,
        count: latency.count(),
        sum: Some(seconds(latency.sum_ns)),
        scale: 0,
        zero_count: 0,
        positive: Some(buckets(latency)),
        ..ExponentialHistogramDataPoint::default()
    })
}

/// Bucket `i` of scale 0 holds (2^i, 2^(i+1)] seconds; slot `i` is bucket `i − 30`. Empty ends are not sent.
fn buckets(latency: &Latency) -> Buckets {
    let slots = &latency.slots;
    let first = slots.iter().position(|&n| n > 0);
    let last = slots.iter().rposition(|&n| n > 0);
    let (Some(first), Some(last)) = (first, last) else { return Buckets::default() };
    let offset = i32::try_from(first).unwrap_or(0) - 30;
    Buckets { offset, bucket_counts: slots.get(first..=last).unwrap_or_default().to_vec() }
}

fn attributes(point: &Point) -> Vec<KeyValue> {
    let value = |name: &str, value: &str| {
        let whole = INTEGER_ATTRIBUTES.contains(&name).then(|| value.parse().ok()).flatten();
        whole.map_or_else(|| text(value), |n| any(any_value::Value::IntValue(n)))
    };
    point.attributes.iter().map(|(name, v)| pair(name, value(name, v))).collect()
}

fn start(point: &Point) -> u64 {
    point.start.unwrap_or(WallNs(0)).0
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn attribute(value: &Attribute) -> AnyValue {
    any(match value {
        Attribute::Text(value) => any_value::Value::StringValue(value.clone()),
        Attribute::Int(value) => any_value::Value::IntValue(*value),
        Attribute::Double(value) => any_value::Value::DoubleValue(*value),
        Attribute::Bool(value) => any_value::Value::BoolValue(*value),
        Attribute::List(values) => {
            any_value::Value::ArrayValue(ArrayValue { values: values.iter().map(|v| text(v)).collect() })
        }
    })
}

/// A name with a text.
pub fn text_pair(name: &str, value: &str) -> KeyValue {
    pair(name, text(value))
}

fn pair(name: &str, value: AnyValue) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(value), ..KeyValue::default() }
}

fn text(value: &str) -> AnyValue {
    any(any_value::Value::StringValue(value.to_owned()))
}

fn any(value: any_value::Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::export::catalog;
    use crate::export::record::Recorder;
    use crate::export::samples::{self, NOW};
    use crate::model::LatencyDelta;
    use crate::model::operation::Majors;

    fn point(metric: &'static catalog::Metric, value: Value) -> Point {
        let attributes =
            Arc::new(vec![("gpu.xid.class", "bus".to_owned()), ("gpu.xid.code", "79".to_owned())]);
        let start = (metric.kind != Kind::Gauge).then_some(WallNs(5));
        Point { metric, attributes, start, at: WallNs(9), value }
    }

    fn latency(filled: &[(usize, u32)], sum_ns: u64) -> Value {
        let mut delta = LatencyDelta { sum_ns, ..LatencyDelta::default() };
        for &(slot, n) in filled {
            delta.slots[slot] = n;
        }
        let mut latency = Latency::default();
        latency.add(&delta);
        Value::Latency(Box::new(latency))
    }

    #[test]
    fn slot_i_is_bucket_i_minus_30() {
        for (filled, offset, counts) in [
            (vec![(0, 1)], -30, vec![1]),
            (vec![(30, 2)], 0, vec![2]), // (1 s, 2 s]
            (vec![(39, 7)], 9, vec![7]), // from 512 s
            (vec![(28, 1), (31, 4)], -2, vec![1, 0, 0, 4]),
            (vec![], 0, vec![]),
        ] {
            let count: u64 = counts.iter().sum();
            let sent = metrics([point(&catalog::CALL_DURATION, latency(&filled, 2_500_000_001))].iter());
            let Some(metric::Data::ExponentialHistogram(all)) = &sent[0].data else { panic!("a histogram") };
            assert_eq!(all.aggregation_temporality, AggregationTemporality::Cumulative as i32);
            let sent = &all.data_points[0];
            assert_eq!(sent.positive, Some(Buckets { offset, bucket_counts: counts }), "{filled:?}");
            assert_eq!(
                (sent.scale, sent.zero_count, sent.count, sent.sum),
                (0, 0, count, Some(2.500_000_001))
            );
            assert_eq!((sent.min, sent.max, sent.negative.clone()), (None, None, None));
            assert_eq!((sent.start_time_unix_nano, sent.time_unix_nano), (5, 9));
        }
    }

    #[test]
    fn points_of_one_metric_share_its_entry() {
        let points = [
            point(&catalog::STALL_ACTIVE, Value::Count(1)),
            point(&catalog::STALL_TIME, Value::Nanos(1_500_000_000)),
            point(&catalog::STALL_TIME, Value::Nanos(1)),
            point(&catalog::XID_BY_CODE, Value::Count(3)),
        ];
        let sent = metrics(points.iter());
        let names: Vec<_> = sent.iter().map(|m| (m.name.as_str(), m.unit.as_str())).collect();
        let want =
            [("gpu.stall.active", "{stall}"), ("gpu.stall.time", "s"), ("gpu.xid.errors.by_code", "{error}")];
        assert_eq!(names, want);
        let Some(metric::Data::Gauge(active)) = &sent[0].data else { panic!("a gauge") };
        assert_eq!(active.data_points[0].start_time_unix_nano, 0, "a gauge has no start");
        let Some(metric::Data::Sum(time)) = &sent[1].data else { panic!("a sum") };
        let values: Vec<_> = time.data_points.iter().map(|p| p.value).collect();
        assert!(time.is_monotonic);
        let double = |v| Some(number_data_point::Value::AsDouble(v));
        assert_eq!(values, [double(1.5), double(1e-9)]);
        let Some(metric::Data::Sum(errors)) = &sent[2].data else { panic!("a sum") };
        let code = errors.data_points[0].attributes[1].value.clone().and_then(|any| any.value);
        assert_eq!(code, Some(any_value::Value::IntValue(79)), "a code is a number");
    }

    #[test]
    fn numbers_keep_their_kind_and_an_end_has_no_value() {
        use number_data_point::Value::{AsDouble, AsInt};
        let (_, usage) = catalog::find("hw.gpu.memory.usage").unwrap();
        let big = (1i64 << 60) + 1;
        let points = [Value::Whole(big), Value::Double(0.93), Value::End].map(|value| point(usage, value));
        let sent = metrics(points.iter());
        let Some(metric::Data::Sum(sum)) = &sent[0].data else { panic!("a sum") };
        assert!(!sum.is_monotonic, "a level");
        let got: Vec<_> = sum.data_points.iter().map(|p| (p.value, p.flags)).collect();
        assert_eq!(got, [(Some(AsInt(big)), 0), (Some(AsDouble(0.93)), 0), (None, 1)]);
        let sent = metrics([point(&catalog::CALL_DURATION, Value::End)].iter());
        let Some(metric::Data::ExponentialHistogram(all)) = &sent[0].data else { panic!("a histogram") };
        let got: Vec<_> =
            all.data_points.iter().map(|p| (p.count, p.sum, p.flags, p.time_unix_nano)).collect();
        assert_eq!(got, [(0, None, 1, 9)]);
    }

    #[test]
    fn a_record_keeps_its_times_severity_and_attributes() {
        let fact = samples::xid(Some(901));
        let neutral = Recorder::new("boot").finding(&fact.item, &fact, &Majors::new(None), NOW);
        let sent = record(&neutral);
        assert_eq!((sent.event_name.as_str(), sent.severity_number), ("gpu.xid", 21));
        assert_eq!(sent.severity_text, "FATAL");
        assert_eq!((sent.time_unix_nano, sent.observed_time_unix_nano), (neutral.time.0, neutral.observed.0));
        assert_eq!(sent.attributes.len(), neutral.attributes.len());
        assert!(sent.attributes.contains(&text_pair("log.record.uid", "boot:901")));
    }
}
