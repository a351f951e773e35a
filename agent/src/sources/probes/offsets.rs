//! The structure offsets the kernel programs need, from the running kernel's BTF.
//!
//! In: [`Btf`] and the chosen cgroup hierarchy. Out: [`Offsets`], one value per name in the object.
//! What can go wrong: a kernel that has renamed or dropped a member; the error names it, unless only some programs miss
//! it: those then do less ([`Offsets::missing`]).

use warpgauge_ebpf::layout::{ABSENT, MEMBERS, Member, Need, PIDS_SUBSYS_ENUM};

use super::btf::Btf;
use crate::host::cgroup_hierarchy::Version;

/// A value for every member of the layout, in its order; [`ABSENT`] where there is none and it is not needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Offsets. Unit: bytes.
    pub members: [u32; MEMBERS.len()],
    /// Index of the pids controller.
    pub pids_subsys: u32,
}

/// Something this kernel does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this kernel's BTF has no {what} (its release is not known to this agent: report it, with `uname -r`)"
)]
pub struct OffsetError {
    what: String,
}

impl Offsets {
    /// Looks everything up that is needed.
    ///
    /// # Errors
    /// Names the first thing that is missing.
    pub fn resolve(btf: &Btf, version: Version) -> Result<Self, OffsetError> {
        let v1 = version == Version::V1;
        let mut members = [ABSENT; MEMBERS.len()];
        for (offset, member) in members.iter_mut().zip(&MEMBERS) {
            *offset = match btf.offset(member.structure, member.names) {
                Some(found) => found,
                None if is_needed(member, v1) => return Err(OffsetError { what: name(member) }),
                None => ABSENT,
            };
        }
        let (enumeration, value) = PIDS_SUBSYS_ENUM;
        let pids_subsys = match btf.enum_value(enumeration, value) {
            Some(index) => index,
            None if v1 => return Err(OffsetError { what: format!("{enumeration}.{value}") }),
            None => 0,
        };
        Ok(Self { members, pids_subsys })
    }

    /// Members that this kernel does not have and that only some programs miss, such as `signal_struct.live`.
    pub fn missing(&self) -> impl Iterator<Item = String> {
        let extra = MEMBERS.iter().zip(&self.members).filter(|(member, _)| member.need == Need::Extra);
        extra.filter(|(_, offset)| **offset == ABSENT).map(|(member, _)| name(member))
    }
}

fn is_needed(member: &Member, v1: bool) -> bool {
    match member.need {
        Need::Always => true,
        Need::CgroupV1 => v1,
        Need::Extra => false,
    }
}

fn name(member: &Member) -> String {
    format!("{}.{}", member.structure, member.names.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_what_is_missing() {
        // a header, no types, one empty string
        let mut empty = vec![0x9f, 0xeb, 1, 0];
        empty.extend([24u32, 0, 0, 0, 1].iter().flat_map(|w| w.to_le_bytes()));
        empty.push(0);
        if cfg!(target_endian = "little") {
            let btf = Btf::parse(empty).expect("an empty description");
            let error = Offsets::resolve(&btf, Version::V2).expect_err("nothing in it");
            assert!(error.to_string().contains("task_struct.files"), "{error}");
        }
    }
}
