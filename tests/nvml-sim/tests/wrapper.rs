//! The simulator through the eyes of `nvml-wrapper`, whose structs are not ours.
//!
//! In: the library as it is built beside this test, and scenarios: one process for each, since a library reads its
//! scenario once. Out: a failed process fails the test. What can go wrong: a library that was not built is an error.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

/// What a node must look like.
type Look = fn(&Nvml);

const NODES: [(&str, Look); 5] = [
    ("h100x8", eight_gpus),
    ("h100mig", instances),
    ("fault-gpu-lost", lost),
    ("fault-not-supported", absent),
    ("fault-hang", hang_in_another_gpu),
];

fn main() {
    let child = std::env::args().nth(1).filter(|name| NODES.iter().any(|(node, _)| node == name));
    match &child {
        Some(name) => check(name),
        // whatever else is asked of every test's program, such as `--skip`
        None => NODES.iter().for_each(|(node, _)| run(node)),
    }
    no_driver(child.is_none());
}

/// Starts this program again with the scenario of `node`.
fn run(node: &str) {
    let scenario = format!("{}/../fixtures/scenarios/{node}.yaml", env!("CARGO_MANIFEST_DIR"));
    assert!(std::fs::exists(&scenario).unwrap(), "{scenario}");
    // 12 s ago: what begins at 10 s has begun
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .arg(node)
        .env("WARPGAUGE_SIM_SCENARIO", scenario)
        .env("WARPGAUGE_SIM_START", (now - 12).to_string());
    let status = command.status().unwrap();
    assert!(status.success(), "{node}: {status}");
}

fn library() -> PathBuf {
    let beside = std::env::current_exe().unwrap().with_file_name("libnvml_sim.so");
    assert!(beside.exists(), "{} is not built", beside.display());
    beside
}

fn check(node: &str) {
    let nvml = Nvml::builder().lib_path(library().as_os_str()).init().unwrap();
    NODES.iter().filter(|(name, _)| *name == node).for_each(|(_, check)| check(&nvml));
    nvml.shutdown().unwrap();
}

/// Without a scenario there is no driver.
fn no_driver(is_parent: bool) {
    if is_parent {
        let opened = Nvml::builder().lib_path(library().as_os_str()).init();
        assert!(matches!(opened, Err(NvmlError::DriverNotLoaded)), "{:?}", opened.err());
    }
}

fn eight_gpus(nvml: &Nvml) {
    assert_eq!(nvml.sys_driver_version().unwrap(), "570.86.15");
    assert_eq!(nvml.sys_nvml_version().unwrap(), "12.570.86.15");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 12_080);
    assert_eq!(nvml.device_count().unwrap(), 8);
    let gpu = nvml.device_by_index(3).unwrap();
    let uuid = gpu.uuid().unwrap();
    assert_eq!(uuid, "GPU-00000000-0000-4000-8000-000000000003");
    for other in [nvml.device_by_uuid(uuid.as_str()), nvml.device_by_pci_bus_id("0000:40:00.0")] {
        assert_eq!(other.unwrap().index().unwrap(), 3);
    }
    assert_eq!(gpu.minor_number().unwrap(), 3);
    assert_eq!(gpu.name().unwrap(), "NVIDIA H100 80GB HBM3");
    let pci = gpu.pci_info().unwrap();
    assert_eq!((pci.bus, pci.bus_id.as_str()), (0x40, "00000000:40:00.0"));
    let memory = gpu.memory_info().unwrap();
    assert_eq!((memory.total, memory.used), (81_920 << 20, 61_440 << 20));
    assert_eq!(memory.total, memory.used + memory.free + memory.reserved);
    let utilization = gpu.utilization_rates().unwrap();
    assert!((71..=99).contains(&utilization.gpu), "{utilization:?}");
    let temperature = gpu.temperature(TemperatureSensor::Gpu).unwrap();
    assert!((56..=68).contains(&temperature), "{temperature}");
    assert_eq!(gpu.temperature_threshold(TemperatureThreshold::Slowdown).unwrap(), 89);
    let power = gpu.power_usage().unwrap();
    assert!((360_000..=600_000).contains(&power), "{power} mW");
    assert_eq!(gpu.enforced_power_limit().unwrap(), 700_000);
    assert_eq!(gpu.power_management_limit_constraints().unwrap().min_limit, 200_000);
    assert_eq!(gpu.clock_info(Clock::Memory).unwrap(), 2619);
    assert!(123_456_789 < gpu.total_energy_consumption().unwrap());
    let ecc = gpu.total_ecc_errors(MemoryError::Corrected, EccCounter::Aggregate).unwrap();
    assert_eq!(ecc, 2);
    assert!(1_000_000 < gpu.pcie_throughput(PcieUtilCounter::Send).unwrap());
    assert_eq!(gpu.pcie_replay_counter().unwrap(), 0);
    assert_eq!(gpu.cpu_affinity(1).unwrap(), [(1 << 56) - 1]);
    assert_eq!(gpu.numa_node_id().unwrap(), 0);
    let processes = gpu.running_compute_processes().unwrap();
    assert_eq!(processes.len(), 1);
    assert_eq!((processes[0].pid, &processes[0].used_gpu_memory), (4242, &UsedGpuMemory::Used(61_440 << 20)));
    assert!(gpu.running_graphics_processes().unwrap().is_empty());
    let samples = gpu.process_utilization_stats(None).unwrap();
    assert_eq!((samples[0].pid, samples[0].sm_util, samples[0].mem_util), (4242, 85, 50));
    let later = gpu.process_utilization_stats(samples[0].timestamp + 10_000_000);
    assert!(matches!(later, Err(NvmlError::NotFound)), "{later:?}");
    assert!(!gpu.mig_mode().is_ok_and(|mode| mode.current != 0));
}

fn instances(nvml: &Nvml) {
    let gpu = nvml.device_by_index(1).unwrap();
    assert_eq!(gpu.mig_mode().unwrap().current, 1);
    assert_eq!(gpu.mig_device_count().unwrap(), 7);
    let mig = gpu.mig_device_by_index(1).unwrap();
    assert_eq!(mig.uuid().unwrap(), "MIG-00000000-0000-4000-9000-000000000002");
    assert_eq!(mig.memory_info().unwrap().total, 40_320 << 20);
    let attributes = mig.attributes().unwrap();
    assert_eq!((attributes.gpu_instance_slice_count, attributes.memory_size_mb), (3, 40_320));
    assert!(matches!(mig.utilization_rates(), Err(NvmlError::NotSupported)));
    assert!(gpu.mig_device_by_index(2).is_err());
    assert_eq!(nvml.device_by_uuid("MIG-00000000-0000-4000-9000-000000000001").unwrap().index().unwrap(), 0);
}

fn lost(nvml: &Nvml) {
    assert_eq!(nvml.device_count().unwrap(), 3);
    assert!(nvml.device_by_uuid("GPU-00000000-0000-4000-8000-000000000001").is_err());
    assert_eq!(nvml.device_by_index(1).unwrap().uuid().unwrap(), "GPU-00000000-0000-4000-8000-000000000002");
}

fn absent(nvml: &Nvml) {
    let gpu = nvml.device_by_index(0).unwrap();
    assert!(matches!(gpu.temperature(TemperatureSensor::Gpu), Err(NvmlError::NotSupported)));
    assert!(matches!(gpu.power_usage(), Err(NvmlError::NotSupported)));
    assert!(matches!(gpu.utilization_rates(), Err(NvmlError::NoPermission)));
    assert!(nvml.device_by_index(1).unwrap().power_usage().is_ok());
}

fn hang_in_another_gpu(nvml: &Nvml) {
    for index in [0, 1, 3] {
        assert!(nvml.device_by_index(index).unwrap().memory_info().is_ok());
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let nvml = Nvml::builder().lib_path(library().as_os_str()).init().unwrap();
        sender.send("begun").unwrap();
        let read = nvml.device_by_index(2).unwrap().memory_info();
        sender.send(if read.is_ok() { "read" } else { "failed" }).unwrap();
    });
    let within = std::time::Duration::from_millis(500);
    assert_eq!(receiver.recv_timeout(within * 20), Ok("begun"));
    assert!(receiver.recv_timeout(within).is_err(), "the read of GPU 2 must not end");
}
