//! What is said about NVML as a whole, in words.
//!
//! In: what happened. Out: `State` reports with a reason, what is missing, and a remedy. Nothing can go wrong.

use crate::wire::report::{Kind, Note, State};

fn report(up: bool, reason: &str, what: String, remedy: &str) -> Kind {
    let (reason, remedy) = (reason.to_owned(), remedy.to_owned());
    Kind::State(State { name: "nvml".to_owned(), up, reason, what, remedy, ..State::default() })
}

/// NVML gives data: by which file, and which release it is.
pub(super) fn up(how: String, version: &str) -> Kind {
    let library = format!("{how}, {version}");
    Kind::State(State { name: "nvml".to_owned(), up: true, how, library, ..State::default() })
}

/// No libnvidia-ml.
pub(super) fn no_library(what: String) -> Kind {
    let remedy = "install the NVIDIA driver; in a container use the nvidia runtime class with \
                  NVIDIA_DRIVER_CAPABILITIES=utility, or set worker.nvml_library";
    report(false, "no_library", what, remedy)
}

/// The library is there, the driver is not.
pub(super) fn no_driver(what: String) -> Kind {
    report(
        false,
        "no_driver",
        what,
        "load the NVIDIA kernel module (modprobe nvidia), if this node has a GPU",
    )
}

/// A query is too slow to be made each time.
pub(super) fn slow(call: &str, fields: &[u16]) -> Kind {
    let numbers: Vec<String> = fields.iter().map(u16::to_string).collect();
    let what = format!("{call} took more than a second for field {}; it is left out", numbers.join(", "));
    note("slow_query", what, "nothing: it is tried again in ten minutes")
}

/// A call that lists the devices fails; what was listed last holds.
pub(super) fn no_list(what: String) -> Kind {
    note("refused", what, "look at the kernel log; it is tried again")
}

fn note(reason: &str, what: String, remedy: &str) -> Kind {
    let (reason, remedy) = (reason.to_owned(), remedy.to_owned());
    Kind::Note(Note { name: "nvml".to_owned(), reason, what, remedy })
}
