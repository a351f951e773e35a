//! The shipped Kubernetes manifest, by Kubernetes' own types and decoder; and that these refuse what they must.

use std::fs;
use std::process::Command;

use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::needs;

fn manifest() -> String {
    fs::read_to_string(programs::workspace().join("deploy/daemonset.yaml")).unwrap()
}

/// Whether it is accepted, and what is said.
fn check(scratch: &Scratch, manifest: &str) -> (bool, String) {
    let file = scratch.path().join("manifest.yaml");
    fs::write(&file, manifest).unwrap();
    let done = Command::new(programs::manifest_check()).arg(&file).output().unwrap();
    (done.status.success(), String::from_utf8(done.stdout).unwrap())
}

#[test]
fn the_daemonset_is_as_kubernetes_wants_it() {
    needs!(ManifestCheck);
    let scratch = Scratch::new("manifest");
    assert_eq!(check(&scratch, &manifest()), (true, String::new()));
    let with_options = manifest().replace("#: ", "");
    assert!(with_options.contains("\n            - name: WARPGAUGE_CONFIG\n"), "{with_options}");
    assert_eq!(check(&scratch, &with_options), (true, String::new()), "with every option");
}

#[test]
fn what_an_api_server_would_refuse_is_refused() {
    needs!(ManifestCheck);
    let scratch = Scratch::new("manifests");
    for (from, to, words) in [
        ("hostPID: true", "hostPid: true", "unknown field \"spec.template.spec.hostPid\""),
        ("readOnlyRootFilesystem:", "readonlyRootFilesystem:", "unknown field"),
        ("hostPID: true", "hostPID: \"true\"", "cannot unmarshal string"),
        (
            "terminationGracePeriodSeconds: 15",
            "terminationGracePeriodSeconds: 15s",
            "cannot unmarshal string",
        ),
        ("args: [run]", "args: run", "cannot unmarshal string"),
        ("cpu: 50m", "cpu: fifty", "quantities must match"),
        ("hostPID: true", "hostPID: true\n      hostPID: true", "already set"),
        ("memory: 128Mi", "memory: 512Mi", "more than the limit"),
        (
            "        - name: dev\n          hostPath",
            "        - name: device\n          hostPath",
            "no volume \"dev\"",
        ),
        (
            "      labels:\n        app.kubernetes.io/name: warpgauge",
            "      labels:\n        app: x",
            "selector",
        ),
        ("operator: Exists", "operator: Exist", "is none of"),
        ("type: DirectoryOrCreate", "type: CreateDirectory", "is none of"),
        ("fieldPath: spec.nodeName", "fieldPath: spec.node", "is none of"),
        ("serviceAccountName: warpgauge", "serviceAccountName: other", "is not in this file"),
        ("kind: DaemonSet", "kind: DeamonSet", "no kind \"DeamonSet\""),
        ("- name: warpgauge\n          image", "- name: Warp_gauge\n          image", "RFC 1123"),
    ] {
        let text = manifest();
        assert!(text.contains(from), "{from}: the manifest has changed");
        let (accepted, said) = check(&scratch, &text.replacen(from, to, 1));
        assert!(!accepted && said.contains(words), "{to}: {said}");
    }
    assert!(!check(&scratch, "").0, "nothing is not a manifest");
}
