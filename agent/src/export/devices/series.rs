//! One field of one device or part: its cell, its times, and why it has no value where it has none.
//!
//! In: readings, each checked and in order. Out: points at a collection: the value when a new sample came, the reason
//! while there is none. A value that is not there any more is ended, never repeated.
//! What can go wrong: a sample comes late; its point then lies just behind the one before it.

use std::sync::Arc;

use super::budget::Budget;
use super::cell::{Cell, Number};
use super::parts::Parts;
use super::standing::{Placed, Standing, ending, place};
use crate::export::catalog::{Kind, Metric};
use crate::export::device_catalog::{FIELD_ABSENT, key_attribute};
use crate::export::point::Point;
use crate::model::field_table::{FieldRow, Treatment};
use crate::model::{Absence, Field, MonoNs, Origin, WallAnchor, WallNs};
use crate::telemetry::Attributes;

/// The series of one field.
#[derive(Debug)]
pub struct FieldSeries {
    field: Field,
    row: Option<&'static FieldRow>,
    /// `None`: only the absence is exported.
    metric: Option<(&'static Metric, usize)>,
    attributes: Arc<Attributes>,
    cell: Option<Cell>,
    origin: Origin,
    absent: Option<(Absence, Option<Arc<Attributes>>)>,
    sampled: Option<MonoNs>,
    start: Start,
    last: WallNs,
    /// The latest point had a value.
    live: bool,
    /// Series that the budget knows of.
    booked: usize,
}

/// Since when the value counts. Fixed as a wall time by the first collection.
#[derive(Clone, Copy, Debug)]
enum Start {
    Sample(MonoNs),
    Fixed(WallNs),
}

/// When a collection is.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Turns the samples' times into wall times.
    pub now: WallAnchor,
    /// Its own time on the points' clock.
    pub at: WallNs,
}

impl FieldSeries {
    /// The series of a field that has not been heard of before, booked as one. No point of it will lie before `floor`:
    /// another series of the same name may have ended then.
    pub fn new(
        field: Field,
        metric: Option<&'static Metric>,
        attributes: Attributes,
        origin: Origin,
        floor: WallNs,
    ) -> Self {
        let (row, attributes) = (crate::model::field_table::row(field), Arc::new(attributes));
        let metric = metric.map(|metric| (metric, place(metric)));
        let (cell, absent, sampled, live) = (None, None, None, false);
        let (start, last, booked) = (Start::Fixed(WallNs(0)), floor, 1);
        Self { field, row, metric, attributes, cell, origin, absent, sampled, start, last, live, booked }
    }

    /// Tells the budget how many series there are by now.
    pub fn book(&mut self, budget: &mut Budget) {
        if let Some(Cell::Parts(parts)) = &mut self.cell {
            let metric = self.metric.map_or(FIELD_ABSENT.name, |(metric, _)| metric.name);
            budget.grow(metric, parts.count().saturating_sub(self.booked));
            self.booked = self.booked.max(parts.count());
            parts.set_room(budget.has_room(metric));
        }
    }

    /// Gives its series back.
    pub fn free(&self, budget: &mut Budget) {
        budget.shrink(self.metric_name(), self.booked);
    }

    /// Whether the field is one of the info series.
    pub fn is_info(&self) -> bool {
        self.row.is_some_and(|row| matches!(row.treatment, Treatment::Info(_)))
    }

    fn is_event(&self) -> bool {
        self.row.is_some_and(|row| row.treatment == Treatment::Event)
    }

    /// The metric that the series counts for in the budget.
    pub fn metric_name(&self) -> &'static str {
        self.metric.map_or(FIELD_ABSENT.name, |(metric, _)| metric.name)
    }

    /// The next value; events from before `since` are history.
    pub fn take(&mut self, value: Number, at: MonoNs, origin: Origin, since: MonoNs) {
        (self.origin, self.absent) = (origin, None);
        if self.metric.is_none() {
            return;
        }
        self.sampled = self.sampled.max(Some(at)); // an event may be told late
        if let Some(cell) = &mut self.cell {
            if let Some(anew) = cell.take(value, at) {
                self.start = Start::Sample(anew);
            }
            return;
        }
        let parts = || match self.row.and_then(|row| Some((row.treatment, key_attribute(row)?))) {
            Some((Treatment::Mask, name)) => Parts::of_mask(name, (*self.attributes).clone()),
            Some((_, name)) => Parts::of_events(name, (*self.attributes).clone(), since),
            None => Parts::of_events("gpu.field", (*self.attributes).clone(), since),
        };
        self.cell = Some(Cell::new(self.row, parts, value, at));
        // The first event is one more than there were when somebody began to look.
        self.start = Start::Sample(if self.is_event() { since } else { at });
    }

    /// There is a value, in words.
    pub fn take_text(&mut self, origin: Origin) {
        (self.origin, self.absent) = (origin, None);
    }

    /// There is no value. Another source's lack of one says nothing while this source has one.
    pub fn lack(&mut self, reason: Absence, origin: Origin) {
        if self.absent.is_none() && origin != self.origin {
            return;
        }
        if self.is_event() && reason == Absence::Blank {
            self.absent = None; // nothing has happened, and that is all there is to know
            return;
        }
        self.origin = origin;
        if self.absent.as_ref().is_none_or(|(known, _)| *known != reason) {
            self.absent = Some((reason, None));
        }
        if let Some(cell) = &mut self.cell {
            cell.pause();
        }
    }

    /// Its source went down.
    pub fn lose(&mut self, reason: Absence, of: Option<Origin>) {
        if self.absent.is_none() && of.is_none_or(|origin| origin == self.origin) {
            self.lack(reason, self.origin);
        }
    }

    /// Its source is up again: of events, silence is all there is to hear.
    pub fn regain(&mut self, of: Origin) {
        let lost = matches!(self.absent, Some((Absence::SourceDown, _)));
        if lost && of == self.origin && self.is_event() {
            self.absent = None;
        }
    }

    /// The latest number, while it is one.
    pub fn level(&self) -> Option<(f64, Option<MonoNs>)> {
        match (&self.cell, &self.absent) {
            (Some(Cell::Level(Number::Whole(n))), None) => Some((*n as f64, self.sampled)),
            (Some(Cell::Level(Number::Double(n))), None) => Some((*n, self.sampled)),
            _ => None,
        }
    }

    /// The points of now.
    pub fn collect(
        &mut self,
        moment: Moment,
        standing: &mut Standing,
        shared: &Attributes,
        out: &mut Placed,
    ) {
        let Some((reason, attributes)) = &mut self.absent else { return self.values(moment, out) };
        let field = self.field;
        let attributes = attributes.get_or_insert_with(|| {
            let mut attributes = shared.clone();
            attributes.push(("gpu.field", name(field)));
            attributes.push(("gpu.absence.reason", reason.name().to_owned()));
            Arc::new(attributes)
        });
        let value = crate::export::point::Value::Count(1);
        standing.put(&FIELD_ABSENT, attributes, value, (moment.at, moment.at), out);
        self.sampled = None;
        self.end(moment.at, out);
    }

    /// Ends what has a value on the wire.
    pub fn end(&mut self, at: WallNs, out: &mut Placed) {
        let Some((metric, _)) = self.metric.filter(|_| std::mem::take(&mut self.live)) else { return };
        match &self.cell {
            Some(Cell::Parts(parts)) => {
                out.extend(parts.values().map(|(attributes, _)| ending(metric, attributes, at)));
            }
            _ => out.push(ending(metric, &self.attributes, at)),
        }
        self.last = self.last.max(at);
    }

    /// Begins anew at `start`, on another wall clock.
    pub fn restart(&mut self, start: WallNs) {
        (self.start, self.last, self.sampled) = (Start::Fixed(start), start, None);
        if let Some(cell) = &mut self.cell {
            cell.restart();
        }
    }

    fn values(&mut self, Moment { now, at }: Moment, out: &mut Placed) {
        let event = self.is_event();
        let (Some((metric, place)), Some(cell)) = (self.metric, &self.cell) else { return };
        let own = match self.sampled.take() {
            Some(sampled) => now.wall(sampled),
            // That no event came is known until now.
            None if event => at,
            None => return,
        };
        let start = match self.start {
            Start::Fixed(start) => start,
            // A clock that was corrected since may have moved it before points that have left.
            Start::Sample(sample) => WallNs(now.wall(sample).0.max(self.last.0).min(at.0)),
        };
        self.start = Start::Fixed(start);
        let time = own.0.max(self.last.0.saturating_add(1)).min(at.0);
        (self.last, self.live) = (WallNs(time), true);
        let point = |attributes: &Arc<Attributes>, value| {
            let start = (metric.kind != Kind::Gauge).then_some(start);
            (place, Point { metric, attributes: Arc::clone(attributes), start, at: WallNs(time), value })
        };
        if let Cell::Parts(parts) = cell {
            out.extend(parts.values().map(|(attributes, value)| point(attributes, value)));
        } else {
            out.extend(cell.value(self.row).map(|value| point(&self.attributes, value)));
        }
    }
}

/// A field's name for people: DCGM's, or its number where this agent does not know it.
pub fn name(field: Field) -> String {
    match (crate::model::field_table::row(field), field) {
        (Some(row), _) => row.name.to_owned(),
        (None, Field::Dcgm(id)) => id.to_string(),
        (None, Field::Host(host)) => host.name().to_owned(),
    }
}
