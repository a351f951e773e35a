//! The worker's configuration: which libraries, which engine, which fields.
//!
//! In: defaults, of which the watch groups are a data file. Out: [`WorkerConfig`].
//! What can go wrong: an engine or a field that cannot be one; the error says what would be.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use super::duration;

/// DCGM and NVML, in a process of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Start it at all.
    pub enabled: bool,
    /// `auto`, `embedded`, or an address.
    pub engine: String,
    /// Use DCGM.
    pub dcgm: bool,
    /// libdcgm to open; `None`: found by name.
    pub dcgm_library: Option<PathBuf>,
    /// Use NVML.
    pub nvml: bool,
    /// libnvidia-ml to open; `None`: found by name.
    pub nvml_library: Option<PathBuf>,
    /// How often NVML is asked for processes and basic fields.
    pub nvml_interval: Duration,
    /// How often DCGM's health is checked; 0 for never.
    pub health_interval: Duration,
    /// Resident memory above which the worker is replaced. Unit: bytes.
    pub memory_limit: u64,
    /// What DCGM watches.
    pub groups: Vec<WatchGroup>,
}

/// Fields that are sampled together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchGroup {
    /// Its name.
    pub name: String,
    /// How often the engine samples it.
    pub interval: Duration,
    /// Fields by number, old or new name.
    pub fields: Vec<String>,
}

/// Longest name of a field; DCGM's longest has 65 characters.
const NAME_MAX: usize = 128;
/// Most watch groups.
pub(super) const GROUPS_MAX: usize = 32;
/// Most fields of one group; DCGM knows some 700.
pub(super) const FIELDS_MAX: usize = 1_024;
/// Least and most memory. Unit: bytes.
pub(super) const MEMORY: (u64, u64) = (32 << 20, 4 << 30);

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            engine: "auto".to_owned(),
            dcgm: true,
            dcgm_library: None,
            nvml: true,
            nvml_library: None,
            nvml_interval: Duration::from_secs(1),
            health_interval: Duration::from_secs(30),
            memory_limit: 160 << 20,
            groups: default_groups().to_vec(),
        }
    }
}

impl WorkerConfig {
    /// Whether there is anything for a worker to do.
    pub fn is_on(&self) -> bool {
        self.enabled && (self.dcgm || self.nvml)
    }
}

/// The groups of `data/watch_groups.csv`: dcgm-exporter's default counters, and what stalls are told by.
fn default_groups() -> &'static [WatchGroup] {
    static GROUPS: LazyLock<Vec<WatchGroup>> =
        LazyLock::new(|| parse_groups(include_str!("../../data/watch_groups.csv")));
    &GROUPS
}

/// Lines `group,interval,field,…`; a line that is none of these is left out (a test finds it).
fn parse_groups(text: &str) -> Vec<WatchGroup> {
    let mut groups: Vec<WatchGroup> = Vec::new();
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    for record in reader.records().filter_map(Result::ok) {
        let (Some(name), Some(interval), Some(field)) = (record.get(0), record.get(1), record.get(2)) else {
            continue;
        };
        let Ok(interval) = duration::parse(interval) else { continue };
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.fields.push(field.to_owned()),
            None => {
                let (name, fields) = (name.to_owned(), vec![field.to_owned()]);
                groups.push(WatchGroup { name, interval, fields });
            }
        }
    }
    groups
}

/// Checks what names an engine.
///
/// # Errors
/// A text for people.
pub(super) fn check_engine(text: &str) -> Result<(), String> {
    let printable = text.len() <= 256 && text.bytes().all(|b| b.is_ascii_graphic());
    let address = match text.split_once("://") {
        Some((scheme, rest)) => matches!(scheme, "tcp" | "unix" | "vsock") && !rest.is_empty(),
        None => text.bytes().all(|b| b.is_ascii_alphanumeric() || b".:-_[]".contains(&b)) && !text.is_empty(),
    };
    (printable && address).then_some(()).ok_or_else(|| {
        format!("{text}: must be auto, embedded, or host[:port], tcp://…, unix://… or vsock://…")
    })
}

/// Checks what names a field: whether the installed DCGM knows it is found out later.
///
/// # Errors
/// A text for people.
pub(super) fn check_field(text: &str) -> Result<(), String> {
    let number = text.parse::<u16>().is_ok_and(|id| id > 0);
    let name = text.len() <= NAME_MAX
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let wrong = || format!("{text}: must be 1 to 65535, or a name such as DCGM_FI_DEV_SM_CLOCK");
    (number || name).then_some(()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_groups_are_complete_and_each_field_is_in_one() {
        let text = include_str!("../../data/watch_groups.csv");
        let groups = default_groups();
        let lines = text.lines().filter(|line| !line.starts_with('#')).count() - 1;
        let mut fields: Vec<u16> =
            groups.iter().flat_map(|group| &group.fields).map(|field| field.parse().unwrap()).collect();
        assert_eq!(fields.len(), lines, "every line is read");
        fields.sort_unstable();
        let before = fields.len();
        fields.dedup();
        assert_eq!(fields.len(), before, "no field twice");
        // dcgm-exporter's 26 default counters, by number.
        let exporter = [
            100, 101, 140, 150, 155, 156, 202, 203, 204, 206, 207, 230, 251, 252, 253, 393, 394, 395, 449,
            526, 1, 1001, 1004, 1005, 1009, 1010,
        ];
        let ours = [250, 112, 240, 247, 310, 313, 390, 396, 1002, 1003];
        let missing: Vec<u16> = exporter.into_iter().chain(ours).filter(|id| !fields.contains(id)).collect();
        assert_eq!(missing, [] as [u16; 0]);
        for group in groups {
            let profiling = group.fields.iter().all(|field| field.parse::<u16>().unwrap() >= 1_000);
            assert_eq!(profiling, group.name == "profiling", "{}", group.name);
        }
    }

    #[test]
    fn engines_and_fields_are_checked_by_their_form() {
        for good in
            ["auto", "embedded", "localhost:5555", "[::1]:5555", "tcp://h:1", "unix:///run/x", "vsock://3:5"]
        {
            assert_eq!(check_engine(good), Ok(()), "{good}");
        }
        for bad in ["", "http://h", "unix://", "a b", "host/5555", "h\n"] {
            assert!(check_engine(bad).is_err(), "{bad:?}");
        }
        for good in ["100", "65535", "DCGM_FI_DEV_SM_CLOCK", "dcgm_fi_dev_sm_clock", "sm_clock"] {
            assert_eq!(check_field(good), Ok(()), "{good}");
        }
        for bad in ["", "0", "65536", "-1", "SM CLOCK", "1clock", "Ä"] {
            assert!(check_field(bad).is_err(), "{bad:?}");
        }
    }
}
