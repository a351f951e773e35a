//! Groups of entities.
//!
//! In: nothing. Out: structures; see [`super`]. Source: `dcgm_structs.h`.

use std::ffi::c_char;

use super::family;

family! {
    /// An entity.
    struct Pair = "dcgmGroupEntityPair_t" since "v3.1.3" {
        group: u32 = "entityGroupId",
        id: u32 = "entityId",
    }

    /// A group's members in 3.x.
    struct GroupInfoV2 = "dcgmGroupInfo_v2" since "v3.1.3" version 2 {
        version: u32 = "version",
        count: u32 = "count",
        name: [c_char; 256] = "groupName",
        entities: [Pair; 64] = "entityList",
    }

    /// A group's members from 4.0, which refuses the older one.
    struct GroupInfoV3 = "dcgmGroupInfo_v3" since "v4.0.0" version 3 {
        version: u32 = "version",
        count: u32 = "count",
        name: [c_char; 256] = "groupName",
        entities: [Pair; 1024] = "entityList",
    }
}
