//! A kubelet made of Kubernetes' own code, for the tests: `tests/kubernetes/kubelet-judge`.
//!
//! In: its Go package. Out: `target/kubernetes/kubelet-judge`. What can go wrong: see [`crate::go`].

use std::path::PathBuf;

use crate::go::Program;

const JUDGE: Program = Program {
    title: "the kubelet of Kubernetes' own code",
    module: "tests/kubernetes",
    package: "./kubelet-judge",
    binary: "target/kubernetes/kubelet-judge",
};

/// The program; `None` where it cannot be built, which is said.
pub(crate) fn build() -> Option<PathBuf> {
    JUDGE.build()
}
