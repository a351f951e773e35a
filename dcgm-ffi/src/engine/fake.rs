//! Functions that stand in for a library's in unit tests: they write down what they were asked, and answer by
//! a script.
//!
//! In: a script of return codes and values. Out: a log of calls. It judges nothing and imitates nothing but
//! the signatures: what an engine does is measured, see the recordings, not invented here.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::connection::{ConnectV2, VersionInfo};
use crate::abi::field::{FieldValueV1, FieldValueV2, Meta};
use crate::abi::group::Pair;
use crate::abi::{Handle, Return, zeroed};
use crate::library::Library;
use crate::symbols::{OnValues, Symbols};

/// What the functions answer, and what they were asked.
#[derive(Default)]
struct Script {
    log: Vec<String>,
    /// Return codes by function, in order; then 0.
    codes: HashMap<&'static str, VecDeque<i32>>,
    version: String,
    /// The handle that a connect or a start writes.
    handle: Option<Handle>,
    /// Ids of groups.
    next: Handle,
    /// Values of a reading: entity group, entity, field, number.
    values: Vec<(u32, u32, u16, i64)>,
    missing: Vec<&'static str>,
    /// Functions that are only asked whether they exist.
    present: Vec<&'static str>,
}

thread_local! {
    static SCRIPT: RefCell<Script> = RefCell::default();
}

/// A test's library. One per thread.
pub(super) struct Fake;

impl Fake {
    /// A library that says this version.
    pub(super) fn new(version: &str) -> Self {
        let version = format!("version:{version};");
        SCRIPT.set(Script { version, handle: Some(77), next: 4, ..Script::default() });
        Self
    }

    /// A function's next answers.
    pub(super) fn answers(&self, function: &'static str, codes: &[i32]) {
        SCRIPT.with_borrow_mut(|s| s.codes.entry(function).or_default().extend(codes));
    }

    /// The handle that a connect or a start writes; None: none.
    pub(super) fn handle(&self, handle: Option<Handle>) {
        SCRIPT.with_borrow_mut(|s| s.handle = handle);
    }

    /// What a reading delivers.
    pub(super) fn values(&self, values: &[(u32, u32, u16, i64)]) {
        SCRIPT.with_borrow_mut(|s| s.values = values.to_vec());
    }

    /// A function that the library does not have.
    pub(super) fn lacks(&self, function: &'static str) {
        SCRIPT.with_borrow_mut(|s| s.missing.push(function));
    }

    /// A function that the library has, and that is never called.
    pub(super) fn has(&self, function: &'static str) {
        SCRIPT.with_borrow_mut(|s| s.present.push(function));
    }

    /// The calls since the last time.
    pub(super) fn log(&self) -> Vec<String> {
        SCRIPT.with_borrow_mut(|s| std::mem::take(&mut s.log))
    }

    /// Opens it. The log begins behind the initialization.
    pub(super) fn open(&self) -> Library {
        // SAFETY: the functions below have the prototypes of their names.
        let symbols = unsafe { Symbols::of_test(&address) };
        let library = Library::of_test(symbols).unwrap();
        self.log();
        library
    }
}

/// Where a function is.
fn address(name: &str) -> Option<*const c_void> {
    if SCRIPT.with_borrow(|s| s.missing.contains(&name)) {
        return None;
    }
    Some(match name {
        "dcgmInit" => init as *const c_void,
        "dcgmShutdown" => shutdown as *const c_void,
        "DcgmFieldsInit" => init as *const c_void,
        "DcgmFieldGetById" => field_by_id as *const c_void,
        "dcgmVersionInfo" => version_info as *const c_void,
        "dcgmHostengineVersionInfo" => engine_version as *const c_void,
        "dcgmConnect_v2" => connect as *const c_void,
        "dcgmDisconnect" => disconnect as *const c_void,
        "dcgmStartEmbedded_v2" => start as *const c_void,
        "dcgmStopEmbedded" => stop as *const c_void,
        "dcgmGetAllDevices" => all_gpus as *const c_void,
        "dcgmGroupCreate" => group_create as *const c_void,
        "dcgmGroupDestroy" => group_destroy as *const c_void,
        "dcgmGroupAddEntity" => group_add as *const c_void,
        "dcgmFieldGroupCreate" => field_group_create as *const c_void,
        "dcgmFieldGroupDestroy" => field_group_destroy as *const c_void,
        "dcgmWatchFields" => watch as *const c_void,
        "dcgmUnwatchFields" => unwatch as *const c_void,
        "dcgmGetLatestValues_v2" => latest as *const c_void,
        "dcgmEntitiesGetLatestValues" => latest_of as *const c_void,
        "dcgmGetNvLinkLinkStatus" => links as *const c_void,
        other if SCRIPT.with_borrow(|s| s.present.contains(&other)) => init as *const c_void,
        _ => return None,
    })
}

/// Writes a call down and answers it.
fn call(function: &'static str, arguments: String) -> Return {
    SCRIPT.with_borrow_mut(|s| {
        s.log.push(format!("{function} {arguments}").trim_end().to_owned());
        s.codes.get_mut(function).and_then(VecDeque::pop_front).unwrap_or(0)
    })
}

fn next_id() -> Handle {
    SCRIPT.with_borrow_mut(|s| {
        s.next += 1;
        s.next - 1
    })
}

fn fill(info: *mut VersionInfo) {
    // SAFETY: the library under test passes its structure; its stamp is checked as the real one would.
    let info = unsafe { &mut *info };
    assert_eq!(info.version, 0x0200_0204);
    SCRIPT.with_borrow(|s| {
        for (to, from) in info.build.iter_mut().zip(s.version.bytes()) {
            *to = from.cast_signed();
        }
    });
}

extern "C" fn init() -> Return {
    call("dcgmInit", String::new())
}

extern "C" fn shutdown() -> Return {
    call("dcgmShutdown", String::new())
}

extern "C" fn field_by_id(id: u16) -> *const Meta {
    let (tag, kind, scope, nvml, level) = match id {
        1 => ("driver_version", b's', 0, 0, 0),
        1002 => ("sm_active", b'd', 1, 74, 5),
        1003 => ("later", b'?', 1, -1, 99),
        _ => return std::ptr::null(),
    };
    let mut meta = zeroed::<Meta>();
    (meta.field_id, meta.field_type, meta.scope) = (id, kind, scope);
    (meta.nvml_field_id, meta.entity_level) = (nvml, level);
    for (to, from) in meta.tag.iter_mut().zip(tag.bytes()) {
        *to = from.cast_signed();
    }
    Box::leak(meta) // as long as the library, which is as long as the process
}

extern "C" fn version_info(info: *mut VersionInfo) -> Return {
    fill(info);
    0
}

extern "C" fn engine_version(handle: Handle, info: *mut VersionInfo) -> Return {
    fill(info);
    call("dcgmHostengineVersionInfo", format!("{handle:#x}"))
}

extern "C" fn connect(address: *const c_char, how: *mut ConnectV2, handle: *mut Handle) -> Return {
    // SAFETY: text, structure and handle of the library under test.
    let (address, how) = unsafe { (CStr::from_ptr(address).to_string_lossy(), &*how) };
    if let Some(new) = SCRIPT.with_borrow(|s| s.handle) {
        // SAFETY: as above.
        unsafe { handle.write(new) };
    }
    call("dcgmConnect_v2", format!("{address} {} {}", how.timeout_ms, how.address_is_unix_socket))
}

extern "C" fn disconnect(handle: Handle) -> Return {
    call("dcgmDisconnect", format!("{handle:#x}"))
}

extern "C" fn start(how: *mut c_void) -> Return {
    // SAFETY: every version has its stamp at 0, the mode at 4 and the handle at 8.
    let (stamp, mode) = unsafe { (how.cast::<u32>().read(), how.cast::<u32>().add(1).read()) };
    let code = call("dcgmStartEmbedded_v2", format!("{stamp:#010x} {mode}"));
    if let (0, Some(new)) = (code, SCRIPT.with_borrow(|s| s.handle)) {
        // SAFETY: as above.
        unsafe { how.cast::<Handle>().add(1).write(new) };
    }
    code
}

extern "C" fn stop(handle: Handle) -> Return {
    call("dcgmStopEmbedded", format!("{handle:#x}"))
}

extern "C" fn all_gpus(_: Handle, ids: *mut u32, count: *mut c_int) -> Return {
    // SAFETY: the array has 32 places.
    unsafe { (ids.write(3), ids.add(31).write(9), count.write(1000)) };
    call("dcgmGetAllDevices", String::new())
}

extern "C" fn group_create(_: Handle, kind: u32, name: *const c_char, id: *mut Handle) -> Return {
    // SAFETY: name and id of the library under test.
    let name = unsafe { (id.write(next_id()), CStr::from_ptr(name).to_string_lossy()).1 };
    call("dcgmGroupCreate", format!("{kind} {name}"))
}

extern "C" fn group_destroy(_: Handle, id: Handle) -> Return {
    call("dcgmGroupDestroy", id.to_string())
}

extern "C" fn group_add(_: Handle, id: Handle, group: u32, entity: u32) -> Return {
    call("dcgmGroupAddEntity", format!("{id} {group}/{entity}"))
}

extern "C" fn field_group_create(
    _: Handle,
    count: c_int,
    _: *const u16,
    name: *const c_char,
    id: *mut Handle,
) -> Return {
    // SAFETY: name and id of the library under test.
    let name = unsafe { (id.write(next_id()), CStr::from_ptr(name).to_string_lossy()).1 };
    let process = format!("-{}-", std::process::id());
    let (name, counter) = name.split_once(&process).expect("a name with the process's number");
    assert!(counter.parse::<u32>().is_ok(), "{counter}");
    call("dcgmFieldGroupCreate", format!("{count} {name}"))
}

extern "C" fn field_group_destroy(_: Handle, id: Handle) -> Return {
    call("dcgmFieldGroupDestroy", id.to_string())
}

extern "C" fn watch(_: Handle, of: Handle, what: Handle, us: i64, keep: f64, samples: c_int) -> Return {
    call("dcgmWatchFields", format!("{of} {what} {us} {keep} {samples}"))
}

extern "C" fn unwatch(_: Handle, of: Handle, what: Handle) -> Return {
    call("dcgmUnwatchFields", format!("{of} {what}"))
}

extern "C" fn latest(_: Handle, of: Handle, what: Handle, on: OnValues, user: *mut c_void) -> Return {
    for (group, entity, field, number) in SCRIPT.with_borrow(|s| s.values.clone()) {
        let mut value = zeroed::<FieldValueV1>();
        (value.field_id, value.field_type, value.ts) = (field, b'i'.into(), 1);
        value.value[0] = number.cast_unsigned();
        // SAFETY: one value, and the caller's pointer.
        assert_eq!(unsafe { on(group, entity, &raw mut *value, 1, user) }, 0);
    }
    call("dcgmGetLatestValues_v2", format!("{of} {what}"))
}

extern "C" fn latest_of(
    _: Handle,
    pairs: *const Pair,
    count: u32,
    fields: *const u16,
    field_count: u32,
    flags: u32,
    values: *mut FieldValueV2,
) -> Return {
    let (count, field_count) = (count as usize, field_count as usize);
    for at in 0..count * field_count {
        // SAFETY: the arrays have the lengths told.
        unsafe {
            let (pair, value) = (&*pairs.add(at / field_count), &mut *values.add(at));
            (value.entity_group, value.entity_id, value.ts) = (pair.group, pair.id, 1);
            (value.field_id, value.field_type) = (*fields.add(at % field_count), b'i'.into());
        }
    }
    call("dcgmEntitiesGetLatestValues", format!("{count}x{field_count} {flags}"))
}

extern "C" fn links(_: Handle, status: *mut c_void) -> Return {
    // SAFETY: every version begins with its stamp.
    call("dcgmGetNvLinkLinkStatus", format!("{:#010x}", unsafe { status.cast::<u32>().read() }))
}
