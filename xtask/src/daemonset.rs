//! What `deploy/daemonset.yaml` gives the agent: mounts, environment, arguments.
//!
//! In: the manifest, which `tests/kubernetes` checks against Kubernetes' own types. Out: [`Pod`].
//! What can go wrong: something that `cargo xtask image run` cannot do as a kubelet would; it is refused, not passed over.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// A directory of the host, and where the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// On the host.
    pub(crate) source: String,
    /// In the image.
    pub(crate) place: String,
    /// Nothing may be written through it.
    pub(crate) read_only: bool,
    /// The kubelet makes it where it is missing.
    pub(crate) create: bool,
    /// What the host mounts below it later is seen too.
    pub(crate) follows: bool,
}

/// What the agent's container gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) mounts: Vec<Mount>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) args: Vec<String>,
    /// The file system of the image is read-only.
    pub(crate) read_only: bool,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

#[derive(Deserialize)]
struct DaemonSet {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    template: Template,
}

#[derive(Deserialize)]
struct Template {
    spec: RawPod,
}

/// A key that says nothing about how a process runs here.
type Passed = Option<serde::de::IgnoredAny>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPod {
    #[serde(default, rename = "hostPID")]
    host_pid: bool,
    containers: Vec<Container>,
    #[serde(default)]
    volumes: Vec<Volume>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Container {
    #[serde(default, rename = "name")]
    _name: Passed,
    #[serde(default, rename = "image")]
    _image: Passed,
    #[serde(default, rename = "resources")]
    _resources: Passed,
    #[serde(default, rename = "terminationMessagePath")]
    _termination_message_path: Passed,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
    security_context: Security,
    #[serde(default)]
    volume_mounts: Vec<VolumeMount>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Security {
    #[serde(default)]
    run_as_user: u32,
    #[serde(default)]
    privileged: bool,
    #[serde(default)]
    read_only_root_filesystem: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Variable {
    name: String,
    value: Option<String>,
    value_from: Option<ValueFrom>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ValueFrom {
    field_ref: FieldRef,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FieldRef {
    field_path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VolumeMount {
    #[serde(default)]
    mount_propagation: Propagation,
    name: String,
    mount_path: String,
    #[serde(default)]
    read_only: bool,
}

/// `Bidirectional` would mount on the host, and is refused.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum Propagation {
    #[default]
    None,
    HostToContainer,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    name: String,
    host_path: Option<HostPath>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostPath {
    path: String,
    #[serde(default, rename = "type")]
    kind: String,
}

/// Reads the manifest. `node` answers the fields of a pod that only a cluster knows, such as `spec.nodeName`.
pub(crate) fn read(manifest: &str, node: impl Fn(&str) -> Option<String>) -> Result<Pod> {
    let is_daemonset =
        |text: &&str| serde_saphyr::from_str::<Kind>(text).is_ok_and(|k| k.kind == "DaemonSet");
    let document = manifest.split("\n---\n").find(is_daemonset).context("no DaemonSet in the manifest")?;
    let daemonset: DaemonSet = serde_saphyr::from_str(document).context("the DaemonSet")?;
    let RawPod { host_pid, mut containers, volumes } = daemonset.spec.template.spec;
    let container = containers.pop().context("no container")?;
    if !containers.is_empty() {
        bail!("more than one container");
    }
    if !host_pid || !container.security_context.privileged {
        bail!("only a privileged pod in the host's pid namespace can be run here");
    }
    if container.security_context.run_as_user != 0 {
        bail!("only a pod of root can be run here");
    }
    let mounts = container.volume_mounts.iter().map(|mount| {
        let volume = volumes.iter().find(|volume| volume.name == mount.name);
        let host = volume.and_then(|volume| volume.host_path.as_ref());
        let host = host.with_context(|| format!("volume {} is none of the host's", mount.name))?;
        Ok(Mount {
            source: host.path.clone(),
            place: mount.mount_path.clone(),
            read_only: mount.read_only,
            create: host.kind == "DirectoryOrCreate",
            follows: mount.mount_propagation == Propagation::HostToContainer,
        })
    });
    Ok(Pod {
        mounts: mounts.collect::<Result<_>>()?,
        env: environment(&container.env, node)?,
        args: container.args,
        read_only: container.security_context.read_only_root_filesystem,
    })
}

/// As Kubernetes does it: `$(NAME)` is replaced by what was defined before.
fn environment(
    variables: &[Variable],
    node: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String)>> {
    let mut env: Vec<(String, String)> = Vec::new();
    for Variable { name, value, value_from } in variables {
        let value = match (value, value_from) {
            (Some(text), None) => env
                .iter()
                .fold(text.clone(), |text, (name, value)| text.replace(&format!("$({name})"), value)),
            (None, Some(from)) => node(&from.field_ref.field_path)
                .with_context(|| format!("{name}: {} is not known here", from.field_ref.field_path))?,
            _ => bail!("{name}: neither a value nor a field"),
        };
        env.push((name.clone(), value));
    }
    Ok(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(field: &str) -> Option<String> {
        (field == "status.hostIP").then(|| "10.0.0.7".to_owned())
    }

    const MANIFEST: &str = "kind: Namespace\n---\nkind: DaemonSet\nspec:\n  template:\n    spec:\n      hostPID: true\n      \
        containers:\n      - args: [run]\n        env:\n        - {name: IP, valueFrom: {fieldRef: {fieldPath: \
        status.hostIP}}}\n        - {name: TO, value: 'http://$(IP):4317'}\n        securityContext: {privileged: \
        true, readOnlyRootFilesystem: true}\n        volumeMounts:\n        - {name: sys, mountPath: /host/sys, \
        readOnly: true, mountPropagation: HostToContainer}\n        - {name: state, mountPath: /state}\n      volumes:\n      - {name: sys, hostPath: \
        {path: /sys}}\n      - {name: state, hostPath: {path: /var/state, type: DirectoryOrCreate}}\n";

    #[test]
    fn mounts_and_environment_are_as_a_kubelet_makes_them() {
        let pod = read(MANIFEST, node).expect("a pod");
        let mount = |source: &str, place: &str, read_only: bool| Mount {
            source: source.to_owned(),
            place: place.to_owned(),
            read_only,
            create: !read_only,
            follows: read_only,
        };
        assert_eq!(pod.mounts, [mount("/sys", "/host/sys", true), mount("/var/state", "/state", false)]);
        let env = [("IP", "10.0.0.7"), ("TO", "http://10.0.0.7:4317")];
        assert_eq!(pod.env, env.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!((pod.args, pod.read_only), (vec!["run".to_owned()], true));
    }

    #[test]
    fn what_cannot_be_done_here_is_refused() {
        for (from, to, words) in [
            ("hostPID: true", "hostPID: false", "pid namespace"),
            ("privileged: true", "privileged: false", "privileged"),
            ("status.hostIP", "status.podIP", "status.podIP"),
            ("kind: DaemonSet", "kind: Deployment", "no DaemonSet"),
            ("args: [run]", "args: [run]\n        livenessProbe: {}", "livenessProbe"),
            ("readOnly: true,", "readOnly: true, subPath: class,", "subPath"),
            ("HostToContainer", "Bidirectional", "Bidirectional"),
            ("privileged: true", "privileged: true, runAsUser: 1000", "root"),
            ("hostPath: {path: /sys}", "emptyDir: {}", "volume sys"),
        ] {
            assert!(MANIFEST.contains(from), "{from}");
            let error = read(&MANIFEST.replace(from, to), node).expect_err(to);
            assert!(format!("{error:#}").contains(words), "{to}: {error:#}");
        }
    }
}
