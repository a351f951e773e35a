//! Names of what the resource manager (RM) is asked for, and of what it answers.
//!
//! In: numbers from a call's parameters. Out: the driver's own names, from the table `data/rm_names.csv`.
//! What can go wrong: a number the table lacks, and most are: it is written in hexadecimal. Source of the table: the
//! public headers of the open driver, release 595; the numbers are the same since 515.

use std::collections::HashMap;
use std::sync::LazyLock;

use warpgauge_ebpf::rm::{ALLOC, CONTROL};

use super::operation::{self, Family, Operation};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Control,
    Class,
    Status,
}

/// The operation: the command of a control, the class of an allocation, else the escape.
pub fn operation(escape: u32, code: u32) -> Operation {
    match escape {
        CONTROL => named(Kind::Control, code),
        ALLOC => named(Kind::Class, code),
        _ => operation::name(Some(Family::Nvidia), escape),
    }
}

/// The command of a control.
pub fn control(cmd: u32) -> Operation {
    named(Kind::Control, cmd)
}

/// The class of an allocation.
pub fn class(class: u32) -> Operation {
    named(Kind::Class, class)
}

/// An `NV_STATUS`.
pub fn status(status: u32) -> Operation {
    named(Kind::Status, status)
}

fn named(kind: Kind, number: u32) -> Operation {
    NAMES.get(&(kind, number)).copied().map_or(Operation::Number(number), Operation::Named)
}

static NAMES: LazyLock<HashMap<(Kind, u32), &'static str>> =
    LazyLock::new(|| include_str!("../../data/rm_names.csv").lines().filter_map(row).collect());

fn row(line: &'static str) -> Option<((Kind, u32), &'static str)> {
    let mut columns = line.splitn(3, ',');
    let kind = match columns.next()? {
        "control" => Kind::Control,
        "class" => Kind::Class,
        "status" => Kind::Status,
        _ => return None,
    };
    let number = u32::from_str_radix(columns.next()?.strip_prefix("0x")?, 16).ok()?;
    Some(((kind, number), columns.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_named_by_what_was_asked_for() {
        for (escape, code, want) in [
            (CONTROL, 0x2080_014a, "NV2080_CTRL_CMD_GPU_GET_GID_INFO"),
            (CONTROL, 0x2080_1348, "0x20801348"),
            (ALLOC, 0xcbc0, "HOPPER_COMPUTE_A"),
            (ALLOC, 0x2080, "NV20_SUBDEVICE_0"),
            (ALLOC, 0x1234, "0x1234"),
            (0x29, 0, "NV_ESC_RM_FREE"),
            (0x01, 0, "0x1"),
        ] {
            assert_eq!(operation(escape, code).to_string(), want, "{escape:#x} {code:#x}");
        }
        assert_eq!(
            [0, 0x0f, 0x1234].map(|n| status(n).to_string()),
            ["NV_OK", "NV_ERR_GPU_IS_LOST", "0x1234"]
        );
    }

    #[test]
    fn every_row_of_the_table_is_read_and_every_class_of_a_workload_is_named() {
        let rows = include_str!("../../data/rm_names.csv").lines().count() - 1;
        assert_eq!(NAMES.len(), rows);
        let unnamed = |class: &u32| {
            warpgauge_ebpf::rm::is_of_workload(*class)
                && named(Kind::Class, *class) == Operation::Number(*class)
        };
        assert_eq!((0..=0xffff).find(unnamed), None);
    }
}
