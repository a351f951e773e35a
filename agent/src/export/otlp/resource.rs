//! Who sends: the Resource of everything that leaves.
//!
//! In: the host's identity and `OTEL_RESOURCE_ATTRIBUTES`. Out: one list of attributes per run.
//! What can go wrong: the machine has no id; then `host.id` is absent and the host's name stands in for the instance.

use std::path::Path;

use crate::host::HostRoot;

/// What the machine says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// /etc/machine-id of the host.
    pub machine_id: Option<String>,
    /// Name of the machine, or of the container this runs in.
    pub hostname: Option<String>,
    /// `uname -m`.
    pub machine: String,
    /// `NODE_NAME`, which a DaemonSet sets from the node's name.
    pub node_name: Option<String>,
    /// /proc/sys/kernel/random/boot_id.
    pub boot_id: Option<String>,
}

impl HostFacts {
    /// Reads them; `lookup` is the environment.
    pub fn read(host: &HostRoot, lookup: impl Fn(&str) -> Option<String>) -> Self {
        // Through the host's first process, so that a container sees the host's file and not its image's.
        let of_host = host.proc("1/root/etc/machine-id");
        let places = [of_host.as_path(), Path::new("/etc/machine-id"), Path::new("/var/lib/dbus/machine-id")];
        let uname = rustix::system::uname();
        Self {
            machine_id: places.into_iter().find_map(machine_id),
            hostname: uname.nodename().to_str().ok().map(str::to_owned).filter(|name| !name.is_empty()),
            machine: uname.machine().to_string_lossy().into_owned(),
            node_name: lookup("NODE_NAME").filter(|name| !name.is_empty()),
            boot_id: first_line(&host.proc("sys/kernel/random/boot_id")),
        }
    }
}

/// 32 hexadecimal digits; an image that was never booted has `uninitialized`.
fn machine_id(path: &Path) -> Option<String> {
    first_line(path).filter(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn first_line(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.lines().next()?.trim().to_owned()).filter(|line| !line.is_empty())
}

/// The attributes, in order; what the operator sets takes the place of what was found.
///
/// `service.instance.id` is the machine's id: one agent runs per node, and the id must be the same after a restart, or
/// every series would begin anew. In a pod the host's name is the node's, since the pod's own changes with each pod.
pub fn attributes(facts: &HostFacts, service_name: &str, told: &[(String, String)]) -> Vec<(String, String)> {
    let host_name = facts.node_name.as_ref().or(facts.hostname.as_ref());
    let arch = match facts.machine.as_str() {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let found = [
        ("service.name", Some(service_name)),
        ("service.instance.id", facts.machine_id.as_ref().or(host_name).map(String::as_str)),
        ("service.version", Some(env!("CARGO_PKG_VERSION"))),
        ("host.name", host_name.map(String::as_str)),
        ("host.id", facts.machine_id.as_deref()),
        ("host.arch", Some(arch).filter(|arch| !arch.is_empty())),
        ("os.type", Some("linux")),
        ("k8s.node.name", facts.node_name.as_deref()),
    ];
    let found = found.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    let mut attributes: Vec<(String, String)> = found.collect();
    // The service's name has a variable of its own, which wins; it was resolved before.
    for (name, value) in told.iter().filter(|(name, _)| name != "service.name") {
        match attributes.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => known.clone_from(value),
            None => attributes.push((name.clone(), value.clone())),
        }
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> HostFacts {
        HostFacts {
            machine_id: Some("0123456789abcdef0123456789abcdef".into()),
            hostname: Some("agent-x7k2p".into()),
            machine: "x86_64".into(),
            node_name: Some("node-3".into()),
            boot_id: None,
        }
    }

    fn get<'a>(attributes: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let mut found = attributes.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let first = found.next();
        assert_eq!(found.next(), None, "{name} is there twice");
        first
    }

    #[test]
    fn the_instance_is_the_machine_and_a_pods_host_is_its_node() {
        let attributes = attributes(&facts(), "warpgauge", &[]);
        for (name, want) in [
            ("service.name", "warpgauge"),
            ("service.instance.id", "0123456789abcdef0123456789abcdef"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("host.id", "0123456789abcdef0123456789abcdef"),
            ("host.name", "node-3"),
            ("k8s.node.name", "node-3"),
            ("host.arch", "amd64"),
            ("os.type", "linux"),
        ] {
            assert_eq!(get(&attributes, name), Some(want), "{name}");
        }
    }

    #[test]
    fn what_the_operator_sets_wins_and_what_is_unknown_is_absent() {
        let told = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let told = [told("host.name", "h"), told("k8s.cluster.name", "c"), told("service.name", "other")];
        let facts = HostFacts { machine_id: None, node_name: None, ..facts() };
        let attributes = attributes(&facts, "warpgauge", &told);
        assert_eq!(get(&attributes, "host.name"), Some("h"));
        assert_eq!(get(&attributes, "k8s.cluster.name"), Some("c"));
        assert_eq!(get(&attributes, "service.name"), Some("warpgauge"), "resolved from its own variable");
        assert_eq!(get(&attributes, "service.instance.id"), Some("agent-x7k2p"));
        assert_eq!((get(&attributes, "host.id"), get(&attributes, "k8s.node.name")), (None, None));
    }

    #[test]
    fn this_machine_has_a_name_and_a_boot_id() {
        let facts = HostFacts::read(&HostRoot::default(), |_| Some(String::new()));
        assert!(facts.hostname.is_some() && facts.boot_id.is_some(), "{facts:?}");
        assert_eq!(facts.node_name, None, "empty is unset");
    }
}
