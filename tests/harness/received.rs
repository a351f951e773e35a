//! What the Collector's file exporter wrote (OTLP in JSON, one request per line) → records and points.
//!
//! In: text. Out: [`Record`]s and [`Point`]s with their attributes as text. A line that is not whole yet is left out.

use std::collections::BTreeMap;

use serde_json::Value;

/// Attributes; all values as text, arrays joined by `; `.
pub type Attributes = BTreeMap<String, String>;

/// A log record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// `event_name`.
    pub event: String,
    /// Its own time, ns since 1970.
    pub time: u64,
    /// When it was observed, ns since 1970.
    pub observed: u64,
    /// Severity number of the data model.
    pub severity: u64,
    /// Severity text.
    pub severity_text: String,
    /// The body, where it is a text.
    pub body: String,
    /// Its attributes.
    pub attributes: Attributes,
    /// Those of its Resource.
    pub resource: Attributes,
    /// Scope name.
    pub scope: String,
}

/// A point of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The metric.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Start time, ns since 1970; 0 for a gauge.
    pub start: u64,
    /// Its own time, ns since 1970.
    pub time: u64,
    /// The value; for a histogram its count; not a number at the end of a series.
    pub value: f64,
    /// Sum of a histogram.
    pub sum: f64,
    /// Scale and filled buckets of an exponential histogram: index → count.
    pub buckets: Option<(i64, BTreeMap<i64, u64>)>,
    /// Its attributes.
    pub attributes: Attributes,
    /// Those of its Resource.
    pub resource: Attributes,
}

impl Record {
    /// The attribute's text; empty where there is none.
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

impl Point {
    /// Whether it has all of these attributes.
    pub fn has(&self, attributes: &[(&str, &str)]) -> bool {
        attributes.iter().all(|(k, v)| self.attributes.get(*k).is_some_and(|value| value == v))
    }
}

/// Log records of whole lines.
pub fn records(text: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let lines: Vec<Value> = lines(text).collect();
    for resource_logs in lines.iter().flat_map(|line| list(line, "resourceLogs")) {
        let resource = attributes(&resource_logs["resource"]);
        for scope_logs in list(resource_logs, "scopeLogs") {
            let scope = text_of(&scope_logs["scope"]["name"]);
            for log in list(scope_logs, "logRecords") {
                records.push(Record {
                    event: text_of(&log["eventName"]),
                    time: number(&log["timeUnixNano"]),
                    observed: number(&log["observedTimeUnixNano"]),
                    severity: number(&log["severityNumber"]),
                    severity_text: text_of(&log["severityText"]),
                    body: text_of(&log["body"]["stringValue"]),
                    attributes: attributes(log),
                    resource: resource.clone(),
                    scope: scope.clone(),
                });
            }
        }
    }
    records
}

/// Metric points of whole lines.
pub fn metrics(text: &str) -> Vec<Point> {
    let mut points = Vec::new();
    let lines: Vec<Value> = lines(text).collect();
    for resource_metrics in lines.iter().flat_map(|line| list(line, "resourceMetrics")) {
        let resource = attributes(&resource_metrics["resource"]);
        let scopes = list(resource_metrics, "scopeMetrics");
        for metric in scopes.iter().flat_map(|scope| list(scope, "metrics")) {
            for kind in ["sum", "gauge", "exponentialHistogram"] {
                points.extend(list(&metric[kind], "dataPoints").iter().map(|p| point(metric, p, &resource)));
            }
        }
    }
    points
}

fn point(metric: &Value, point: &Value, resource: &Attributes) -> Point {
    // OTLP's flag "no recorded value": the series ends. A histogram would have the count 0 otherwise.
    let ends = number(&point["flags"]) & 1 == 1;
    let value = ["asDouble", "asInt", "count"].iter().find_map(|key| float(&point[*key]));
    let value = value.filter(|_| !ends).unwrap_or(f64::NAN);
    let buckets = point.get("positive").map(|positive| {
        let offset = float(&positive["offset"]).unwrap_or(0.0) as i64;
        let counts = list(positive, "bucketCounts");
        let filled =
            counts.iter().zip(offset..).map(|(n, index)| (index, number(n))).filter(|(_, n)| *n != 0);
        (float(&point["scale"]).unwrap_or(0.0) as i64, filled.collect())
    });
    Point {
        name: text_of(&metric["name"]),
        unit: text_of(&metric["unit"]),
        start: number(&point["startTimeUnixNano"]),
        time: number(&point["timeUnixNano"]),
        value,
        sum: float(&point["sum"]).unwrap_or(0.0),
        buckets,
        attributes: attributes(point),
        resource: resource.clone(),
    }
}

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// 64-bit numbers are texts in OTLP's JSON.
fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

fn float(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn attributes(of: &Value) -> Attributes {
    let pair = |a: &Value| (text_of(&a["key"]), any(&a["value"]));
    list(of, "attributes").iter().map(pair).collect()
}

fn any(value: &Value) -> String {
    let Some((kind, value)) = value.as_object().and_then(|o| o.iter().next()) else { return String::new() };
    match kind.as_str() {
        "arrayValue" => list(value, "values").iter().map(any).collect::<Vec<_>>().join("; "),
        _ => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    }
}
