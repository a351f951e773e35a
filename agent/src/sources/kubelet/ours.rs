//! Which of a node's resources are NVIDIA's, whatever the operator called them.
//!
//! In: a resource's name and its device ids; a claim's driver. Out: yes or no. A pure function.
//! What can go wrong: a resource that was renamed to something outside `nvidia.com/` with ids that are no UUIDs (GKE's
//! form under another name); it must then be configured (`kubelet.resource_names`).

/// Vendor of NVIDIA's device plugins and DRA drivers.
const VENDOR: &str = "nvidia.com";
/// Its channels between nodes (IMEX) are no device that anything is measured of.
const CHANNELS: &str = "compute-domain.nvidia.com";

/// What beside `nvidia.com/*` is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ours {
    /// Names; `*` stands for any text.
    names: Vec<String>,
}

impl Ours {
    /// Resources of these names too.
    pub fn new(names: Vec<String>) -> Self {
        Self { names }
    }

    /// Whether a device plugin's resource is NVIDIA's.
    pub fn is_resource(&self, name: &str, device_ids: &[String]) -> bool {
        name.split_once('/').is_some_and(|(vendor, _)| vendor == VENDOR)
            || self.is_configured(name)
            || device_ids.iter().any(|id| is_uuid(id))
    }

    /// Whether a DRA driver, or the vendor of a CDI name (`k8s.gpu.nvidia.com/claim`), is NVIDIA's and gives devices.
    pub fn is_driver(&self, name: &str) -> bool {
        let vendor = name.split('/').next().unwrap_or_default();
        let is_below =
            |of: &str| vendor.strip_suffix(of).is_some_and(|below| below.is_empty() || below.ends_with('.'));
        (is_below(VENDOR) && !is_below(CHANNELS)) || self.is_configured(name)
    }

    fn is_configured(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| matches(pattern, name))
    }
}

/// `GPU-` or `MIG-` (or both, as old MIG ids have it) and a UUID; what follows does not matter.
fn is_uuid(id: &str) -> bool {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let Some(rest) = id.strip_prefix("MIG-GPU-").or(id.strip_prefix("GPU-")).or(id.strip_prefix("MIG-"))
    else {
        return false;
    };
    let mut bytes = rest.bytes();
    GROUPS.iter().enumerate().all(|(place, length)| {
        (place == 0 || bytes.next() == Some(b'-'))
            && bytes.by_ref().take(*length).filter(u8::is_ascii_hexdigit).count() == *length
    })
}

/// Whether the whole name is as the pattern has it. Both are short; the last `*` is gone back to, no other.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < name.len() {
        match (pattern.get(at), star) {
            (Some(b'*'), _) => {
                star = Some((at, read));
                at += 1;
            }
            (Some(byte), _) if Some(byte) == name.get(read) => {
                at += 1;
                read += 1;
            }
            (_, Some((place, from))) => {
                star = Some((place, from + 1));
                at = place + 1;
                read = from + 1;
            }
            (_, None) => return false,
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidias_resources_are_known_by_vendor_configuration_or_id() {
        let ours = Ours::new(vec!["example.com/a100".to_owned(), "corp/*-gpu".to_owned()]);
        for (name, id, want) in [
            ("nvidia.com/gpu", "nvidia0/gi7", true),
            ("nvidia.com/gpu.shared", "x", true),
            ("nvidia.com/mig-1g.10gb.shared", "x", true),
            ("nvidia.com", "x", false),
            ("xnvidia.com/gpu", "x", false),
            ("amd.com/gpu", "0000:03:00.0", false),
            ("example.com/a100", "0", true),
            ("example.com/a1000", "0", false),
            ("corp/team-gpu", "0", true),
            ("corp/-gpu", "0", true),
            ("corp/gpu", "0", false),
            ("corp/team-gpu-x", "0", false),
            ("renamed/gpu", "GPU-aaaaaaaa-0000-0000-0000-000000000001", true),
            ("renamed/gpu", "GPU-aaaaaaaa-0000-0000-0000-000000000001::7", true),
            ("renamed/mig", "MIG-bbbbbbbb-0000-0000-0000-000000000004", true),
            ("renamed/mig", "MIG-GPU-aaaaaaaa-0000-0000-0000-000000000003/12/0", true),
            ("renamed/gpu", "GPU-aaaaaaaa-0000-0000-0000-00000000000", false),
            ("renamed/gpu", "GPU-aaaaaaaa0000-0000-0000-000000000000-1", false),
            ("renamed/gpu", "GPU-é", false),
            ("", "", false),
        ] {
            assert_eq!(ours.is_resource(name, &[id.to_owned()]), want, "{name} {id}");
        }
        assert!(!Ours::default().is_resource("example.com/a100", &[]));
    }

    #[test]
    fn drivers_of_channels_are_not_drivers_of_devices() {
        let ours = Ours::new(vec!["gpu.corp".to_owned()]);
        for (name, want) in [
            ("gpu.nvidia.com", true),
            ("nvidia.com", true),
            ("k8s.gpu.nvidia.com/claim", true),
            ("compute-domain.nvidia.com", false),
            ("k8s.compute-domain.nvidia.com/claim", false),
            ("gpunvidia.com", false),
            ("gpu.corp", true),
            ("gpu.intel.com", false),
            ("", false),
        ] {
            assert_eq!(ours.is_driver(name), want, "{name}");
        }
    }

    #[test]
    fn a_pattern_is_for_the_whole_name() {
        for (pattern, name, want) in [
            ("*", "", true),
            ("*", "anything", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*aab", "aaaab", true),
            ("", "a", false),
            ("é*", "éa", true),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }
}
