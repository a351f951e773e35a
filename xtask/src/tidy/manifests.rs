//! Versions of dependencies stand in one place: the root manifest.
//!
//! In: one Cargo.toml. Out: complaints about dependencies that do not point there. Nothing can go wrong.

use super::Source;

pub(super) fn check(file: &Source) -> Vec<String> {
    let name = file.name();
    if name == "Cargo.toml" {
        return Vec::new();
    }
    let mut in_dependencies = false;
    let mut complaints = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            in_dependencies = line.trim_end_matches(']').ends_with("dependencies");
        } else if in_dependencies
            && line.contains('=')
            && !line.starts_with('#')
            && !line.contains("workspace = true")
        {
            let number = at + 1;
            complaints
                .push(format!("{name}:{number}: must be `workspace = true`; the version goes to the root"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_outside_the_root_are_refused() {
        let text = "[package]\nversion = \"1\"\n[dependencies]\na.workspace = true\nb = \"1\"\n\
                    [target.'cfg(x)'.dev-dependencies]\nc = { path = \"c\" }\n";
        let check = |path: &str| check(&Source { path: path.into(), text: text.into() }).len();
        assert_eq!((check("agent/Cargo.toml"), check("Cargo.toml")), (2, 0));
    }
}
