//! What the worker is told, from the configuration; and the little that only /proc knows of the driver.
//!
//! In: the configuration. Out: the first order. What can go wrong: a path that is no text; it is left out, and the
//! library is looked for by name.

use std::path::Path;
use std::time::Duration;

use crate::config::WorkerConfig;
use crate::host::HostRoot;
use crate::model::MonoNs;
use crate::wire::order::{Configure, Group};

/// How long host engines are left out after one hung while it was connected to.
const LEFT_OUT: Duration = Duration::from_secs(300);
/// Names of the calls that connect to one.
const CONNECTS: &str = "dcgmConnect";
/// All host engines: the address that hung is not known.
const ALL: &str = "*";

/// What a new worker has to know of the earlier ones.
#[derive(Debug, Default)]
pub struct Before {
    /// Profiling is paused, by order.
    pub paused: bool,
    connect_hung: Option<MonoNs>,
}

impl Before {
    /// A worker is ended at `now`, because this call hangs.
    pub fn hung(&mut self, now: MonoNs, call: &str) {
        if call.starts_with(CONNECTS) {
            self.connect_hung = Some(now);
        }
    }

    /// The first order to a worker that starts at `now`.
    pub fn configure(&self, now: MonoNs, config: &WorkerConfig, host: &HostRoot) -> Configure {
        let since = self.connect_hung.and_then(|hung| now.since(hung));
        let skip = since.filter(|since| *since < LEFT_OUT).map(|_| ALL.to_owned());
        Configure { paused: self.paused, skip: skip.into_iter().collect(), ..configure(config, host) }
    }
}

/// The first order, to a worker that had none before it.
pub fn configure(config: &WorkerConfig, host: &HostRoot) -> Configure {
    let path = |path: Option<&Path>| path.and_then(Path::to_str).unwrap_or_default().to_owned();
    Configure {
        dcgm: config.dcgm,
        engine: config.engine.clone(),
        dcgm_library: path(config.dcgm_library.as_deref()),
        nvml: config.nvml,
        nvml_library: path(config.nvml_library.as_deref()),
        nvml_interval_ms: ms(config.nvml_interval),
        groups: config
            .groups
            .iter()
            .map(|group| Group {
                name: group.name.clone(),
                interval_ms: ms(group.interval),
                fields: group.fields.clone(),
            })
            .collect(),
        health_interval_ms: ms(config.health_interval),
        only_look: false,
        sysfs: path(Some(&host.sys)),
        paused: false,
        skip: Vec::new(),
    }
}

fn ms(interval: Duration) -> u64 {
    u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)
}

/// `open` or `proprietary`, by the text that the loaded module gives of itself.
pub fn driver_flavour(host: &HostRoot) -> Option<String> {
    let text = std::fs::read_to_string(host.proc("driver/nvidia/version")).ok()?;
    let first = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    Some(if first.contains("Open Kernel Module") { "open" } else { "proprietary" }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::test_dir::TestDir;

    #[test]
    fn the_default_configuration_is_told_as_it_is() {
        let order = configure(&Config::default().worker, &HostRoot::default());
        let groups: Vec<_> = order.groups.iter().map(|group| (&*group.name, group.interval_ms)).collect();
        let want = [("performance", 1_000), ("profiling", 1_000), ("errors", 5_000), ("identity", 60_000)];
        assert_eq!(groups, want);
        assert!(order.groups[0].fields.contains(&"100".to_owned()));
        assert_eq!((order.dcgm, order.nvml, &*order.engine, &*order.sysfs), (true, true, "auto", "/sys"));
        assert_eq!((order.nvml_interval_ms, order.health_interval_ms), (1_000, 30_000));
        assert_eq!((&*order.dcgm_library, order.only_look), ("", false));
    }

    #[test]
    fn a_new_worker_knows_of_the_pause_and_leaves_out_what_hung_lately() {
        let (config, host) = (Config::default().worker, HostRoot::default());
        let s = |s: u64| MonoNs(s * 1_000_000_000);
        let mut before = Before::default();
        let told = |before: &Before, now| {
            let order = before.configure(now, &config, &host);
            (order.paused, order.skip)
        };
        before.hung(s(10), "dcgmGetLatestValues_v2");
        assert_eq!(told(&before, s(11)), (false, vec![]));
        before.paused = true;
        before.hung(s(10), "dcgmConnect_v2");
        assert_eq!(told(&before, s(11)), (true, vec!["*".to_owned()]));
        assert_eq!(told(&before, s(309)), (true, vec!["*".to_owned()]));
        assert_eq!(told(&before, s(310)), (true, vec![]), "it is tried again");
    }

    #[test]
    fn the_driver_says_which_flavour_it_is() {
        let dir = TestDir::new();
        let host = HostRoot { proc: dir.path().to_path_buf(), ..HostRoot::default() };
        assert_eq!(driver_flavour(&host), None);
        std::fs::create_dir_all(dir.path().join("driver/nvidia")).unwrap();
        for (line, want) in [
            ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.142  Release Build", "open"),
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54  Fri Feb 23", "proprietary"),
        ] {
            std::fs::write(host.proc("driver/nvidia/version"), format!("{line}\nGCC version:\n")).unwrap();
            assert_eq!(driver_flavour(&host).as_deref(), Some(want));
        }
    }
}
