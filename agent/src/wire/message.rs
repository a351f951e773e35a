//! What the worker says.
//!
//! In: nothing. Out: [`Report`] (worker → agent), derived by prost.
//! Times are nanoseconds of CLOCK_MONOTONIC, which both processes share; the worker has converted DCGM's wall times.
//! What can go wrong: a variant of a newer build is `None`; the reader ignores it.

/// Worker → agent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Report {
    /// What.
    #[prost(oneof = "report::Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10")]
    pub kind: Option<report::Kind>,
}

/// Parts of a [`Report`].
pub mod report {
    /// Kinds of reports.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Kind {
        /// The first report of a worker.
        #[prost(message, tag = "1")]
        Hello(Hello),
        /// Twice a second, whatever the libraries do.
        #[prost(message, tag = "2")]
        Heartbeat(Heartbeat),
        /// All devices of one origin, whenever one of them changed.
        #[prost(message, tag = "3")]
        Inventory(Inventory),
        /// Values of one device.
        #[prost(message, tag = "4")]
        Samples(Samples),
        /// Processes of one device.
        #[prost(message, tag = "5")]
        Processes(Processes),
        /// Health of one device.
        #[prost(message, tag = "6")]
        Health(Health),
        /// An origin came up or went down.
        #[prost(message, tag = "7")]
        State(State),
        /// The answer to a request.
        #[prost(message, tag = "8")]
        Answer(Answer),
        /// DCGM's bind event (field 6): the driver is about to be taken from a GPU (1), or is back (2).
        #[prost(message, tag = "9")]
        Bind(Bind),
        /// Something that takes nothing away as a whole, but that the operator may want to know.
        #[prost(message, tag = "10")]
        Note(Note),
    }

    /// Who the worker is.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Hello {
        /// [`super::super::PROTOCOL`].
        #[prost(uint32, tag = "1")]
        pub protocol: u32,
        /// Version of the agent it was built as.
        #[prost(string, tag = "2")]
        pub version: String,
        /// A worker that was given up still lives and may hold the driver: its pid. This one touches nothing.
        #[prost(uint32, optional, tag = "3")]
        pub abandoned: Option<u32>,
        /// Whether it gave up the capabilities it has no use for: 0 not known, 1 yes, 2 no.
        #[prost(uint32, tag = "4")]
        pub rights_given_up: u32,
        /// Why not, or why it is not known.
        #[prost(string, tag = "5")]
        pub rights_why: String,
    }

    /// What the calls do.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Heartbeat {
        /// Calls that have not come back.
        #[prost(message, repeated, tag = "1")]
        pub in_flight: Vec<InFlight>,
        /// Calls that came back since the previous heartbeat, by function.
        #[prost(message, repeated, tag = "2")]
        pub finished: Vec<Finished>,
        /// Reports of values that found no room since the worker began.
        #[prost(uint64, tag = "3")]
        pub dropped_values: u64,
        /// Other reports that found no room since the worker began.
        #[prost(uint64, tag = "4")]
        pub dropped_others: u64,
    }

    /// A call that has not come back.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct InFlight {
        /// The function, as the vendor names it.
        #[prost(string, tag = "1")]
        pub call: String,
        /// Origin: 1 DCGM, 2 NVML.
        #[prost(uint32, tag = "2")]
        pub origin: u32,
        /// The device it is about; empty where it is about all.
        #[prost(string, tag = "3")]
        pub hw_id: String,
        /// When it began.
        #[prost(uint64, tag = "4")]
        pub began_ns: u64,
    }

    /// Calls that came back.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Finished {
        /// The function.
        #[prost(string, tag = "1")]
        pub call: String,
        /// Origin: 1 DCGM, 2 NVML.
        #[prost(uint32, tag = "2")]
        pub origin: u32,
        /// Slot numbers of the latencies (as of the driver calls' histogram), one entry for each call.
        #[prost(uint32, repeated, tag = "3")]
        pub slots: Vec<u32>,
        /// Their sum in nanoseconds.
        #[prost(uint64, tag = "4")]
        pub sum_ns: u64,
        /// How many of them failed.
        #[prost(uint64, tag = "5")]
        pub errors: u64,
        /// The device they were about; empty where they were about all.
        #[prost(string, tag = "6")]
        pub hw_id: String,
    }

    /// All devices of one origin.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Inventory {
        /// Origin: 1 DCGM, 2 NVML.
        #[prost(uint32, tag = "1")]
        pub origin: u32,
        /// Every device. One that was in the previous inventory and is not in this one is gone.
        #[prost(message, repeated, tag = "2")]
        pub devices: Vec<Device>,
        /// Driver release, where known.
        #[prost(string, tag = "3")]
        pub driver_version: String,
        /// Version of the library, and of the engine where it is another process: `4.6.0`, `4.5.3/4.6.0`.
        #[prost(string, tag = "4")]
        pub library_version: String,
    }

    /// One device.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Device {
        /// `hw.id`.
        #[prost(string, tag = "1")]
        pub hw_id: String,
        /// Number by which samples name it; of this origin, until the worker ends.
        #[prost(uint32, tag = "2")]
        pub key: u32,
        /// 1 GPU, 2 MIG instance, 3 switch, 4 CPU.
        #[prost(uint32, tag = "3")]
        pub kind: u32,
        /// 0 ok, 1 lost, 2 resetting.
        #[prost(uint32, tag = "4")]
        pub state: u32,
        /// NVML's index.
        #[prost(uint32, optional, tag = "5")]
        pub index: Option<u32>,
        /// Minor of /dev/nvidiaN.
        #[prost(uint32, optional, tag = "6")]
        pub minor: Option<u32>,
        /// PCI address, as `dddd:bb:dd.f`.
        #[prost(string, optional, tag = "7")]
        pub pci: Option<String>,
        /// Product.
        #[prost(string, optional, tag = "8")]
        pub model: Option<String>,
        /// `hw.id` of the GPU it is part of.
        #[prost(string, optional, tag = "9")]
        pub parent: Option<String>,
        /// Serial number.
        #[prost(string, optional, tag = "10")]
        pub serial: Option<String>,
        /// Architecture.
        #[prost(string, optional, tag = "11")]
        pub architecture: Option<String>,
        /// MIG profile.
        #[prost(string, optional, tag = "12")]
        pub mig_profile: Option<String>,
        /// NUMA node.
        #[prost(uint32, optional, tag = "13")]
        pub numa_node: Option<u32>,
        /// CPUs next to it.
        #[prost(string, optional, tag = "14")]
        pub cpu_affinity: Option<String>,
        /// `hw.id=links` of the GPUs reached over NVLink.
        #[prost(string, repeated, tag = "15")]
        pub nvlink_peers: Vec<String>,
        /// Of a MIG device: NVML's index on its GPU.
        #[prost(uint32, optional, tag = "16")]
        pub mig_index: Option<u32>,
        /// Its GPU instance.
        #[prost(uint32, optional, tag = "17")]
        pub gpu_instance: Option<u32>,
        /// Its compute instance.
        #[prost(uint32, optional, tag = "18")]
        pub compute_instance: Option<u32>,
        /// First memory slice of its GPU instance.
        #[prost(uint32, optional, tag = "19")]
        pub mig_start: Option<u32>,
    }

    /// Values of one device, or of one part of it.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Samples {
        /// Origin: 1 DCGM, 2 NVML.
        #[prost(uint32, tag = "1")]
        pub origin: u32,
        /// The device's key in the latest inventory of this origin.
        #[prost(uint32, tag = "2")]
        pub key: u32,
        /// 0 the whole device, 1 link, 2 core.
        #[prost(uint32, tag = "3")]
        pub part: u32,
        /// Number of the link or core.
        #[prost(uint32, tag = "4")]
        pub part_number: u32,
        /// When they were read.
        #[prost(uint64, tag = "5")]
        pub read_ns: u64,
        /// The values.
        #[prost(message, repeated, tag = "6")]
        pub values: Vec<Value>,
    }

    /// One value.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Value {
        /// DCGM's field id.
        #[prost(uint32, tag = "1")]
        pub field: u32,
        /// How long before `read_ns` the engine took it; negative where its clock is ahead.
        /// Fixed length, like the number below: a few bytes more on a local socket, and no loop per byte on either side.
        #[prost(sfixed64, tag = "2")]
        pub age_ns: i64,
        /// The value.
        #[prost(oneof = "Content", tags = "3, 4, 5, 6")]
        pub content: Option<Content>,
        /// Of an event: the engine's own time, by which it is known again after a restart. Unit: µs since 1970; 0: none.
        #[prost(sint64, tag = "7")]
        pub stamp_us: i64,
    }

    /// What a value is.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Content {
        /// A whole number.
        #[prost(sfixed64, tag = "3")]
        Int(i64),
        /// A number.
        #[prost(double, tag = "4")]
        Number(f64),
        /// A text.
        #[prost(string, tag = "5")]
        Text(String),
        /// Nothing: the place of the reason in `model::Absence::ALL`.
        #[prost(uint32, tag = "6")]
        Absent(u32),
    }

    /// The processes on one device; all of them, each time.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Processes {
        /// The device's key in the latest inventory of NVML.
        #[prost(uint32, tag = "1")]
        pub key: u32,
        /// When they were read.
        #[prost(uint64, tag = "2")]
        pub read_ns: u64,
        /// The processes.
        #[prost(message, repeated, tag = "3")]
        pub processes: Vec<Process>,
    }

    /// One process.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Process {
        /// Its pid.
        #[prost(uint32, tag = "1")]
        pub pid: u32,
        /// Device memory in bytes.
        #[prost(uint64, optional, tag = "2")]
        pub memory: Option<u64>,
        /// SM use, 0 to 1.
        #[prost(double, optional, tag = "3")]
        pub sm_utilization: Option<f64>,
        /// 0 compute, 1 graphics, 2 MPS.
        #[prost(uint32, tag = "4")]
        pub context: u32,
    }

    /// Health of one device.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Health {
        /// The device's key in DCGM's latest inventory.
        #[prost(uint32, tag = "1")]
        pub key: u32,
        /// When it was checked.
        #[prost(uint64, tag = "2")]
        pub read_ns: u64,
        /// One level (0 pass, 1 warn, 2 fail) for each subsystem, in the order of `model::signal::Subsystem::ALL`.
        #[prost(uint32, repeated, tag = "3")]
        pub levels: Vec<u32>,
    }

    /// An origin came up or went down.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct State {
        /// `dcgm`, `nvml` or `profiling`.
        #[prost(string, tag = "1")]
        pub name: String,
        /// It gives data.
        #[prost(bool, tag = "2")]
        pub up: bool,
        /// A short word, such as `no_library`, `no_driver`, `engine_down`, `engine_too_old`, `stuck`, `paused`.
        #[prost(string, tag = "3")]
        pub reason: String,
        /// What is missing, with the system's own words.
        #[prost(string, tag = "4")]
        pub what: String,
        /// What the operator can do.
        #[prost(string, tag = "5")]
        pub remedy: String,
        /// What it is when up: `embedded`, `tcp://localhost:5555`, a library's path.
        #[prost(string, tag = "6")]
        pub how: String,
        /// The library that was opened, with its release; empty where none was.
        #[prost(string, tag = "7")]
        pub library: String,
    }

    /// A word on a source that is up.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Note {
        /// `dcgm`, `nvml` or `profiling`.
        #[prost(string, tag = "1")]
        pub name: String,
        /// A short word, such as `unknown_field`, `conflict`, `slow_query`, `refused`.
        #[prost(string, tag = "2")]
        pub reason: String,
        /// What it is about, with the system's own words.
        #[prost(string, tag = "3")]
        pub what: String,
        /// What the operator can do.
        #[prost(string, tag = "4")]
        pub remedy: String,
    }

    /// The answer to a request.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Answer {
        /// The request's id.
        #[prost(uint64, tag = "1")]
        pub id: u64,
        /// It was done.
        #[prost(bool, tag = "2")]
        pub done: bool,
        /// JSON lines for `fields`; otherwise a sentence for people.
        #[prost(string, tag = "3")]
        pub text: String,
        /// More answers of this id follow.
        #[prost(bool, tag = "4")]
        pub more: bool,
    }

    /// A bind event.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Bind {
        /// Field 6: 1 the driver is being taken from a GPU or given to one, 2 that is over.
        #[prost(int64, tag = "1")]
        pub event: i64,
    }
}
