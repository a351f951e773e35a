//! The functions of libdcgm, found one by one.
//!
//! In: an opened library. Out: function pointers; those that not every version from 3.1 has, or that only a
//! part of our work needs, may be missing. What can go wrong: a function without which nothing works is
//! missing; the error names it.
//!
//! Source of the prototypes: `dcgm_agent.h`, `dcgm_fields.h` of 3.1.3 to 4.6.0. They did not change in
//! between: what changed are versioned structures, which are passed as untyped pointers here and typed at the
//! call.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{self, Handle, Return, field::FieldValueV1, field::FieldValueV2, field::Meta, group::Pair};
use crate::error::Error;

/// `dcgmFieldValueEntityEnumeration_f`: entity group, entity, values, how many, the caller's pointer. Not
/// zero ends the enumeration.
pub(crate) type OnValues = unsafe extern "C" fn(u32, u32, *mut FieldValueV1, c_int, *mut c_void) -> c_int;

/// Fills a versioned structure of one engine.
pub(crate) type Fill = unsafe extern "C" fn(Handle, *mut c_void) -> Return;
/// Fills a structure about one GPU.
pub(crate) type FillOfGpu = unsafe extern "C" fn(Handle, u32, *mut c_void) -> Return;
/// Does something to an engine.
pub(crate) type Act = unsafe extern "C" fn(Handle) -> Return;
/// Lists GPUs into 32 places.
pub(crate) type ListGpus = unsafe extern "C" fn(Handle, *mut u32, *mut c_int) -> Return;

/// Writes the structure of pointers and the function that finds them.
macro_rules! symbols {
    (
        needed { $($need:ident = $need_c:literal: $need_ty:ty,)* }
        optional { $($opt:ident = $opt_c:literal: $opt_ty:ty,)* }
    ) => {
        /// Pointers into a library that stays loaded as long as the process.
        pub(crate) struct Symbols {
            library: String,
            $(pub(crate) $need: $need_ty,)*
            $($opt: Option<$opt_ty>,)*
        }

        impl Symbols {
            /// Finds all.
            ///
            /// # Safety
            /// The library must be a libdcgm and must never be unloaded while the result is used.
            pub(crate) unsafe fn find(
                library: &libloading::os::unix::Library,
                name: String,
            ) -> Result<Self, Error> {
                Ok(Self {
                    $($need: {
                        // SAFETY: the type is the function's prototype in all versions from 3.1.
                        unsafe { library.get::<$need_ty>($need_c) }
                            .map(|symbol| *symbol)
                            .map_err(|_| Error::Symbol { library: name.clone(), name: plain($need_c) })?
                    },)*
                    $($opt: {
                        // SAFETY: as above, in all versions that have it.
                        unsafe { library.get::<$opt_ty>($opt_c) }.ok().map(|symbol| *symbol)
                    },)*
                    library: name,
                })
            }

            /// Functions of a test instead of a library's.
            ///
            /// # Safety
            /// Each address must be a function with the prototype of its name.
            #[cfg(test)]
            pub(crate) unsafe fn of_test(of: &dyn Fn(&str) -> Option<*const c_void>) -> Self {
                Self {
                    $($need: {
                        let address = of(plain($need_c)).unwrap_or_else(|| panic!("{:?}", $need_c));
                        // SAFETY: the caller's; a function pointer is an address here.
                        unsafe { std::mem::transmute_copy::<*const c_void, $need_ty>(&address) }
                    },)*
                    $($opt: of(plain($opt_c)).map(|address| {
                        // SAFETY: as above.
                        unsafe { std::mem::transmute_copy::<*const c_void, $opt_ty>(&address) }
                    }),)*
                    library: "test".into(),
                }
            }

            $(
                /// The function, or an error that names it.
                pub(crate) fn $opt(&self) -> Result<$opt_ty, Error> {
                    self.$opt.ok_or_else(|| Error::Symbol {
                        library: self.library.clone(),
                        name: plain($opt_c),
                    })
                }
            )*
        }
    };
}

/// A C literal as text.
const fn plain(name: &'static std::ffi::CStr) -> &'static str {
    match name.to_str() {
        Ok(text) => text,
        Err(_) => "",
    }
}

symbols! {
    needed {
        init = c"dcgmInit": unsafe extern "C" fn() -> Return,
        shutdown = c"dcgmShutdown": unsafe extern "C" fn() -> Return,
        fields_init = c"DcgmFieldsInit": unsafe extern "C" fn() -> Return,
        field_by_id = c"DcgmFieldGetById": unsafe extern "C" fn(u16) -> *const Meta,
        version_info = c"dcgmVersionInfo": unsafe extern "C" fn(*mut abi::connection::VersionInfo) -> Return,
        connect = c"dcgmConnect_v2":
            unsafe extern "C" fn(*const c_char, *mut abi::connection::ConnectV2, *mut Handle) -> Return,
        disconnect = c"dcgmDisconnect": Act,
        engine_version = c"dcgmHostengineVersionInfo":
            unsafe extern "C" fn(Handle, *mut abi::connection::VersionInfo) -> Return,
        all_gpus = c"dcgmGetAllDevices": ListGpus,
        group_create = c"dcgmGroupCreate":
            unsafe extern "C" fn(Handle, u32, *const c_char, *mut Handle) -> Return,
        group_destroy = c"dcgmGroupDestroy": unsafe extern "C" fn(Handle, Handle) -> Return,
        group_add = c"dcgmGroupAddEntity": unsafe extern "C" fn(Handle, Handle, u32, u32) -> Return,
        field_group_create = c"dcgmFieldGroupCreate":
            unsafe extern "C" fn(Handle, c_int, *const u16, *const c_char, *mut Handle) -> Return,
        field_group_destroy = c"dcgmFieldGroupDestroy": unsafe extern "C" fn(Handle, Handle) -> Return,
        watch = c"dcgmWatchFields":
            unsafe extern "C" fn(Handle, Handle, Handle, i64, f64, c_int) -> Return,
        unwatch = c"dcgmUnwatchFields": unsafe extern "C" fn(Handle, Handle, Handle) -> Return,
        latest = c"dcgmGetLatestValues_v2":
            unsafe extern "C" fn(Handle, Handle, Handle, OnValues, *mut c_void) -> Return,
    }
    optional {
        start_embedded = c"dcgmStartEmbedded_v2": unsafe extern "C" fn(*mut c_void) -> Return,
        stop_embedded = c"dcgmStopEmbedded": Act,
        connect_uri = c"dcgmConnect_v3":
            unsafe extern "C" fn(*const c_char, *mut abi::connection::ConnectV3, *mut Handle) -> Return,
        is_healthy = c"dcgmHostengineIsHealthy":
            unsafe extern "C" fn(Handle, *mut abi::connection::EngineHealth) -> Return,
        supported_gpus = c"dcgmGetAllSupportedDevices": ListGpus,
        gpu_status = c"dcgmGetGpuStatus": unsafe extern "C" fn(Handle, u32, *mut u32) -> Return,
        attributes = c"dcgmGetDeviceAttributes":
            unsafe extern "C" fn(Handle, u32, *mut abi::attributes::Attributes) -> Return,
        architecture = c"dcgmGetGpuChipArchitecture": unsafe extern "C" fn(Handle, u32, *mut u32) -> Return,
        entities = c"dcgmGetEntityGroupEntities":
            unsafe extern "C" fn(Handle, u32, *mut u32, *mut c_int, u32) -> Return,
        mig_hierarchy = c"dcgmGetGpuInstanceHierarchy":
            unsafe extern "C" fn(Handle, *mut abi::mig::MigHierarchy) -> Return,
        links = c"dcgmGetNvLinkLinkStatus": Fill,
        p2p_links = c"dcgmGetNvLinkP2PStatus": Fill,
        topology = c"dcgmGetDeviceTopology": FillOfGpu,
        cpus_v2 = c"dcgmGetCpuHierarchy_v2": Fill,
        cpus_v1 = c"dcgmGetCpuHierarchy": Fill,
        group_info = c"dcgmGroupGetInfo": unsafe extern "C" fn(Handle, Handle, *mut c_void) -> Return,
        update_all = c"dcgmUpdateAllFields": unsafe extern "C" fn(Handle, c_int) -> Return,
        since = c"dcgmGetValuesSince_v2":
            unsafe extern "C" fn(Handle, Handle, Handle, i64, *mut i64, OnValues, *mut c_void) -> Return,
        latest_of = c"dcgmEntitiesGetLatestValues":
            unsafe extern "C" fn(Handle, *const Pair, u32, *const u16, u32, u32, *mut FieldValueV2) -> Return,
        health_set = c"dcgmHealthSet_v2":
            unsafe extern "C" fn(Handle, *mut abi::health::HealthSet) -> Return,
        health_check = c"dcgmHealthCheck": unsafe extern "C" fn(Handle, Handle, *mut c_void) -> Return,
        // Never called: tells 4.0 from 3.x where a library does not say its version.
        policy_register = c"dcgmPolicyRegister_v2": unsafe extern "C" fn() -> Return,
        metric_groups = c"dcgmProfGetSupportedMetricGroups":
            unsafe extern "C" fn(Handle, *mut abi::profiling::MetricGroups) -> Return,
        pause = c"dcgmProfPause": Act,
        resume = c"dcgmProfResume": Act,
        modules = c"dcgmModuleGetStatuses":
            unsafe extern "C" fn(Handle, *mut abi::module::Modules) -> Return,
        attach_driver = c"dcgmAttachDriver": Act,
        detach_driver = c"dcgmDetachDriver": Act,
    }
}
