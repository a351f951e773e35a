//! What is asked of the kubelet, as checked; and the section `kubelet:` of the configuration file.
//!
//! In: YAML, or a flag's text. Out: [`KubeletConfig`], and every problem with its line.
//! What can go wrong: a socket that is no absolute path, a time out of its range, a name that no resource can have.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::document::{Problems, Section};
use super::file::{set, time};
use super::limits;

/// Most names in `resource_names`.
pub const NAMES_MAX: usize = 64;
/// Longest of them: a domain, a slash and a name. Unit: bytes.
const NAME_MAX: usize = 317;
/// Longest path of a socket, without the closing 0. Source: unix(7).
const PATH_MAX: usize = 107;

/// What is asked of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletConfig {
    /// Socket of its PodResources service; `None` asks nobody.
    pub socket: Option<PathBuf>,
    /// How often it is asked where nothing happens. Range: 1 s to 1 h.
    pub interval: Duration,
    /// How long one call may take before it is called slow. Range: 100 ms to 60 s.
    pub timeout: Duration,
    /// Resources and DRA drivers that are NVIDIA's beside `nvidia.com/*`; `*` stands for any text.
    pub resource_names: Vec<String>,
}

impl Default for KubeletConfig {
    fn default() -> Self {
        Self {
            socket: Some("/var/lib/kubelet/pod-resources/kubelet.sock".into()),
            interval: Duration::from_secs(15),
            timeout: Duration::from_secs(10),
            resource_names: Vec::new(),
        }
    }
}

/// Takes what the section says.
pub(super) fn check(mut section: Section, config: &mut KubeletConfig, problems: &mut Problems) {
    set(&mut config.socket, section.parsed("socket", problems, check_socket));
    set(&mut config.interval, time(&mut section, "interval", limits::KUBELET, problems));
    set(&mut config.timeout, time(&mut section, "timeout", limits::KUBELET_CALL, problems));
    if let Some((line, names)) = section.texts("resource_names", problems) {
        if NAMES_MAX < names.len() {
            let problem = format!("{} names: must be at most {NAMES_MAX}", names.len());
            problems.add(line, "kubelet.resource_names", problem);
        }
        for name in &names {
            check_name(&name.value).unwrap_or_else(|problem| problems.add(name.line, &name.path, problem));
        }
        config.resource_names = names.into_iter().map(|name| name.value).collect();
    }
    section.end(problems);
}

/// A socket's path, with or without `unix://`; `off` for none.
pub(super) fn check_socket(text: &str) -> Result<Option<PathBuf>, String> {
    if text == "off" {
        return Ok(None);
    }
    let path = Path::new(text.strip_prefix("unix://").unwrap_or(text));
    if path.is_absolute() && path.as_os_str().len() <= PATH_MAX && !text.contains('\0') {
        return Ok(Some(path.to_path_buf()));
    }
    Err(format!("{text}: must be an absolute path of at most {PATH_MAX} bytes, or off"))
}

/// Names as dcgm-exporter's variable has them, separated by commas.
pub(super) fn check_names(names: Vec<String>) -> Result<Vec<String>, String> {
    let names: Vec<String> =
        names.iter().map(|name| name.trim().to_owned()).filter(|n| !n.is_empty()).collect();
    if NAMES_MAX < names.len() {
        return Err(format!("{} names: must be at most {NAMES_MAX}", names.len()));
    }
    names.iter().try_for_each(|name| check_name(name))?;
    Ok(names)
}

fn check_name(name: &str) -> Result<(), String> {
    let is_right = |b: u8| b.is_ascii_alphanumeric() || b"-_./*".contains(&b);
    if (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_right) && name.bytes().any(|b| b != b'*') {
        return Ok(());
    }
    Err(format!("{name}: must be a resource's name such as example.com/gpu; * stands for any text"))
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::super::file::apply_text;
    use super::*;

    fn read(text: &str) -> (KubeletConfig, Vec<String>) {
        let (mut config, mut problems) = (Config::default(), Vec::new());
        apply_text("w.yaml", text, &mut config, &mut problems);
        (config.kubelet, problems)
    }

    #[test]
    fn every_key_arrives() {
        let (config, problems) = read(
            "kubelet: {socket: 'unix:///k.sock', interval: 30s, timeout: 1s, resource_names: [corp/*, a100]}\n",
        );
        let want = KubeletConfig {
            socket: Some("/k.sock".into()),
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(1),
            resource_names: vec!["corp/*".to_owned(), "a100".to_owned()],
        };
        assert_eq!((config, problems), (want, vec![]));
        let (config, problems) = read("kubelet: {socket: off}\n");
        assert_eq!((config.socket, problems), (None, vec![]));
    }

    #[test]
    fn every_problem_is_named_with_its_line() {
        let long = "/".repeat(PATH_MAX + 1);
        let (_, problems) = read(&format!(
            "kubelet:\n  socket: {long}\n  interval: 1ms\n  timeout: 2m\n  resource_names: [a b, '*', é]\n"
        ));
        let starts: Vec<_> = problems.iter().filter_map(|p| Some(p.split_once(": must")?.0)).collect();
        let want = [
            &format!("w.yaml:2: kubelet.socket: {long}"),
            "w.yaml:3: kubelet.interval: 1ms",
            "w.yaml:4: kubelet.timeout: 2m",
            "w.yaml:5: kubelet.resource_names: a b",
            "w.yaml:5: kubelet.resource_names: *",
            "w.yaml:5: kubelet.resource_names: é",
        ];
        assert_eq!(starts, want, "{problems:#?}");
        for bad in ["", "kubelet.sock", "unix://", "http://localhost"] {
            assert!(check_socket(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_the_environment_may_have_spaces_and_commas_at_will() {
        let names = ["example.com/gpu", " a100 ", ""].map(str::to_owned).to_vec();
        assert_eq!(check_names(names), Ok(vec!["example.com/gpu".to_owned(), "a100".to_owned()]));
        assert!(check_names(vec!["a b".to_owned()]).is_err());
        assert!(check_names(vec!["a".to_owned(); NAMES_MAX + 1]).is_err());
    }
}
