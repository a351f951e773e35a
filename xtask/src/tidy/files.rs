//! Size, header and name of each Rust file, and where `unsafe` may stand.
//!
//! In: one file. Out: complaints. Nothing can go wrong.

use super::Source;

const LINES_MAX: usize = 400;
const NAMES_REFUSED: [&str; 8] = ["utils", "util", "helpers", "common", "types", "consts", "misc", "manager"];
/// Where `unsafe` may stand: the C library's client, the kernel programs, and in tests the simulators, the VM's init
/// and the process that makes real ioctls.
const UNSAFE_ALLOWED: [&str; 6] =
    ["dcgm-ffi/", "agent-ebpf/", "tests/dcgm-sim/", "tests/nvml-sim/", "tests/vm-init", "tests/victim/"];

pub(super) fn check(file: &Source) -> Vec<String> {
    let name = file.name();
    let mut complaints = Vec::new();
    let lines = file.text.lines().count();
    if LINES_MAX < lines {
        complaints.push(format!("{name}: {lines} lines, limit {LINES_MAX}: split it by what it is about"));
    }
    if !file.text.starts_with("//!") {
        complaints
            .push(format!("{name}:1: begins without a //! header: what comes in, goes out, can go wrong"));
    }
    let stem = file.path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    if NAMES_REFUSED.contains(&stem.as_str()) {
        complaints.push(format!("{name}: name it after the thing it holds, not after a kind of code"));
    }
    if !UNSAFE_ALLOWED.iter().any(|place| name.starts_with(place)) {
        let is_unsafe = |line: &str| {
            let code = line.split("//").next().unwrap_or_default();
            ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"].iter().any(|word| code.contains(word))
        };
        let found = file.text.lines().enumerate().filter(|(_, line)| is_unsafe(line) && !line.contains('"'));
        complaints.extend(found.map(|(at, _)| format!("{name}:{}: unsafe has no place here", at + 1)));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_complains() {
        let bad = |path: &str, text: &str| check(&Source { path: path.into(), text: text.into() }).len();
        assert_eq!(bad("agent/src/xid.rs", "//! An XID.\n"), 0);
        assert_eq!(bad("agent/src/xid.rs", "use std::io;\n"), 1, "header");
        assert_eq!(bad("agent/src/utils.rs", "//! Things.\n"), 1, "name");
        assert_eq!(bad("agent/src/xid.rs", &format!("//! Long.\n{}", "\n".repeat(400))), 1, "size");
        let unsafe_text = "//! It.\nfn f() { un".to_owned() + "safe { g() } }\n";
        assert_eq!(bad("agent/src/xid.rs", &unsafe_text), 1, "unsafe");
        assert_eq!(bad("dcgm-ffi/src/raw.rs", &unsafe_text), 0, "its place");
    }
}
