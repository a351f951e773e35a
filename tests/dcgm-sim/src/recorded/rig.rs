//! A client for the tests: it calls the exported C functions, at a time that the test sets.
//!
//! In: a scenario. Out: what a client sees, with sentinels told apart from values. Tests take turns: the library has
//! one state for the process.

use std::ffi::{CString, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpu_scenario::{load, simulator};

use crate::abi::values::{FieldValueV1, FieldValueV2, Pair, Payload};
use crate::abi::version_word;
use crate::calls::{groups, session, values};

/// Start of the simulated node. Unit: µs since 1970.
pub(crate) const START: i64 = 1_800_000_000_000_000;

static TURN: Mutex<()> = Mutex::new(());

pub(crate) struct Rig {
    pub(crate) handle: usize,
    _turn: MutexGuard<'static, ()>,
}

/// A value as the client sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) entity: (u32, u32),
    pub(crate) field: u16,
    pub(crate) status: i32,
    pub(crate) kind: char,
    /// A number, a text, a sentinel's name, or `empty` for no bytes.
    pub(crate) value: String,
    /// Unit: ms since the start of the node.
    pub(crate) ts_ms: Option<i64>,
}

pub(crate) fn scenario_text(name: &str) -> String {
    let path = format!("{}/../fixtures/scenarios/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

impl Rig {
    /// A node of `name`, with more YAML at the end; nothing is connected.
    pub(crate) fn of(name: &str, more: &str) -> Self {
        Self::of_text(&(scenario_text(name) + more))
    }

    pub(crate) fn of_text(text: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(session::dcgmShutdown(), 0);
        let scenario = load::scenario_from("test.yaml", text).unwrap();
        simulator().replace(scenario, START);
        simulator().set_time(Some(START));
        assert_eq!(session::dcgmInit(), 0);
        Self { handle: 0, _turn: turn }
    }

    /// Sets the time. Unit: ms since the start.
    pub(crate) fn at(&self, ms: i64) -> &Self {
        simulator().set_time(Some(START + ms * 1000));
        self
    }

    pub(crate) fn connect(&mut self) -> i32 {
        let address = CString::new("localhost").unwrap();
        // SAFETY: a text and a place for the handle
        unsafe { session::dcgmConnect(address.as_ptr(), &raw mut self.handle) }
    }

    pub(crate) fn group(&self, entities: &[(u32, u32)]) -> (usize, Vec<i32>) {
        let name = CString::new("g").unwrap();
        let mut group = 0;
        // SAFETY: a text and a place for the id
        assert_eq!(unsafe { groups::dcgmGroupCreate(self.handle, 1, name.as_ptr(), &raw mut group) }, 0);
        let codes =
            entities.iter().map(|(kind, id)| groups::dcgmGroupAddEntity(self.handle, group, *kind, *id));
        let codes = codes.collect();
        (group, codes)
    }

    /// Code and id.
    pub(crate) fn field_group(&self, name: &str, fields: &[u16]) -> (i32, usize) {
        let name = CString::new(name).unwrap();
        let count = i32::try_from(fields.len()).unwrap();
        let mut id = 0;
        // SAFETY: so many fields, a text, and a place for the id
        let code = unsafe {
            groups::dcgmFieldGroupCreate(self.handle, count, fields.as_ptr(), name.as_ptr(), &raw mut id)
        };
        (code, id)
    }

    pub(crate) fn watch(&self, group: usize, field_group: usize, interval_ms: i64) -> i32 {
        groups::dcgmWatchFields(self.handle, group, field_group, interval_ms * 1000, 60.0, 0)
    }

    pub(crate) fn latest(&self, group: usize, field_group: usize) -> (i32, Vec<Seen>) {
        let mut seen: Vec<Seen> = Vec::new();
        let user = (&raw mut seen).cast::<c_void>();
        // SAFETY: `collect` takes its own list, which outlives the call
        let code =
            unsafe { values::dcgmGetLatestValues_v2(self.handle, group, field_group, Some(collect), user) };
        (code, seen)
    }

    /// Code, next since (ms), values.
    pub(crate) fn since(&self, group: usize, field_group: usize, since_us: i64) -> (i32, i64, Vec<Seen>) {
        let (mut seen, mut next): (Vec<Seen>, i64) = (Vec::new(), since_us);
        let user = (&raw mut seen).cast::<c_void>();
        // SAFETY: as above, and a place for the time
        let code = unsafe {
            values::dcgmGetValuesSince_v2(
                self.handle,
                group,
                field_group,
                since_us,
                &raw mut next,
                Some(collect),
                user,
            )
        };
        (code, next, seen)
    }

    pub(crate) fn of_entities(
        &self,
        entities: &[(u32, u32)],
        fields: &[u16],
        flags: u32,
    ) -> (i32, Vec<Seen>) {
        let pairs: Vec<Pair> =
            entities.iter().map(|(kind, id)| Pair { entityGroupId: *kind, entityId: *id }).collect();
        let empty = FieldValueV2 {
            version: 0,
            entityGroupId: 0,
            entityId: 0,
            fieldId: 0,
            fieldType: 0,
            status: 0,
            unused: 0,
            ts: 0,
            value: Payload([0; 4096]),
        };
        let mut found = vec![empty; pairs.len() * fields.len()];
        let (entity_count, field_count) =
            (u32::try_from(pairs.len()).unwrap(), u32::try_from(fields.len()).unwrap());
        // SAFETY: arrays of these lengths
        let code = unsafe {
            values::dcgmEntitiesGetLatestValues(
                self.handle,
                pairs.as_ptr(),
                entity_count,
                fields.as_ptr(),
                field_count,
                flags,
                found.as_mut_ptr(),
            )
        };
        let seen = found.iter().map(|value| {
            assert!(code != 0 || value.version == version_word::<FieldValueV2>(2));
            let of = (value.entityGroupId, value.entityId);
            seen(of, value.fieldId, value.fieldType, value.status, value.ts, &value.value)
        });
        (code, seen.collect())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        session::dcgmShutdown();
        simulator().set_time(None);
    }
}

unsafe extern "C" fn collect(
    kind: u32,
    id: u32,
    values: *mut FieldValueV1,
    count: i32,
    user: *mut c_void,
) -> i32 {
    assert_eq!(count, 1);
    // SAFETY: one value of the library, and the list of the caller above
    let (value, list) = unsafe { (&*values, &mut *user.cast::<Vec<Seen>>()) };
    assert_eq!(value.version, version_word::<FieldValueV1>(1));
    list.push(seen((kind, id), value.fieldId, value.fieldType, value.status, value.ts, &value.value));
    0
}

/// Reads a value as a client must: by the type inside it.
fn seen(entity: (u32, u32), field: u16, kind: u16, status: i32, ts: i64, value: &Payload) -> Seen {
    let kind = char::from(u8::try_from(kind).unwrap());
    let bytes: [u8; 8] = value.0[..8].try_into().unwrap();
    let names = ["blank", "not_found", "not_supported", "not_permitted"];
    let value = match kind {
        'i' => {
            let number = i64::from_ne_bytes(bytes);
            let above = number.checked_sub(i64::MAX - 15).and_then(|above| usize::try_from(above).ok());
            above.map_or(number.to_string(), |above| names[above].to_owned())
        }
        'd' => {
            let number = f64::from_ne_bytes(bytes);
            let above = (0_u8..4).find(|above| number == 140_737_488_355_328.0 + f64::from(*above));
            above.map_or(number.to_string(), |above| names[usize::from(above)].to_owned())
        }
        's' => {
            let end = value.0.iter().position(|byte| *byte == 0).unwrap();
            match std::str::from_utf8(&value.0[..end]).unwrap() {
                "<<<NULL>>>" => "blank".into(),
                "<<<NOT_FOUND>>>" => "not_found".into(),
                "<<<NOT_SUPPORTED>>>" => "not_supported".into(),
                "<<<NOT_PERM>>>" => "not_permitted".into(),
                text => text.to_owned(),
            }
        }
        'b' if value.0.iter().all(|byte| *byte == 0) => "empty".into(),
        _ => "bytes".into(),
    };
    let ts_ms = (ts != 0).then(|| (ts - START).div_euclid(1000));
    Seen { entity, field, status, kind, value, ts_ms }
}
