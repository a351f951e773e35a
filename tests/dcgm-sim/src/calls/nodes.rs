//! How things hang together: NVLink, paths between GPUs, CPUs.
//!
//! In: C arguments. Out: C return codes and structs. What can go wrong: a version word that library or engine does not
//! have is -12; the topology of a single GPU is -6.

use gpu_scenario::{Version, World};

use crate::abi::devices::{CpuHierarchyV1, CpuHierarchyV2, CpuV1, CpuV2, OwnedCores};
use crate::abi::links::{
    GpuLinksV3, GpuLinksV4, NvLinkStatusV3, NvLinkStatusV4, NvLinkStatusV5, PathV1, PathV2, SwitchLinks64,
    SwitchLinks256, TopologyV1, TopologyV2,
};
use crate::abi::{put_text, version_word};
use crate::client::{code, has, request};
use crate::codes::{BAD_PARAM, MODULE_NOT_LOADED, NOT_SUPPORTED, VER_MISMATCH};
use crate::engine::all_gpus;
use crate::pointers::{out, versioned, word};

/// Same system, several root complexes: what the recorded engine said for each pair.
const PATH: u32 = 4;

fn states<const N: usize>(links: Option<&gpu_scenario::node::NvLinks>) -> [u32; N] {
    let mut states = [0; N];
    for (place, index) in states.iter_mut().zip(0..) {
        *place = links.map_or(0, |links| links.state(index) as u32);
    }
    states
}

/// Fills the four parts that the three forms share.
macro_rules! fill_links {
    ($world:expr, $status:expr, $gpu:ident, $switch:ident { $id:ident, $states:ident }) => {{
        let (world, status) = ($world, $status);
        status.numGpus = 0;
        for (place, gpu) in status.gpus.iter_mut().zip(all_gpus(world)) {
            let links = world.gpu(gpu).and_then(|gpu| gpu.nvlinks.as_ref());
            *place = $gpu { entityId: gpu, linkState: states(links) };
            status.numGpus += 1;
        }
        status.numNvSwitches = 0;
        for (place, switch) in status.nvSwitches.iter_mut().zip(&world.scenario().switches) {
            *place = $switch { $id: switch.id, $states: states(Some(&switch.links)) };
            status.numNvSwitches += 1;
        }
    }};
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetNvLinkLinkStatus(handle: usize, status: *mut NvLinkStatusV5) -> i32 {
    code(request("dcgmGetNvLinkLinkStatus", None, handle, |_, world, _| {
        // SAFETY: the caller's promise: a versioned struct
        let found = unsafe { word(status.cast()) }?;
        let oldest = world.library().min(world.engine_version());
        let is = |word: u32, from: Version, before: Version| {
            found == word && from <= oldest && world.library() < before
        };
        let never = Version(u16::MAX, 0, 0);
        if is(version_word::<NvLinkStatusV3>(3), Version(0, 0, 0), Version(4, 0, 0)) {
            // SAFETY: its version word says so
            let status = unsafe { out(status.cast::<NvLinkStatusV3>()) }?;
            fill_links!(world, status, GpuLinksV3, SwitchLinks64 { id, states });
        } else if is(version_word::<NvLinkStatusV4>(4), Version(4, 0, 0), never) {
            // SAFETY: its version word says so
            let status = unsafe { out(status.cast::<NvLinkStatusV4>()) }?;
            fill_links!(world, status, GpuLinksV3, SwitchLinks256 { entityId, linkState });
        } else if is(version_word::<NvLinkStatusV5>(5), Version(4, 6, 0), never) {
            // SAFETY: its version word says so
            let status = unsafe { out(status) }?;
            fill_links!(world, status, GpuLinksV4, SwitchLinks256 { entityId, linkState });
        } else {
            return Err(VER_MISMATCH);
        }
        Ok(())
    }))
}

fn affinity(world: &World, gpu: u32) -> [u64; 8] {
    let mut mask = [0; 8];
    let ranges = world.gpu(gpu).and_then(|gpu| gpu.cpu_affinity.clone()).unwrap_or_default();
    for cpu in ranges.into_iter().flat_map(|(first, last)| first..=last.min(511)) {
        if let Some(word) = mask.get_mut(cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }
    mask
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetDeviceTopology(
    handle: usize,
    gpu: u32,
    topology: *mut TopologyV2,
) -> i32 {
    code(request("dcgmGetDeviceTopology", Some(gpu), handle, |_, world, _| {
        // SAFETY: the caller's promise: a versioned struct
        let found = unsafe { word(topology.cast()) }?;
        world.gpu(gpu).ok_or(BAD_PARAM)?;
        let from = gpu;
        let others: Vec<u32> = all_gpus(world).into_iter().filter(|other| *other != gpu).collect();
        let new = Version(4, 6, 0) <= world.library().min(world.engine_version());
        let count = u32::try_from(others.len()).unwrap_or(0);
        if found == version_word::<TopologyV1>(1) {
            // SAFETY: its version word says so
            let topology = unsafe { out(topology.cast::<TopologyV1>()) }?;
            (topology.numGpus, topology.cpuAffinityMask) = (count, affinity(world, gpu));
            for (place, gpu) in topology.gpuPaths.iter_mut().zip(&others) {
                let path = PATH | u32::try_from(nvlinks(world, from, *gpu)).unwrap_or(0);
                *place = PathV1 { gpu: *gpu, path, links: 0 };
            }
        } else if found == version_word::<TopologyV2>(2) && new {
            // SAFETY: its version word says so
            let topology = unsafe { out(topology) }?;
            (topology.numGpus, topology.cpuAffinityMask) = (count, affinity(world, gpu));
            for (place, gpu) in topology.gpuPaths.iter_mut().zip(&others) {
                let path = u64::from(PATH) | nvlinks(world, from, *gpu);
                *place = PathV2 { gpu: *gpu, path, links: 0 };
            }
        } else {
            return Err(VER_MISMATCH);
        }
        if others.is_empty() { Err(NOT_SUPPORTED) } else { Ok(()) }
    }))
}

/// The bit of a path that says how many links lead to a GPU: bit 8 one link, bit 9 two.
fn nvlinks(world: &World, from: u32, to: u32) -> u64 {
    let peers = world.gpu(from).and_then(|gpu| gpu.nvlinks.as_ref()).map(|links| links.peers.as_slice());
    let links =
        peers.and_then(|peers| peers.iter().find(|(gpu, _)| *gpu == to)).map_or(0, |(_, links)| *links);
    links.checked_sub(1).and_then(|above| 0x100_u64.checked_shl(above)).unwrap_or(0)
}

fn cores((first, last): (u32, u32)) -> OwnedCores {
    let mut cores = OwnedCores { version: version_word::<OwnedCores>(1), bitmask: [0; 16] };
    for core in first..=last.min(1023) {
        if let Some(word) = cores.bitmask.get_mut(core as usize / 64) {
            *word |= 1 << (core % 64);
        }
    }
    cores
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetCpuHierarchy(handle: usize, list: *mut CpuHierarchyV1) -> i32 {
    code(has(Version(3, 3, 0)).and_then(|()| {
        request("dcgmGetCpuHierarchy", None, handle, |_, world, _| {
            // SAFETY: the caller's promise
            let list = unsafe { versioned(list, &[version_word::<CpuHierarchyV1>(1)]) }?;
            if world.scenario().cpus.is_empty() {
                return Err(MODULE_NOT_LOADED);
            }
            list.numCpus = 0;
            for (place, cpu) in list.cpus.iter_mut().zip(&world.scenario().cpus) {
                *place = CpuV1 { id: cpu.id, cores: cores(cpu.cores) };
                list.numCpus += 1;
            }
            Ok(())
        })
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dcgmGetCpuHierarchy_v2(handle: usize, list: *mut CpuHierarchyV2) -> i32 {
    code(has(Version(4, 0, 0)).and_then(|()| {
        request("dcgmGetCpuHierarchy_v2", None, handle, |_, world, _| {
            // SAFETY: the caller's promise
            let list = unsafe { versioned(list, &[version_word::<CpuHierarchyV2>(2)]) }?;
            if world.scenario().cpus.is_empty() {
                return Err(MODULE_NOT_LOADED);
            }
            list.numCpus = 0;
            for (place, cpu) in list.cpus.iter_mut().zip(&world.scenario().cpus) {
                let mut serial = [0; 256];
                put_text(&mut serial, &cpu.serial);
                *place = CpuV2 { id: cpu.id, cores: cores(cpu.cores), serial };
                list.numCpus += 1;
            }
            Ok(())
        })
    }))
}
