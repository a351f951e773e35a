//! What breaks in a scenario, and when.
//!
//! In: YAML by way of serde. Out: plain data and tests of it against a time. Nothing can go wrong here.

use serde::Deserialize;

/// A fault; each holds from `from` (0 when left out) to `until` (for ever when left out). Unit: s.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// The engine's process is gone: -21 at once, all groups are lost when it is back.
    EngineDown(Span),
    /// The engine's process stands still: calls block until `request_timeout`, no samples are taken.
    EngineHung(Span),
    /// Connecting blocks twice `request_timeout`, then returns 0 with a handle that is dead.
    DeadConnect(Span),
    /// The driver is detached from all GPUs.
    Detached(Span),
    /// Telemetry is paused for a diagnosis: profiling fields are blank.
    Paused(Span),
    /// A GPU is off the bus.
    Lost(OfGpu),
    /// Fields have no value, with status 0 and a fresh time.
    Blank(OfFields),
    /// No more samples: status 0, old time.
    Stale(OfFields),
    /// A named call blocks for `seconds` (for ever when left out) in each call that begins within the span.
    Hang(InCall),
    /// A named call takes `ms` longer.
    Slow(InCall),
    /// A named call keeps `mib` more memory each time.
    Leak(InCall),
    /// A named call ends the process by SIGSEGV.
    Crash(InCall),
    /// A named call returns `code`.
    Fail(InCall),
    /// Fields of `a` and of `b` in one watched field group make all of its values blank.
    Spoil {
        /// One side.
        a: Vec<u16>,
        /// The other.
        b: Vec<u16>,
    },
}

/// A span of time. Unit: s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Span {
    /// First moment.
    pub from: f64,
    /// First moment after it.
    pub until: Option<f64>,
}

impl Span {
    /// Whether `t` lies within.
    pub fn holds(&self, t: f64) -> bool {
        self.from <= t && self.until.is_none_or(|until| t < until)
    }
}

/// One GPU, for a time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfGpu {
    /// Its number.
    pub gpu: u32,
    /// First moment. Unit: s.
    #[serde(default)]
    pub from: f64,
    /// First moment after it. Unit: s.
    #[serde(default)]
    pub until: Option<f64>,
}

/// Some fields, for a time; no list: all of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OfFields {
    /// On this GPU only (its instances with it).
    pub gpu: Option<u32>,
    /// These fields only.
    pub fields: Option<Vec<u16>>,
    /// First moment. Unit: s.
    pub from: f64,
    /// First moment after it. Unit: s.
    pub until: Option<f64>,
}

impl OfFields {
    /// Whether it touches this field of this GPU at `t`.
    pub fn holds(&self, gpu: Option<u32>, field: u16, t: f64) -> bool {
        let span = Span { from: self.from, until: self.until };
        span.holds(t)
            && (self.gpu.is_none() || self.gpu == gpu)
            && self.fields.as_ref().is_none_or(|f| f.contains(&field))
    }
}

/// Something about a call of a library, by the name of the C function; `*`: each call.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InCall {
    /// C function.
    pub call: String,
    /// Only when the call is about this GPU.
    pub gpu: Option<u32>,
    /// For how long it blocks. Unit: s.
    pub seconds: Option<f64>,
    /// How much longer it takes. Unit: ms.
    pub ms: u64,
    /// How much it keeps. Unit: MiB.
    pub mib: u32,
    /// What it returns.
    pub code: i32,
    /// First moment. Unit: s.
    pub from: f64,
    /// First moment after it. Unit: s.
    pub until: Option<f64>,
}

impl InCall {
    /// Whether it touches this call at `t`.
    pub fn holds(&self, call: &str, gpu: Option<u32>, t: f64) -> bool {
        let span = Span { from: self.from, until: self.until };
        span.holds(t) && (self.call == "*" || self.call == call) && (self.gpu.is_none() || self.gpu == gpu)
    }
}
