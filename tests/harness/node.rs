//! A node with simulated GPUs: the vendors' libraries are the simulators', the rest is this machine.
//!
//! In: a scenario of `tests/fixtures/scenarios` (or its text). Out: a configuration file that names the simulators, and
//! an agent to start on it; [`Node::now`] changes the node while it runs. The default configuration has no probes and
//! no kernel log: a test that wants them says so.
//! What can go wrong: the simulators were not built.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use super::agent::Setup;
use super::programs;
use super::scratch::Scratch;

/// `warpgauge WORDS…` with nothing inherited that would configure it.
pub fn bare_command(words: &[&str]) -> Command {
    let mut command = Command::new(programs::agent());
    for (name, _) in std::env::vars_os() {
        if ["OTEL_", "WARPGAUGE_"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    command.args(words);
    command
}

/// A simulated node.
#[derive(Debug)]
pub struct Node {
    scratch: Scratch,
    scenario: PathBuf,
    start: String,
}

impl Node {
    /// The node of `tests/fixtures/scenarios/NAME.yaml`, which begins now.
    ///
    /// # Panics
    /// When there is no such scenario.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn new(test: &str, name: &str) -> Self {
        let path = programs::workspace().join(format!("tests/fixtures/scenarios/{name}.yaml"));
        Self::of_text(test, &std::fs::read_to_string(path).expect("a scenario"))
    }

    /// The node of a scenario's text.
    ///
    /// # Panics
    /// When the disk is full.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn of_text(test: &str, text: &str) -> Self {
        let _built = programs::agent(); // building takes longer than a scenario may wait
        let scratch = Scratch::new(test);
        let scenario = scratch.path().join("scenario.yaml");
        std::fs::write(&scenario, text).expect("a scenario file");
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        Self { scratch, scenario, start: format!("{:.3}", since.as_secs_f64()) }
    }

    /// A moment of the scenario. Unit: s since its begin → ns since 1970.
    ///
    /// # Panics
    /// Never: it is a number.
    #[expect(clippy::expect_used, reason = "true by construction")]
    pub fn moment(&self, seconds: f64) -> f64 {
        (self.start.parse::<f64>().expect("a number") + seconds) * 1e9
    }

    /// Its folder, with the agent's log and state.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// What is so from now on, beside the scenario: the whole content of its `.now` file. Empty text ends it.
    ///
    /// # Panics
    /// When the disk is full.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn now(&self, text: &str) {
        let (now, new) = (self.scratch.path().join("scenario.yaml.now"), self.scratch.path().join("now.new"));
        // In one step: the simulator must not read half of it.
        std::fs::write(&new, text).expect("a file for now");
        std::fs::rename(new, now).expect("a file for now");
    }

    /// An agent on this node. `worker` are lines of the section `worker:` beside the libraries, such as `engine: embedded`.
    ///
    /// # Panics
    /// When the disk is full.
    pub fn agent(&self, worker: &str) -> Setup {
        self.with(&self.configuration("probes: {enabled: false}\nkernel_log: {enabled: false}\n", worker))
    }

    /// The same with this machine's probes and kernel log.
    ///
    /// # Panics
    /// When the disk is full.
    pub fn watching(&self, worker: &str) -> Setup {
        self.with(&self.configuration("", worker))
    }

    fn with(&self, config: &Path) -> Setup {
        Setup::new(self.scratch.path())
            .args(&["--config", &config.to_string_lossy()])
            .env("WARPGAUGE_SIM_SCENARIO", &self.scenario.to_string_lossy())
            .env("WARPGAUGE_SIM_START", &self.start)
    }

    /// `warpgauge WORDS…` on this node, such as `doctor --json`, with the agent's configuration and folders.
    ///
    /// # Panics
    /// When the disk is full.
    pub fn command(&self, words: &[&str], worker: &str) -> Command {
        let config = self.configuration("", worker);
        let mut command = bare_command(words);
        command.arg("--config").arg(config);
        command.args(["--probes", "off", "--kernel-log", "off"]);
        command
            .arg("--state-dir")
            .arg(self.path().join("state"))
            .arg("--run-dir")
            .arg(self.path().join("run"));
        command.env("WARPGAUGE_SIM_SCENARIO", &self.scenario).env("WARPGAUGE_SIM_START", &self.start);
        command
    }

    /// The configuration file.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    fn configuration(&self, sections: &str, worker: &str) -> PathBuf {
        let mut text = format!("{sections}worker:\n");
        for (key, library) in [("dcgm_library", programs::dcgm_sim()), ("nvml_library", programs::nvml_sim())]
        {
            // A test may name another one, or none that is there.
            if !worker.contains(key) {
                text.push_str(&format!("  {key}: {}\n", library.display()));
            }
        }
        for line in worker.lines() {
            text.push_str(&format!("  {line}\n"));
        }
        let config = self.scratch.path().join("warpgauge.yaml");
        std::fs::write(&config, text).expect("a configuration");
        config
    }

    /// An agent on this node with a configuration of its own, whose section `worker:` gets the libraries.
    ///
    /// # Panics
    /// When the disk is full.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn configured(&self, text: &str) -> Setup {
        let libraries = format!(
            "worker:\n  dcgm_library: {}\n  nvml_library: {}\n",
            programs::dcgm_sim().display(),
            programs::nvml_sim().display()
        );
        let config = self.scratch.path().join("warpgauge.yaml");
        std::fs::write(&config, text.replacen("worker:\n", &libraries, 1)).expect("a configuration");
        self.with(&config)
    }
}
