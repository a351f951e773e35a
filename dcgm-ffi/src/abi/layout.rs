//! Our structures against the vendor's headers.
//!
//! In: `tests/fixtures/dcgm/layouts.csv`: what a compiler printed for the headers of libdcgm 3.1.3 to 4.6.0,
//! one row per member. Out: a test. What can go wrong: a structure without a row, or a member that stands
//! elsewhere, fails it.

use std::collections::{BTreeMap, BTreeSet};

/// A structure as our compiler laid it out.
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) size: usize,
    pub(crate) align: usize,
    /// C name, offset, size.
    pub(crate) members: &'static [(&'static str, usize, usize)],
    /// Version and what is stamped, for a versioned structure.
    pub(crate) stamp: Option<(u32, u32)>,
}

/// Elements whose members the table does not list; their stride is checked, and the sum of their members'
/// sizes.
const UNLISTED: [&str; 2] = ["dcgmCpuHierarchy_v1.cpus", "dcgmCpuHierarchy_v2.cpus"];

/// A member in the vendor's header.
struct Row {
    kind: String,
    offset: usize,
    size: usize,
}

/// A structure in the vendor's header.
#[derive(Default)]
struct Vendor {
    size: usize,
    align: usize,
    members: BTreeMap<String, Row>,
}

/// By tag and C name.
type Header = BTreeMap<(String, String), Vendor>;

fn header() -> Header {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/dcgm/layouts.csv");
    let text = std::fs::read_to_string(path).unwrap();
    let mut header = Header::new();
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [tag, name, size, align, member, kind, offset, bytes] = cells[..] else { panic!("{line}") };
        if bytes == "-1" {
            continue; // a bit field; the links' ids are taken apart by hand
        }
        let vendor = header.entry((tag.into(), name.into())).or_default();
        (vendor.size, vendor.align) = (size.parse().unwrap(), align.parse().unwrap());
        let row = Row { kind: kind.into(), offset: offset.parse().unwrap(), size: bytes.parse().unwrap() };
        vendor.members.insert(member.into(), row);
    }
    header
}

fn ours() -> Vec<&'static Layout> {
    let families = [
        super::attributes::LAYOUTS,
        super::connection::LAYOUTS,
        super::cpu::LAYOUTS,
        super::field::LAYOUTS,
        super::group::LAYOUTS,
        super::health::LAYOUTS,
        super::links::LAYOUTS,
        super::mig::LAYOUTS,
        super::module::LAYOUTS,
        super::profiling::LAYOUTS,
        super::topology::LAYOUTS,
    ];
    families.into_iter().flatten().collect()
}

/// Complaints about one structure.
fn check(ours: &Layout, header: &Header) -> Vec<String> {
    let place = format!("{} ({})", ours.name, ours.tag);
    let (name, element) = ours.name.split_once('.').map_or((ours.name, None), |(n, e)| (n, Some(e)));
    let Some(vendor) = header.get(&(ours.tag.into(), name.into())) else {
        return vec![format!("{place}: no row in the table")];
    };
    let mut bad = Vec::new();
    let mut wrong = |what: &str, we: usize, they: usize| {
        if we != they {
            bad.push(format!("{place}: {what} is {we}, the header says {they}"));
        }
    };
    // Where the members begin, and how their names do.
    let (base, prefix) = match element {
        None => {
            wrong("size", ours.size, vendor.size);
            wrong("alignment", ours.align, vendor.align);
            (0, String::new())
        }
        Some(element) => {
            let array = &vendor.members[element];
            let count = array.kind.split(['[', ']']).nth(1).unwrap().parse::<usize>().unwrap();
            wrong("stride", ours.size * count, array.size);
            (array.offset, format!("{element}."))
        }
    };
    if UNLISTED.contains(&ours.name) {
        let end = ours.members.iter().map(|(_, offset, size)| offset + size).max().unwrap();
        wrong("end of the last member", end.next_multiple_of(ours.align), ours.size);
        return bad;
    }
    for (member, offset, size) in ours.members {
        match vendor.members.get(&format!("{prefix}{member}")) {
            None => bad.push(format!("{place}: the header has no member {member}")),
            Some(row) if (row.offset, row.size) != (base + offset, *size) => bad.push(format!(
                "{place}: {member} stands at {} with {size} bytes, in the header at {} with {}",
                base + offset,
                row.offset,
                row.size
            )),
            Some(_) => {}
        }
    }
    let known: BTreeSet<&str> = ours.members.iter().map(|(member, ..)| *member).collect();
    for (member, row) in &vendor.members {
        let Some(member) = member.strip_prefix(&prefix) else { continue };
        match member.split_once('.') {
            // A member of a union begins where the union does; other inner members are structures of their
            // own.
            Some((outer, _)) => {
                let outer = &vendor.members[&format!("{prefix}{outer}")];
                if outer.kind == "union" && (row.offset != outer.offset || outer.size < row.size) {
                    bad.push(format!("{place}: {member} is not where its union is"));
                }
            }
            None if element.is_none() && !known.contains(member) => {
                bad.push(format!("{place}: our structure lacks {member}"));
            }
            None => {}
        }
    }
    bad
}

#[test]
fn every_structure_is_laid_out_as_in_the_headers() {
    let header = header();
    let all = ours();
    let bad: Vec<String> = all.iter().flat_map(|layout| check(layout, &header)).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let distinct: BTreeSet<_> = all.iter().map(|layout| (layout.name, layout.tag)).collect();
    assert_eq!((distinct.len(), all.len()), (47, 47), "one row of ours per structure");
}

#[test]
fn no_structure_is_left_out() {
    // The macro is the only place that lays out for C, and each file is in the list above.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let marker = format!("#[repr({})]", "C");
    let mut with_marker = Vec::new();
    let mut folders = vec![std::path::PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read_to_string(&path).unwrap().contains(&marker) {
                with_marker.push(path.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
    }
    with_marker.sort();
    assert_eq!(with_marker, ["mod.rs"], "structures for C outside `family!`");
    let here = include_str!("mod.rs").lines().filter(|line| line.starts_with("pub(crate) mod ")).count();
    assert_eq!(here, 11, "a family is missing in the list of the test above");
}

#[test]
fn a_wrong_member_is_found() {
    let header = header();
    let fake = |members: &'static [(&'static str, usize, usize)]| Layout {
        name: "dcgmGroupEntityPair_t",
        tag: "v3.1.3",
        size: 8,
        align: 4,
        members,
        stamp: None,
    };
    let bad = |layout: &Layout| check(layout, &header).len();
    assert_eq!(bad(&fake(&[("entityGroupId", 0, 4), ("entityId", 4, 4)])), 0);
    assert_eq!(bad(&fake(&[("entityGroupId", 0, 4), ("entityId", 4, 2)])), 1, "size");
    assert_eq!(bad(&fake(&[("entityGroupId", 4, 4), ("entityId", 0, 4)])), 2, "offsets");
    assert_eq!(bad(&fake(&[("entityGroupId", 0, 4)])), 1, "missing");
    assert_eq!(bad(&fake(&[("group", 0, 4), ("entityId", 4, 4)])), 2, "name");
    assert_eq!(bad(&Layout { name: "dcgmNone_v1", ..fake(&[]) }), 1, "no row");
    assert_eq!(bad(&Layout { size: 12, ..fake(&[("entityGroupId", 0, 4), ("entityId", 4, 4)]) }), 1);
}

#[test]
fn stamps_are_the_constants_of_the_headers() {
    // `dcgm…_version…` of dcgm_structs.h as a compiler prints them.
    let constants = [
        ("dcgmConnectV2Params_v2", 0x0200_0010),
        ("dcgmConnectV3Params_v1", 0x0100_000c),
        ("dcgmStartEmbeddedV2Params_v1", 0x0100_0048),
        ("dcgmStartEmbeddedV2Params_v2", 0x0200_0050),
        ("dcgmStartEmbeddedV2Params_v3", 0x0300_0068),
        ("dcgmVersionInfo_v2", 0x0200_0204),
        ("dcgmHostengineHealth_v1", 0x0100_0008),
        ("dcgmDeviceAttributes_v3", 0x0300_1464),
        ("dcgmMigHierarchy_v2", 0x0201_1f08),
        ("dcgmGroupInfo_v2", 0x0200_0308),
        ("dcgmGroupInfo_v3", 0x0300_2108),
        ("dcgmFieldValue_v1", 0x0100_1018),
        ("dcgmFieldValue_v2", 0x0200_1020),
        ("dcgmHealthSetParams_v2", 0x0200_0028),
        ("dcgmHealthResponse_v4", 0x0401_050c),
        ("dcgmHealthResponse_v5", 0x0510_500c),
        ("dcgmProfGetMetricGroups_v3", 0x0300_0560),
        ("dcgmNvLinkStatus_v3", 0x0300_15bc),
        ("dcgmNvLinkStatus_v4", 0x0400_39bc),
        ("dcgmNvLinkStatus_v5", 0x0500_42bc),
        ("dcgmDeviceTopology_v1", 0x0100_01c0),
        ("dcgmDeviceTopology_v2", 0x0200_0338),
        ("dcgmModuleGetStatuses_v1", 0x0100_0088),
        ("dcgmCpuHierarchy_v1", 0x0100_0488),
        ("dcgmCpuHierarchy_v2", 0x0200_0c88),
    ];
    let mut stamped = 0;
    for layout in ours() {
        let Some((version, stamp)) = layout.stamp else { continue };
        stamped += 1;
        let want = constants.iter().find(|(name, _)| *name == layout.name).unwrap_or_else(|| {
            panic!("{} has no constant here", layout.name);
        });
        assert_eq!(stamp, want.1, "{}: {stamp:#010x}", layout.name);
        assert!(layout.name.ends_with(&format!("_v{version}")), "{}", layout.name);
        assert_eq!(layout.members[0], ("version", 0, 4), "{}", layout.name);
    }
    assert_eq!(stamped, constants.len());
}
