//! What the driver says when one field of one entity is read at a time.
//!
//! In: the node, an entity, a field and a time. Out: the answer as the engine would store it. What can go wrong:
//! an entity that does not exist is `None`. Losses of a whole GPU are the engine's business, not the driver's.

use crate::answer::{Answer, Sentinel, Value};
use crate::catalog::{FieldRow, Level, Usual};
use crate::fault::Fault;
use crate::node::{Gpu, INSTANCES_MAX, Mig};
use crate::plan::FieldPlan;
use crate::world::World;

/// DCGM's numbers of the entity groups.
pub mod group {
    /// Global.
    pub const NONE: u32 = 0;
    /// GPU.
    pub const GPU: u32 = 1;
    /// NVSwitch.
    pub const SWITCH: u32 = 3;
    /// GPU instance.
    pub const GPU_INSTANCE: u32 = 4;
    /// Compute instance.
    pub const COMPUTE_INSTANCE: u32 = 5;
    /// Link.
    pub const LINK: u32 = 6;
    /// CPU.
    pub const CPU: u32 = 7;
    /// CPU core.
    pub const CPU_CORE: u32 = 8;
}

impl World {
    /// Number of the GPU that `entity` is, or is a part of.
    pub fn gpu_of(&self, (group, id): (u32, u32)) -> Option<u32> {
        let gpu = match group {
            group::GPU => id,
            group::GPU_INSTANCE | group::COMPUTE_INSTANCE => id / INSTANCES_MAX,
            group::LINK if id & 0xff == group::GPU => id >> 24,
            _ => return None,
        };
        self.gpu(gpu).map(|_| gpu)
    }

    /// The instance that `entity` is.
    pub fn instance(&self, (group, id): (u32, u32), t_us: i64) -> Option<&Mig> {
        if !matches!(group, group::GPU_INSTANCE | group::COMPUTE_INSTANCE) {
            return None;
        }
        self.mig(id / INSTANCES_MAX, t_us)?.get((id % INSTANCES_MAX) as usize).copied()
    }

    /// Whether the engine knows the entity.
    pub fn exists(&self, entity: (u32, u32), t_us: i64) -> bool {
        let (group, id) = entity;
        match group {
            group::GPU => self.gpu(id).is_some(),
            group::SWITCH => self.scenario().switches.iter().any(|s| s.id == id),
            group::GPU_INSTANCE | group::COMPUTE_INSTANCE => self.instance(entity, t_us).is_some(),
            group::LINK => {
                let owner = id >> 24;
                let of_switch = id & 0xff == group::SWITCH && self.exists((group::SWITCH, owner), t_us);
                self.gpu_of(entity).is_some() || of_switch
            }
            group::CPU => self.scenario().cpus.iter().any(|cpu| cpu.id == id),
            group::CPU_CORE => {
                self.scenario().cpus.iter().any(|cpu| (cpu.cores.0..=cpu.cores.1).contains(&id))
            }
            _ => false,
        }
    }

    /// What the driver says, or `None` for an entity that does not exist.
    pub fn read(&self, entity: (u32, u32), row: &FieldRow, t_us: i64) -> Option<Answer> {
        if entity.0 != group::NONE && !self.exists(entity, t_us) {
            return None;
        }
        let gpu = self.gpu_of(entity);
        let t = self.seconds(t_us);
        let mut answer = self.usual(entity, row, t_us);
        for plan in self.plans(entity, row, t_us) {
            answer = plan.apply(answer, t);
        }
        let blank = self.any(|fault| matches!(fault, Fault::Blank(of) if of.holds(gpu, row.id, t)));
        if blank || (row.is_profiling() && self.paused(t_us)) {
            answer = Answer::absent(answer.kind, 0, Sentinel::Blank);
        }
        Some(answer)
    }

    /// The plans for a field, the more special last.
    fn plans(&self, entity: (u32, u32), row: &FieldRow, t_us: i64) -> Vec<&FieldPlan> {
        if entity.0 == group::LINK && matches!(row.link, Usual::Status(_)) {
            return Vec::new(); // a link has no such field, whatever its GPU says
        }
        let field = row.id;
        let scenario = self.scenario();
        let gpu = self.gpu_of(entity);
        let of_gpu = gpu.and_then(|gpu| self.gpu(gpu)?.fields.get(&field));
        let of_instance = self.instance(entity, t_us).and_then(|mig| mig.fields.get(&field));
        let of_switch = || scenario.switches.iter().find(|s| s.id == entity.1)?.fields.get(&field);
        let of_cpu = || scenario.cpus.iter().find(|c| c.id == entity.1)?.fields.get(&field);
        let of_core = || {
            let mut cpus = scenario.cpus.iter();
            cpus.find(|c| (c.cores.0..=c.cores.1).contains(&entity.1))?.fields.get(&field)
        };
        let of_switch_link = || {
            let owner = entity.1 >> 24;
            scenario
                .switches
                .iter()
                .find(|s| s.id == owner && entity.1 & 0xff == group::SWITCH)?
                .fields
                .get(&field)
        };
        let now = self.overlay(t_us).and_then(|overlay| overlay.fields.get(&gpu?)?.get(&field));
        let other = match entity.0 {
            group::SWITCH => of_switch(),
            group::CPU => of_cpu(),
            group::CPU_CORE => of_core(),
            group::LINK => of_switch_link(),
            _ => None,
        };
        [of_gpu, of_instance, other, now].into_iter().flatten().collect()
    }

    /// How the watch call answers for a field: 0, or the code with which it is refused.
    pub fn watch_code(&self, entity: (u32, u32), row: &FieldRow, t_us: i64) -> i32 {
        use crate::node::Profiling;
        let refused = self.plans(entity, row, t_us).into_iter().rev().find_map(|plan| plan.watch);
        if let Some(code) = refused {
            return code;
        }
        let on_a_gpu = matches!(entity.0, group::GPU | group::GPU_INSTANCE | group::COMPUTE_INSTANCE);
        if !row.is_profiling() || !on_a_gpu {
            return 0;
        }
        match self.gpu_of(entity).and_then(|gpu| self.gpu(gpu)?.profiling) {
            Some(Profiling::Missing) => -33,
            Some(Profiling::None) => -6,
            _ => 0,
        }
    }

    fn usual(&self, entity: (u32, u32), row: &FieldRow, t_us: i64) -> Answer {
        let by_group = match entity.0 {
            group::GPU_INSTANCE => row.gpu_instance,
            group::COMPUTE_INSTANCE => row.compute_instance,
            group::LINK => row.link,
            group::NONE | group::GPU => row.gpu,
            other if row.level.raw() == other || row.level == Level::Global => match row.gpu {
                Usual::Status(-14) => Usual::Value,
                usual => usual,
            },
            _ => Usual::Status(-14),
        };
        let gpu = self.gpu_of(entity).and_then(|gpu| self.gpu(gpu));
        // field 526 fails as a text although the table calls it a number
        let kind = if row.id == 526 && entity.0 != group::LINK && entity.0 != group::NONE {
            crate::answer::Kind::Text
        } else {
            row.kind_in(self.library())
        };
        let links = gpu.and_then(|gpu| gpu.nvlinks.as_ref()).map_or(0, |links| links.count);
        let counts_no_link = row.link_index.is_some_and(|index| links <= index);
        match by_group {
            Usual::Value if matches!(row.id, 60 | 61) && self.gpus().len() < 2 => {
                Answer::absent(kind, -6, Sentinel::Blank)
            }
            Usual::Value if counts_no_link && entity.0 != group::LINK => {
                Answer::absent(kind, 0, Sentinel::Blank)
            }
            Usual::Value => Answer { status: 0, kind, value: self.default_value(entity, gpu, row, t_us) },
            Usual::Absent(sentinel) => Answer::absent(kind, 0, sentinel),
            Usual::Status(status) => Answer::absent(kind, status, Sentinel::Blank),
        }
    }

    fn default_value(&self, entity: (u32, u32), gpu: Option<&Gpu>, row: &FieldRow, t_us: i64) -> Value {
        let scenario = self.scenario();
        let text = |said: &Option<String>| Value::Text(said.clone().unwrap_or_default());
        match (row.id, gpu) {
            (1, _) => return Value::Text(scenario.driver.clone()),
            (2, _) => return Value::Text(scenario.nvml.clone()),
            (4, _) => return Value::Int(i64::try_from(self.gpus().len()).unwrap_or(0)),
            (5, _) => return Value::Int(i64::from(scenario.cuda)),
            (75..=77, _) if entity.0 == group::GPU && self.mig(entity.1, t_us).is_none() => {
                return Value::Bytes(0);
            }
            (50, Some(gpu)) => match self.instance(entity, t_us) {
                Some(mig) => return Value::Text(mig.dcgm_profile.clone().unwrap_or(mig.profile.clone())),
                None => return text(&gpu.name),
            },
            (54, Some(gpu)) => match self.instance(entity, t_us) {
                Some(mig) => return Value::Text(mig.uuid.clone()),
                None => return text(&gpu.uuid),
            },
            (52, Some(_)) => return Value::Int(self.gpu_of(entity).map_or(0, i64::from)),
            (53, Some(gpu)) => return text(&gpu.serial),
            (55, Some(gpu)) => return Value::Int(gpu.minor.map_or(0, i64::from)),
            (57, Some(gpu)) => return text(&gpu.pci),
            (68, Some(gpu)) => return Value::Text(self.visible_devices(entity, gpu, t_us)),
            // Each switch has a bus of its own: 866 domain, 867 bus, 868 device, 869 function.
            (867, None) if entity.0 == group::SWITCH => return Value::Int(0xc1 + i64::from(entity.1)),
            (250..=254, Some(gpu)) => return self.framebuffer(entity, gpu, row.id, t_us),
            _ => {}
        }
        match row.kind {
            crate::answer::Kind::Text => Value::Text(row.default.clone()),
            kind => Value::of_kind(kind, row.default.parse().unwrap_or(0.0)),
        }
    }

    fn visible_devices(&self, entity: (u32, u32), gpu: &Gpu, t_us: i64) -> String {
        let uuid = gpu.uuid.clone().unwrap_or_default();
        let gi = self.instance(entity, t_us).map(|mig| mig.gi.unwrap_or(entity.1 % INSTANCES_MAX + 1));
        match (entity.0, gi, self.gpu_of(entity).and_then(|gpu| self.mig(gpu, t_us))) {
            (group::GPU_INSTANCE, Some(gi), _) => format!("MIG-{uuid}/{gi}"),
            (group::COMPUTE_INSTANCE, Some(gi), _) => {
                let ci = self.instance(entity, t_us).map_or(0, |mig| mig.ci);
                format!("MIG-{uuid}/{gi}/{ci}")
            }
            (_, _, Some(_)) => format!("MIG-{uuid}"),
            _ => uuid,
        }
    }

    /// Framebuffer: total, free, used, reserved (MiB), and the used part of what can be used.
    fn framebuffer(&self, entity: (u32, u32), gpu: &Gpu, field: u16, t_us: i64) -> Value {
        let number = self.gpu_of(entity).unwrap_or(0);
        let instance = self.instance(entity, t_us);
        let gi = instance.map(|mig| mig.gi.unwrap_or(entity.1 % INSTANCES_MAX + 1));
        let total = instance.map_or(gpu.memory_mib.unwrap_or(0), Mig::memory_mib);
        let of_processes: u64 = self
            .processes(number, t_us)
            .iter()
            .filter(|process| gi.is_none() || process.gi == gi)
            .filter_map(|process| process.memory_mib)
            .fold(0, u64::saturating_add);
        let reserved = if instance.is_some() { 24 } else { (total / 80).min(1024) };
        let used = of_processes.min(total.saturating_sub(reserved));
        let free = total.saturating_sub(reserved).saturating_sub(used);
        let whole = |mib: u64| Value::Int(i64::try_from(mib).unwrap_or(i64::MAX));
        match field {
            250 => whole(total),
            251 => whole(free),
            252 => whole(used),
            253 => whole(reserved),
            #[expect(clippy::cast_precision_loss, reason = "MiB are small")]
            _ => Value::Double(if total == reserved { 0.0 } else { used as f64 / (total - reserved) as f64 }),
        }
    }
}
