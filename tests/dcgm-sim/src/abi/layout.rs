//! Layouts of the structs against the list that a C compiler printed from the vendor's headers.
//!
//! In: `tests/fixtures/dcgm/layouts.csv`. Out: a failed test for each difference.

use std::collections::BTreeMap;

use super::{devices, engine, links, values, version_word};

pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) fields: Vec<(&'static str, usize)>,
}

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/dcgm/layouts.csv");

/// Size, alignment, fields with their offsets.
type Listed = (usize, usize, Vec<(String, usize)>);

/// Fields and offsets of a struct, with its size and alignment, in the newest tag that lists it.
fn listed(name: &str) -> Option<Listed> {
    let mut by_tag: BTreeMap<String, Listed> = BTreeMap::new();
    let mut reader = csv::Reader::from_path(LIST).unwrap();
    for row in reader.records().map(Result::unwrap).filter(|row| &row[1] == name) {
        let entry = by_tag
            .entry(row[0].to_owned())
            .or_insert_with(|| (row[2].parse().unwrap(), row[3].parse().unwrap(), Vec::new()));
        if !row[4].contains('.') {
            entry.2.push((row[4].to_owned(), row[6].parse().unwrap()));
        }
    }
    by_tag.pop_last().map(|(_, layout)| layout)
}

#[test]
fn structs_lie_as_the_headers_say() {
    let ours = [
        engine::ConnectV1::layout(),
        engine::ConnectV2::layout(),
        engine::ConnectV3::layout(),
        engine::StartV1::layout(),
        engine::StartV2::layout(),
        engine::StartV3::layout(),
        engine::VersionInfo::layout(),
        engine::EngineHealth::layout(),
        engine::ModuleStatus::layout(),
        engine::ModuleStatuses::layout(),
        values::Pair::layout(),
        values::GroupInfoV2::layout(),
        values::GroupInfoV3::layout(),
        values::FieldGroupInfo::layout(),
        values::FieldValueV1::layout(),
        values::FieldValueV2::layout(),
        values::OutputFormat::layout(),
        values::FieldMeta::layout(),
        values::HealthSetParams::layout(),
        values::ErrorDetail::layout(),
        values::IncidentInfo::layout(),
        values::HealthResponseV4::layout(),
        values::HealthResponseV5::layout(),
        values::MetricGroup::layout(),
        values::MetricGroups::layout(),
        devices::Thermals::layout(),
        devices::PowerLimits::layout(),
        devices::Identifiers::layout(),
        devices::MemoryUsage::layout(),
        devices::Settings::layout(),
        devices::DeviceAttributes::layout(),
        devices::MigEntityInfo::layout(),
        devices::MigHierarchyInfo::layout(),
        devices::MigHierarchy::layout(),
        devices::OwnedCores::layout(),
        devices::CpuHierarchyV1::layout(),
        devices::CpuHierarchyV2::layout(),
        links::GpuLinksV3::layout(),
        links::GpuLinksV4::layout(),
        links::SwitchLinks256::layout(),
        links::NvLinkStatusV3::layout(),
        links::NvLinkStatusV4::layout(),
        links::NvLinkStatusV5::layout(),
        links::TopologyV1::layout(),
        links::TopologyV2::layout(),
    ];
    for layout in ours {
        let (size, align, fields) =
            listed(layout.name).unwrap_or_else(|| panic!("{} is not listed", layout.name));
        assert_eq!((layout.size, layout.align), (size, align), "{}", layout.name);
        let ours: Vec<(String, usize)> = layout.fields.iter().map(|(f, at)| ((*f).to_owned(), *at)).collect();
        // the oldest forms end in a shorter list and padding
        let ours_but_padding: Vec<_> = ours.iter().filter(|(f, _)| !f.contains("adding")).cloned().collect();
        let listed: Vec<_> =
            fields.into_iter().filter(|(f, _)| f != "unused" || has(&ours, "unused")).collect();
        assert_eq!(ours_but_padding, listed, "{}", layout.name);
    }
}

fn has(fields: &[(String, usize)], name: &str) -> bool {
    fields.iter().any(|(field, _)| field == name)
}

#[test]
fn version_words_are_the_headers() {
    for (ours, theirs) in [
        (version_word::<engine::ConnectV2>(2), 0x0200_0010),
        (version_word::<engine::ConnectV3>(1), 0x0100_000c),
        (version_word::<engine::StartV3>(3), 0x0300_0068),
        (version_word::<engine::VersionInfo>(2), 0x0200_0204),
        (version_word::<devices::DeviceAttributes>(3), 0x0300_1464),
        (version_word::<devices::MigHierarchy>(2), 0x0201_1f08),
        (version_word::<values::GroupInfoV2>(2), 0x0200_0308),
        (version_word::<values::GroupInfoV3>(3), 0x0300_2108),
        (version_word::<values::FieldGroupInfo>(1), 0x0100_0210),
        (version_word::<values::AllFieldGroups>(1), 0x0100_8408),
        (version_word::<values::FieldValueV1>(1), 0x0100_1018),
        (version_word::<values::FieldValueV2>(2), 0x0200_1020),
        (version_word::<values::HealthSetParams>(2), 0x0200_0028),
        (version_word::<values::HealthResponseV4>(4), 0x0401_050c),
        (version_word::<values::HealthResponseV5>(5), 0x0510_500c),
        (version_word::<values::MetricGroups>(3), 0x0300_0560),
        (version_word::<links::NvLinkStatusV3>(3), 0x0300_15bc),
        (version_word::<links::NvLinkStatusV4>(4), 0x0400_39bc),
        (version_word::<links::NvLinkStatusV5>(5), 0x0500_42bc),
        (version_word::<links::TopologyV1>(1), 0x0100_01c0),
        (version_word::<links::TopologyV2>(2), 0x0200_0338),
        (version_word::<engine::ModuleStatuses>(1), 0x0100_0088),
        (version_word::<devices::CpuHierarchyV1>(1), 0x0100_0488),
        (version_word::<devices::CpuHierarchyV2>(2), 0x0200_0c88),
    ] {
        assert_eq!(ours, theirs, "{ours:#x} {theirs:#x}");
    }
}
