//! Ids of NVLink links: entity ids of group [`EntityGroup::Link`], packed into 32 bits.
//!
//! In: an id and the engine's version, since the packing changed twice. Out: whose link it is and which. What
//! can go wrong: 4.0 to 4.2 declare a link of 7 bytes, so the owner does not fit the id: links are refused
//! there.
//!
//! | engine | bits 0–7 | then | then |
//! |---|---|---|---|
//! | 3.x | owner's group | 8–15 index | 16–31 owner's id |
//! | 4.3 and later | owner's group | 8–23 index | 24–31 owner's id |
//!
//! Source: `dcgm_fields.h`, `dcgm_link_t`, of 3.1.3, 4.0.0, 4.2.3 and 4.6.0.

use crate::entity::{Entity, EntityGroup};
use crate::version::Version;

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The GPU or switch whose link it is.
    pub owner: Entity,
    /// Its number there, from 0.
    pub index: u32,
}

/// Bits of the index; the owner's id has the rest above the group's 8.
fn index_bits(version: Version) -> Option<u32> {
    if !version.at_least(4, 0) {
        Some(8)
    } else if version.at_least(4, 3) {
        Some(16)
    } else {
        None
    }
}

/// Takes an id apart. None: the version has no usable ids, or the owner is neither GPU nor switch.
pub fn parse(raw: u32, version: Version) -> Option<Link> {
    let bits = index_bits(version)?;
    let group = EntityGroup::from_raw(raw & 0xff)?;
    if !matches!(group, EntityGroup::Gpu | EntityGroup::Switch) {
        return None;
    }
    let index = raw >> 8 & ((1 << bits) - 1);
    Some(Link { owner: Entity::new(group, raw >> (8 + bits)), index })
}

/// Puts an id together. None: the version has no usable ids, or the numbers do not fit.
pub fn make(link: Link, version: Version) -> Option<Entity> {
    let bits = index_bits(version)?;
    let owned = matches!(link.owner.group, EntityGroup::Gpu | EntityGroup::Switch);
    let fits = link.index < 1 << bits && link.owner.id < 1 << (24 - bits);
    let raw = link.owner.group.raw() | link.index << 8 | link.owner.id.checked_shl(8 + bits)?;
    (owned && fits).then_some(Entity::new(EntityGroup::Link, raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(group: EntityGroup, id: u32, index: u32) -> Link {
        Link { owner: Entity::new(group, id), index }
    }

    #[test]
    fn ids_are_packed_as_the_engine_does() {
        let old = Version::new(3, 3, 9);
        let new = Version::new(4, 6, 0);
        let cases = [
            (new, 0x0300_0501, Some(link(EntityGroup::Gpu, 3, 5))),
            (Version::new(4, 3, 1), 0x0000_1101, Some(link(EntityGroup::Gpu, 0, 17))),
            (new, 0x0b00_8f03, Some(link(EntityGroup::Switch, 11, 143))),
            (old, 0x0003_0501, Some(link(EntityGroup::Gpu, 3, 5))),
            (new, 0x0300_0502, None),
            (new, 0x0300_05ff, None),
            (Version::new(4, 0, 0), 0x0300_0501, None),
            (Version::new(4, 2, 3), 0x0300_0501, None),
        ];
        for (version, raw, want) in cases {
            assert_eq!(parse(raw, version), want, "{version} {raw:#x}");
            if let Some(link) = want {
                assert_eq!(make(link, version), Some(Entity::new(EntityGroup::Link, raw)), "{raw:#x}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_has_no_id() {
        let new = Version::new(4, 6, 0);
        for (version, link) in [
            (new, link(EntityGroup::Gpu, 256, 0)),
            (new, link(EntityGroup::Gpu, 0, 65_536)),
            (new, link(EntityGroup::Cpu, 0, 0)),
            (Version::new(3, 1, 3), link(EntityGroup::Gpu, 0, 256)),
            (Version::new(3, 1, 3), link(EntityGroup::Gpu, 65_536, 0)),
            (Version::new(4, 1, 0), link(EntityGroup::Gpu, 0, 0)),
        ] {
            assert_eq!(make(link, version), None, "{version} {link:?}");
        }
    }
}
