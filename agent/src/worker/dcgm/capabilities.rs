//! What this engine can do here: its modules, and on which GPUs it profiles.
//!
//! In: an open session. Out: one JSON object, the first line of the answer to `warpgauge fields`, which `doctor` reads.
//! What can go wrong: the engine refuses a question; then the answer is the code's name.

use serde_json::{Value as Json, json};

use super::engine::{Answer, Dcgm, GpuState, ModuleState};
use super::inventory::unless_gone;
use super::readings::of_code;
use super::session::Session;
use super::state;
use crate::model::Absence;

impl<D: Dcgm> Session<'_, D> {
    /// Library, engine, modules, profiling by GPU.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn capabilities(&self) -> Answer<Json> {
        let modules = unless_gone(self.caller.call("dcgmModuleGetStatuses", "", D::modules))?;
        let modules: Vec<Json> =
            modules.iter().map(|m| json!({ "name": m.name, "state": module_state(m.state) })).collect();
        let mut profiling = Vec::new();
        let mut nameless = Vec::new();
        for &(gpu, state) in &self.found.gpus {
            let Some(hw_id) = self.name_of(gpu) else {
                nameless.push(json!({ "id": gpu, "lost": state == GpuState::Lost }));
                continue;
            };
            let groups =
                self.caller.call("dcgmProfGetSupportedMetricGroups", &hw_id, |d| d.metric_groups(gpu));
            let refused = match groups {
                Ok(groups) if groups.is_empty() => Some(Absence::NotSupported),
                Ok(_) => None,
                Err(code) => {
                    unless_gone::<()>(Err(code))?;
                    Some(of_code(code))
                }
            };
            profiling.push(json!({
                "device": hw_id,
                "state": if refused.is_none() { "yes" } else { "no" },
                "reason": refused.map(Absence::name),
                "remedy": refused.map(state::profiling_remedy),
            }));
        }
        Ok(json!({ "capabilities": {
            "library": self.task.library, "version": self.task.version,
            "modules": modules, "profiling": profiling, "paused": self.profiling.paused.is_some(),
            "nameless": nameless,
        }}))
    }

    fn name_of(&self, gpu: u32) -> Option<String> {
        let target = self.found.targets.get(&super::engine::Entity::gpu(gpu))?;
        Some(target.hw_id.to_string())
    }
}

/// The word for a module's state.
fn module_state(state: ModuleState) -> &'static str {
    match state {
        ModuleState::NotLoaded => "not_loaded",
        ModuleState::Denylisted => "denylisted",
        ModuleState::Failed => "failed",
        ModuleState::Loaded => "loaded",
        ModuleState::Unloaded => "unloaded",
        ModuleState::Paused => "paused",
        ModuleState::Reloadable => "reloadable",
        ModuleState::Other(_) => "unknown",
    }
}
