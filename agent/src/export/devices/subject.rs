//! All series of one device, or of one part of it.
//!
//! In: its batches of readings. Out: the points of its fields, and the words for its info series.
//! The hot path: a known field costs one look into a table, no hash and no allocation.
//! What can go wrong: more fields than the budget has series for; they are refused and counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::budget::Budget;
use super::cell::Number;
use super::series::{FieldSeries, Moment, name};
use super::standing::{Placed, Standing, ending, place};
use crate::export::catalog;
use crate::export::device_catalog::{FIELD_ABSENT, MEMORY_UTILIZATION, UNKNOWN_FIELD};
use crate::export::point::{Point, Value};
use crate::model::by_field::ByField;
use crate::model::field_table::{self, Form, Treatment};
use crate::model::{Absence, Field, MonoNs, Origin, Part, Reading, SampleValue, Samples, Subject, WallNs};
use crate::telemetry::Attributes;

const USED: Field = Field::Dcgm(252);
const SIZE: Field = Field::Dcgm(250);

/// The series of one subject.
#[derive(Debug)]
pub struct SubjectSeries {
    /// Attributes of all its points.
    shared: Arc<Attributes>,
    since: MonoNs,
    heard: MonoNs,
    fields: ByField<Option<FieldSeries>>,
    texts: BTreeMap<&'static str, Arc<str>>,
    /// Share of the memory in use: time of the latest point, and whether that had a value.
    share: (WallNs, bool),
}

impl SubjectSeries {
    /// Of a subject first heard of at `since`.
    pub fn new(subject: &Subject, kind: &str, since: MonoNs) -> Self {
        let mut shared = vec![("hw.id", subject.hw_id.to_string()), ("hw.type", kind.to_owned())];
        shared.extend(match subject.part {
            Part::Whole => None,
            Part::Link(link) => Some(("gpu.nvlink.link", link.to_string())),
            Part::Core(core) => Some(("cpu.logical_number", core.to_string())),
            Part::Port(port) => Some(("infiniband.port", port.to_string())),
        });
        let (fields, texts) = (ByField::default(), BTreeMap::new());
        Self { shared: Arc::new(shared), since, heard: since, fields, texts, share: (WallNs(0), false) }
    }

    /// Takes a batch.
    pub fn take(&mut self, samples: &Samples, at: MonoNs, budget: &mut Budget) {
        self.heard = self.heard.max(at);
        for reading in &samples.readings {
            if self.fields.get(reading.field).is_none() {
                let series = self.series(reading.field, samples.origin, budget);
                self.fields.insert(reading.field, series);
            }
            let since = self.since;
            let Some(Some(series)) = self.fields.get_mut(reading.field) else { continue };
            match &reading.value {
                SampleValue::Absent(reason) => series.lack(*reason, samples.origin),
                _ if series.is_info() => {
                    series.take_text(samples.origin);
                    self.words(reading);
                }
                SampleValue::Int(n) => series.take(Number::Whole(*n), reading.at, samples.origin, since),
                SampleValue::Number(n) => series.take(Number::Double(*n), reading.at, samples.origin, since),
                SampleValue::Text(_) => series.lack(Absence::Unexportable, samples.origin),
            }
        }
    }

    /// When there was a batch last.
    pub fn heard(&self) -> MonoNs {
        self.heard
    }

    /// Its source, or the device itself, went down.
    pub fn lose(&mut self, reason: Absence, of: Option<Origin>) {
        self.fields.iter_mut().flatten().for_each(|series| series.lose(reason, of));
    }

    /// Its source is up again.
    pub fn regain(&mut self, of: Origin) {
        self.fields.iter_mut().flatten().for_each(|series| series.regain(of));
    }

    /// What the info series is to have besides the device's identity.
    pub fn texts(&self) -> &BTreeMap<&'static str, Arc<str>> {
        &self.texts
    }

    /// What the fields of a part say in words, with the attributes of all its points; `None` where they say nothing.
    pub fn words_of_part(&self) -> Option<Arc<Attributes>> {
        let texts = Some(&self.texts).filter(|texts| !texts.is_empty())?;
        let mut words = (*self.shared).clone();
        words.extend(texts.iter().map(|(name, text)| (*name, text.to_string())));
        Some(Arc::new(words))
    }

    /// Attributes of all its points.
    pub fn shared(&self) -> &Arc<Attributes> {
        &self.shared
    }

    /// The points of now.
    pub fn collect(&mut self, moment: Moment, standing: &mut Standing, out: &mut Placed) {
        self.collect_share(moment, out);
        let shared = Arc::clone(&self.shared);
        for series in self.fields.iter_mut().flatten() {
            series.collect(moment, standing, &shared, out);
        }
    }

    /// Used by size; the time is that of what is used.
    fn collect_share(&mut self, Moment { now, at }: Moment, out: &mut Placed) {
        let (Some((used, sampled)), Some((size, _))) = (self.level(USED), self.level(SIZE)) else {
            return self.end_share(at, out);
        };
        let Some(sampled) = sampled.filter(|_| size > 0.0) else { return };
        let time = WallNs(now.wall(sampled).0.max(self.share.0.0.saturating_add(1)).min(at.0));
        self.share = (time, true);
        let (metric, attributes) = (&MEMORY_UTILIZATION, Arc::clone(&self.shared));
        let value = Value::Double(used / size);
        out.push((place(metric), Point { metric, attributes, start: None, at: time, value }));
    }

    fn end_share(&mut self, at: WallNs, out: &mut Placed) {
        if std::mem::take(&mut self.share.1) {
            self.share.0 = at;
            out.push(ending(&MEMORY_UTILIZATION, &self.shared, at));
        }
    }

    /// The device is gone: what is on the wire ends.
    pub fn end(&mut self, moment: Moment, out: &mut Placed) {
        self.end_share(moment.at, out);
        self.fields.iter_mut().flatten().for_each(|series| series.end(moment.at, out));
    }

    /// Begins anew on another wall clock.
    pub fn restart(&mut self, start: WallNs) {
        self.share.0 = start;
        self.fields.iter_mut().flatten().for_each(|series| series.restart(start));
    }

    /// Gives its series back.
    pub fn free(&mut self, budget: &mut Budget) {
        for series in self.fields.iter_mut().flatten() {
            budget.give_back(series.metric_name());
        }
    }

    fn level(&self, field: Field) -> Option<(f64, Option<MonoNs>)> {
        self.fields.get(field)?.as_ref()?.level()
    }

    /// `None` where the budget has no room: the field is not looked at again.
    fn series(&self, field: Field, origin: Origin, budget: &mut Budget) -> Option<FieldSeries> {
        let row = field_table::row(field);
        let metric = match row {
            Some(row) if matches!(row.treatment, Treatment::Info(_) | Treatment::Refused) => None,
            Some(row) => Some(catalog::find(row.target)?.1),
            None => Some(&UNKNOWN_FIELD),
        };
        if !budget.take(metric.unwrap_or(&FIELD_ABSENT).name) {
            return None;
        }
        let mut attributes = (*self.shared).clone();
        match row {
            Some(row) => {
                attributes.extend(row.attributes.iter().map(|(name, value)| (*name, (*value).to_owned())))
            }
            None => attributes.push(("gpu.field", name(field))),
        }
        Some(FieldSeries::new(field, metric, attributes, origin))
    }

    fn words(&mut self, reading: &Reading) {
        let Some(row) = field_table::row(reading.field) else { return };
        let Treatment::Info(form) = row.treatment else { return };
        let text: Arc<str> = match (&reading.value, form) {
            // The usual case: nothing has changed.
            (SampleValue::Text(text), _) if self.texts.get(row.target) == Some(text) => return,
            (SampleValue::Text(text), _) => Arc::clone(text),
            (SampleValue::Int(n), Form::Hex) => format!("{n:#x}").into(),
            (SampleValue::Int(n), Form::Pair) => format!("{}.{}", n >> 16, n & 0xffff).into(),
            (SampleValue::Int(n), Form::Text) => n.to_string().into(),
            (SampleValue::Number(n), _) => n.to_string().into(),
            (SampleValue::Absent(_), _) => return,
        };
        self.texts.insert(row.target, text);
    }
}
