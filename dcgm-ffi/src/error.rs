//! What can go wrong with libdcgm, and what to do about it.
//!
//! In: failures of the other modules. Out: [`Error`] with a remedy. Nothing can go wrong here.

use crate::return_code::ReturnCode;

/// A failure. The text says what; [`Error::remedy`] what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The library could not be opened.
    #[error("cannot open {library}: {reason}")]
    Open {
        /// What was tried.
        library: String,
        /// The loader's words.
        reason: String,
    },
    /// There is no such library.
    #[error("{library} {} not found: {reason}", if library.contains(" and ") { "are" } else { "is" })]
    Missing {
        /// What was tried.
        library: String,
        /// The loader's words.
        reason: String,
    },
    /// Another one is in use: what a libdcgm keeps, it keeps once for the process.
    #[error("this process has opened a libdcgm already")]
    AlreadyOpen,
    /// The library lacks a function.
    #[error("{library} has no function {name}")]
    Symbol {
        /// The library.
        library: String,
        /// The function.
        name: &'static str,
    },
    /// A call failed.
    #[error("{function}: {code}")]
    Call {
        /// The function.
        function: &'static str,
        /// Its answer.
        code: ReturnCode,
    },
    /// The engine does not know a request of this library, which is newer.
    #[error("{function}: {code}: the host engine is older than libdcgm here")]
    EngineTooOld {
        /// The function.
        function: &'static str,
        /// Its answer.
        code: ReturnCode,
    },
    /// The connection was made, but nobody answers on it.
    #[error("the host engine at {address} took the connection but does not answer: {code}")]
    DeadConnection {
        /// The engine.
        address: String,
        /// The answer to the first request.
        code: ReturnCode,
    },
    /// Text that is no address.
    #[error("`{address}` is no address of a host engine: {why}")]
    Address {
        /// The text.
        address: String,
        /// What is wrong.
        why: &'static str,
    },
    /// This library cannot connect to such an address.
    #[error("this libdcgm cannot connect to {address}: it has no dcgmConnect_v3")]
    NoUri {
        /// The address.
        address: String,
    },
    /// An argument that the library would take and misbehave.
    #[error("{function}: {what}")]
    Argument {
        /// The function that was not called.
        function: &'static str,
        /// What is wrong.
        what: String,
    },
    /// A group of an engine that is gone.
    #[error("{function}: the group belongs to another connection")]
    Stale {
        /// The function that was not called.
        function: &'static str,
    },
    /// An engine already runs in this process and is in use.
    #[error("an engine already runs inside this process")]
    AlreadyEmbedded,
}

impl Error {
    /// The library's answer, if it gave one.
    pub fn code(&self) -> Option<ReturnCode> {
        match self {
            Self::Call { code, .. } | Self::EngineTooOld { code, .. } | Self::DeadConnection { code, .. } => {
                Some(*code)
            }
            _ => None,
        }
    }

    /// The connection is gone: connect again, and create all groups and watches again.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::DeadConnection { .. }) || self.code() == Some(ReturnCode::CONNECTION_NOT_VALID)
    }

    /// What to do about it. Never empty.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Open { .. } | Self::Missing { .. } => {
                "install datacenter-gpu-manager-4-core (libdcgm.so.4) or datacenter-gpu-manager \
                 (libdcgm.so.3), or set worker.dcgm_library to the library's path"
            }
            Self::Symbol { .. } => "install a complete, newer libdcgm; what needs this function stays off",
            Self::EngineTooOld { .. } => {
                "update nv-hostengine to the version of libdcgm here, install the older libdcgm, \
                 or let warpgauge run the engine itself"
            }
            Self::DeadConnection { .. } => "restart nv-hostengine; it takes connections but does not answer",
            Self::Address { .. } => "write host:port, tcp://host:port, unix:///path or vsock://CID:PORT",
            Self::NoUri { .. } => "install libdcgm 4.5 or later, or use host:port or unix:///path",
            Self::Argument { .. } => "correct the value",
            Self::Stale { .. } => "create groups and watches again after connecting",
            Self::AlreadyOpen => "drop the other library first",
            Self::AlreadyEmbedded => "end the other use of the engine first",
            Self::Call { code, .. } => of_code(*code),
        }
    }
}

fn of_code(code: ReturnCode) -> &'static str {
    match code {
        ReturnCode::CONNECTION_NOT_VALID => "see that nv-hostengine runs and listens there",
        ReturnCode::TIMEOUT => "see whether nv-hostengine or the driver hangs",
        ReturnCode::MODULE_NOT_LOADED => {
            "install the DCGM package with the missing module (profiling needs the -proprietary one)"
        }
        ReturnCode::NVML_NOT_LOADED | ReturnCode::INSUFFICIENT_DRIVER_VERSION => {
            "install an NVIDIA driver that this DCGM supports"
        }
        ReturnCode::NVML_DRIVER_TIMEOUT => "look for the XID in the kernel log; then restart the engine",
        ReturnCode::NO_PERMISSION | ReturnCode::REQUIRES_ROOT => {
            "run the engine as root, or permit profiling to others (NVreg_RestrictProfilingToAdminUsers=0)"
        }
        ReturnCode::MAX_LIMIT => "end other clients of the engine that hold groups, or restart it",
        ReturnCode::GPU_IS_LOST | ReturnCode::RESET_REQUIRED => "reset the GPU or restart the node",
        ReturnCode::GPUS_DETACHED => "attach the driver again",
        ReturnCode::PAUSED => "wait for the end of the diagnostics, or resume profiling",
        ReturnCode::FUNCTION_NOT_FOUND | ReturnCode::VER_MISMATCH => {
            "bring nv-hostengine and libdcgm to one version"
        }
        _ => "see the log of nv-hostengine",
    }
}
