//! What is said about DCGM and profiling as a whole, in words.
//!
//! In: what happened. Out: `State` reports with a reason, what is missing, and a remedy. Nothing can go wrong.

use super::engine::ReturnCode;
use crate::model::Absence;
use crate::wire::report::{Kind, Note, State};

const DCGM: &str = "dcgm";
const PROFILING: &str = "profiling";

fn report(name: &str, up: bool, reason: &str, what: String, remedy: &str) -> Kind {
    let (name, reason, remedy) = (name.to_owned(), reason.to_owned(), remedy.to_owned());
    Kind::State(State { name, up, reason, what, remedy, ..State::default() })
}

fn note(name: &str, reason: &str, what: String, remedy: &str) -> Kind {
    let (name, reason, remedy) = (name.to_owned(), reason.to_owned(), remedy.to_owned());
    Kind::Note(Note { name, reason, what, remedy })
}

/// A call is refused that nothing else stands in for.
pub(super) fn refused(call: &str, found: ReturnCode) -> Kind {
    let what = format!("{call} is refused: {}", code(found));
    note(DCGM, "refused", what, "look at the engine's log; it is tried again")
}

/// The engine says of itself that something is wrong with it.
pub(super) fn unhealthy() -> Kind {
    let what = "the engine answers, but says that it is not healthy".to_owned();
    note(DCGM, "unhealthy", what, "restart the engine; look at the kernel log for XIDs 119 and 120")
}

/// Incidents about something that is in no list.
pub(super) fn stray_incidents(count: usize) -> Kind {
    let what = format!("{count} incidents of the health check are about devices that are in no list");
    note(DCGM, "stray_incident", what, "`dcgmi health -c` shows them")
}

/// The engine gives data.
pub(super) fn up(how: &str) -> Kind {
    let how = how.to_owned();
    Kind::State(State { name: DCGM.to_owned(), up: true, how, ..State::default() })
}

/// The same, with the library that it was found out by.
pub(super) fn by(library: &str, said: Kind) -> Kind {
    match said {
        Kind::State(state) => Kind::State(State { library: library.to_owned(), ..state }),
        other => other,
    }
}

/// No libdcgm.
pub(super) fn no_library(what: String, remedy: &str) -> Kind {
    report(DCGM, false, "no_library", what, remedy)
}

/// The engine went away, or there was none.
pub(super) fn engine_down(what: String) -> Kind {
    report(DCGM, false, "engine_down", what, "nothing: it is connected to again as soon as it answers")
}

/// No engine at the address that was configured.
pub(super) fn no_engine(what: String) -> Kind {
    let remedy = "start nv-hostengine there, or set worker.engine to auto or embedded";
    report(DCGM, false, "engine_down", what, remedy)
}

/// The library is newer than the engine can talk to.
pub(super) fn engine_too_old(found: ReturnCode, embedded: bool) -> Kind {
    let what = format!("the first reading was refused: {}", code(found));
    if embedded {
        let remedy = "reinstall datacenter-gpu-manager: libdcgm and its modules must be of one release";
        return report(DCGM, false, "engine_refuses", what, remedy);
    }
    let remedy = "update the host engine to the release of libdcgm, or set worker.engine to embedded";
    report(DCGM, false, "engine_too_old", what, remedy)
}

/// A configured field that nobody knows.
pub(super) fn unknown_field(group: &str, name: &str) -> Kind {
    let what = format!("group {group}: no field {name}");
    note(DCGM, "unknown_field", what, "correct its name or number; `warpgauge fields` lists all")
}

/// Two sets of fields that spoil one another.
pub(super) fn conflict(a: &[u16], b: &[u16]) -> Kind {
    let what = format!("watched together they are all blank: {} with {}", list(a), list(b));
    note(DCGM, "conflict", what, "nothing: they are watched apart")
}

/// Profiling works, after it did not on this GPU (or at all).
pub(super) fn profiling_up(hw_id: &str) -> Kind {
    report(PROFILING, true, "", hw_id.to_owned(), "")
}

/// Profiling is paused.
pub(super) fn paused() -> Kind {
    let what = "profiling is paused by request".to_owned();
    report(PROFILING, false, "paused", what, "`warpgauge profiling resume` when the other profiler is done")
}

/// Profiling is paused, but not by us.
pub(super) fn paused_elsewhere() -> Kind {
    let what = "the engine's modules are paused by another client or by a diagnosis".to_owned();
    report(
        PROFILING,
        false,
        "paused",
        what,
        "resume it there (dcgmi profile --resume), or wait for the diagnosis",
    )
}

/// Profiling of a GPU stands still.
pub(super) fn stuck(hw_id: &str) -> Kind {
    let what = format!("profiling values of {hw_id} stand still or are gone");
    let remedy = "end other profilers on the node; if it lasts, restart the host engine or reset the GPU";
    report(PROFILING, false, "stuck", what, remedy)
}

/// Profiling works on no GPU.
pub(super) fn no_profiling(why: Absence) -> Kind {
    report(PROFILING, false, why.name(), "no GPU gives profiling fields".to_owned(), profiling_remedy(why))
}

/// What can be done where a GPU gives no profiling fields.
pub(super) fn profiling_remedy(why: Absence) -> &'static str {
    match why {
        Absence::ModuleMissing => {
            "install the -proprietary package of datacenter-gpu-manager: GPUs before Hopper need its module"
        }
        Absence::NotPermitted => {
            "run the engine as root or with CAP_SYS_ADMIN, or let the driver profile for all"
        }
        Absence::Unknown => "update libdcgm",
        _ => "nothing: these GPUs have no profiling",
    }
}

/// A code, in words.
pub(super) fn code(code: ReturnCode) -> String {
    code.to_string()
}

fn list(fields: &[u16]) -> String {
    let numbers: Vec<String> = fields.iter().map(u16::to_string).collect();
    numbers.join(", ")
}
