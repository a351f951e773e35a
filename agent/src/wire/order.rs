//! What the agent says.
//!
//! In: nothing. Out: [`Order`](super::Order) (agent → worker) and its parts, derived by prost.
//! What can go wrong: a variant of a newer build is `None`; the reader ignores it.

/// Agent → worker.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Order {
    /// What.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<Kind>,
}

/// Kinds of orders.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// The first order: what to do.
    #[prost(message, tag = "1")]
    Configure(Configure),
    /// Pause profiling.
    #[prost(message, tag = "2")]
    Pause(Request),
    /// Resume profiling.
    #[prost(message, tag = "3")]
    Resume(Request),
    /// Say which fields there are, and what they give.
    #[prost(message, tag = "4")]
    Fields(Request),
    /// Stop the engine, let go of the driver and end.
    #[prost(message, tag = "5")]
    End(End),
}

/// What to do.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Configure {
    /// Use DCGM.
    #[prost(bool, tag = "1")]
    pub dcgm: bool,
    /// `auto`, `embedded`, or an address: `host[:port]`, `tcp://…`, `unix://…`, `vsock://…`.
    #[prost(string, tag = "2")]
    pub engine: String,
    /// libdcgm to open; empty: found by name.
    #[prost(string, tag = "3")]
    pub dcgm_library: String,
    /// Use NVML.
    #[prost(bool, tag = "4")]
    pub nvml: bool,
    /// libnvidia-ml to open; empty: found by name.
    #[prost(string, tag = "5")]
    pub nvml_library: String,
    /// How often NVML is asked for processes and basic fields.
    #[prost(uint64, tag = "6")]
    pub nvml_interval_ms: u64,
    /// Watch groups of DCGM.
    #[prost(message, repeated, tag = "7")]
    pub groups: Vec<Group>,
    /// Health checks: how often; 0 for never.
    #[prost(uint64, tag = "8")]
    pub health_interval_ms: u64,
    /// Watch nothing and read nothing: only devices, who runs on them and capabilities are told, for `doctor`.
    #[prost(bool, tag = "9")]
    pub only_look: bool,
    /// Where sysfs is, for what the libraries do not tell (NUMA nodes).
    #[prost(string, tag = "10")]
    pub sysfs: String,
    /// An earlier worker paused profiling and did not resume it: begin with profiling paused.
    #[prost(bool, tag = "11")]
    pub paused: bool,
    /// Engines that `auto` does not try, by address as `State.how` has it, or `*` for all: connecting to them has hung.
    #[prost(string, repeated, tag = "12")]
    pub skip: Vec<String>,
}

/// A watch group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Group {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How often the engine samples it.
    #[prost(uint64, tag = "2")]
    pub interval_ms: u64,
    /// Fields by number, old or new name.
    #[prost(string, repeated, tag = "3")]
    pub fields: Vec<String>,
}

/// A request that gets an answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Nobody waits for the answer from then on, and it must not be done any more. Unit: nanoseconds of
    /// CLOCK_MONOTONIC; 0: no limit.
    #[prost(uint64, tag = "2")]
    pub until_ns: u64,
}

/// Let go and end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct End {}
