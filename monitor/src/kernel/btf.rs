//! Reads the offsets of struct members from the running kernel's type information (`/sys/kernel/btf/vmlinux`).
//!
//! The raw bytes are read in place, with one table of positions (4 bytes per type): a parsed tree of all types takes tens of MiB. Format:
//! Documentation/bpf/btf.rst.

use monitor_ebpf::{Access, KernelOffsets};

const MAGIC: u16 = 0xeb9f;
/// Limit of anonymous structs and unions inside each other; the kernel's own nest three or four deep.
const MAX_NESTING: usize = 16;
const POINTER_BYTES: u32 = 8;

const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// The head of a type: `struct btf_type` and the position of what follows.
#[derive(Debug, Clone, Copy)]
struct Type {
    name: u32,
    info: u32,
    rest: usize,
}

impl Type {
    const fn kind(self) -> u32 {
        self.info >> 24 & 0x1f
    }
    const fn members(self) -> usize {
        (self.info & 0xffff) as usize
    }
    /// In structs with bit fields the upper 8 bits of a member's offset are its width.
    const fn has_bit_fields(self) -> bool {
        self.info >> 31 == 1
    }
    const fn rest_bytes(self) -> Option<usize> {
        let members = self.members();
        Some(match self.kind() {
            KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
            KIND_ARRAY => 12,
            KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => members * 12,
            KIND_ENUM | KIND_FUNC_PROTO => members * 8,
            kind if kind <= KIND_TYPE_TAG => 0,
            _ => return None,
        })
    }
}

#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Position of each type in `types`, by type id; id 0 is void.
    positions: Vec<u32>,
}

impl<'a> Btf<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let magic = bytes.first_chunk::<2>().ok_or_else(|| truncated(0))?;
        if u16::from_ne_bytes(*magic) != MAGIC {
            return Err("not BTF of this machine's byte order".to_owned());
        }
        let header_bytes = word(bytes, 4)?;
        let section = |offset_at, length_at| -> Result<&'a [u8], String> {
            let begin = header_bytes as usize + word(bytes, offset_at)? as usize;
            let end = begin + word(bytes, length_at)? as usize;
            bytes.get(begin..end).ok_or_else(|| truncated(bytes.len()))
        };
        let (types, strings) = (section(8, 12)?, section(16, 20)?);
        let mut btf = Self { types, strings, positions: vec![u32::MAX] };
        let mut at = 0;
        while at < types.len() {
            let head = btf.head(at)?;
            let (id, kind) = (btf.positions.len(), head.kind());
            let unknown = || format!("type {id} is of kind {kind}, which this program does not know");
            let rest = head.rest_bytes().ok_or_else(unknown)?;
            btf.positions.push(u32::try_from(at).map_err(|_| truncated(at))?);
            at = head.rest + rest;
        }
        Ok(btf)
    }

    /// Returns the byte offset of `member` in the struct. Searches anonymous structs and unions too.
    pub fn member_offset(&self, type_name: &str, member: &str) -> Result<u32, String> {
        // One kernel can have several types of one name: the first with the member counts.
        for head in self.types() {
            let head = head?;
            if matches!(head.kind(), KIND_STRUCT | KIND_UNION) && self.name_is(head.name, type_name) {
                match self.find_member(head, member, MAX_NESTING)? {
                    Some(bits) if bits % 8 == 0 => return Ok(bits / 8),
                    Some(_) => return Err(format!("{type_name}.{member} is a bit field")),
                    None => {}
                }
            }
        }
        Err(format!("no {type_name}.{member}"))
    }

    pub fn enumerator(&self, type_name: &str, name: &str) -> Result<u32, String> {
        for head in self.types() {
            let head = head?;
            if head.kind() == KIND_ENUM && self.name_is(head.name, type_name) {
                for entry in (0..head.members()).map(|index| head.rest + index * 8) {
                    if self.name_is(word(self.types, entry)?, name) {
                        return word(self.types, entry + 4);
                    }
                }
            }
        }
        Err(format!("no {name} in enum {type_name}"))
    }

    pub fn has_function(&self, name: &str) -> Result<bool, String> {
        for head in self.types() {
            let head = head?;
            if head.kind() == KIND_FUNC && self.name_is(head.name, name) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn types(&self) -> impl Iterator<Item = Result<Type, String>> {
        self.positions.iter().skip(1).map(|&at| self.head(at as usize))
    }

    fn find_member(&self, container: Type, member: &str, nesting: usize) -> Result<Option<u32>, String> {
        for entry in (0..container.members()).map(|index| container.rest + index * 12) {
            let (name, type_id, offset) =
                (word(self.types, entry)?, word(self.types, entry + 4)?, word(self.types, entry + 8)?);
            let (width, bits) =
                if container.has_bit_fields() { (offset >> 24, offset & 0xff_ffff) } else { (0, offset) };
            if name == 0 {
                let inner = self.positions.get(type_id as usize).filter(|_| nesting > 0 && type_id != 0);
                if let Some(&at) = inner {
                    let inner = self.head(at as usize)?;
                    if matches!(inner.kind(), KIND_STRUCT | KIND_UNION)
                        && let Some(inner_bits) = self.find_member(inner, member, nesting - 1)?
                    {
                        return Ok(Some(bits.saturating_add(inner_bits)));
                    }
                }
            } else if self.name_is(name, member) {
                // A width in the offset marks a bit field. It is returned as an offset inside a byte, which the caller refuses.
                return Ok(Some(if width == 0 { bits } else { bits | 1 }));
            }
        }
        Ok(None)
    }

    fn head(&self, at: usize) -> Result<Type, String> {
        Ok(Type { name: word(self.types, at)?, info: word(self.types, at + 4)?, rest: at + 12 })
    }

    fn name_is(&self, offset: u32, name: &str) -> bool {
        let Some(text) = self.strings.get(offset as usize..) else {
            return false;
        };
        text.get(..name.len()) == Some(name.as_bytes()) && text.get(name.len()) == Some(&0)
    }
}

fn truncated(at: usize) -> String {
    format!("truncated at byte {at}")
}

fn word(bytes: &[u8], at: usize) -> Result<u32, String> {
    let chunk = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>).ok_or_else(|| truncated(at))?;
    Ok(u32::from_ne_bytes(*chunk))
}

/// Returns the offsets that the programs need. The steps from a task to the id of its memory cgroup are required; other offsets may be
/// [`KernelOffsets::ABSENT`].
pub fn kernel_offsets(vmlinux: &[u8]) -> Result<KernelOffsets, String> {
    let btf = Btf::parse(vmlinux)?;
    let memory = btf.enumerator("cgroup_subsys_id", "memory_cgrp_id")?;
    let optional = |type_name, member| btf.member_offset(type_name, member).unwrap_or(KernelOffsets::ABSENT);
    // Renamed in 6.15 without a change of meaning.
    let parent = btf.member_offset("kernfs_node", "parent").or_else(|_| btf.member_offset("kernfs_node", "__parent"));
    let access = if btf.has_function("bpf_get_current_task_btf")? { Access::Load } else { Access::ProbeRead };
    Ok(KernelOffsets {
        access: access as u32,
        task_pid: optional("task_struct", "pid"),
        task_cgroups: btf.member_offset("task_struct", "cgroups")?,
        css_set_memory: btf.member_offset("css_set", "subsys")?.saturating_add(memory.saturating_mul(POINTER_BYTES)),
        css_cgroup: btf.member_offset("cgroup_subsys_state", "cgroup")?,
        cgroup_kn: btf.member_offset("cgroup", "kn")?,
        kn_id: btf.member_offset("kernfs_node", "id")?,
        kn_name: optional("kernfs_node", "name"),
        kn_parent: parent.unwrap_or(KernelOffsets::ABSENT),
        task_leader: optional("task_struct", "group_leader"),
        task_start: optional("task_struct", "start_time"),
        oom_memcg: optional("oom_control", "memcg"),
        oom_constraint: optional("oom_control", "constraint"),
        oom_order: optional("oom_control", "order"),
        memcg_css: optional("mem_cgroup", "css"),
        first_argument: FIRST_ARGUMENT.map_or(KernelOffsets::ABSENT, |register| optional("pt_regs", register)),
    })
}

/// The member of `pt_regs` with a function's first argument; on arm64 the first element of an array.
const FIRST_ARGUMENT: Option<&str> = if cfg!(target_arch = "x86_64") {
    Some("di")
} else if cfg!(target_arch = "aarch64") {
    Some("regs")
} else {
    None
};

#[cfg(test)]
mod tests {
    use monitor_ebpf::{Access, KernelOffsets};

    use super::{Btf, KIND_ENUM, KIND_FUNC, KIND_INT, KIND_STRUCT, KIND_UNION, MAGIC, kernel_offsets};

    /// Builds BTF type by type; ids count from 1 as in the format.
    struct Builder {
        types: Vec<u8>,
        strings: Vec<u8>,
    }

    impl Builder {
        fn new() -> Self {
            Self { types: Vec::new(), strings: vec![0] }
        }

        fn string(&mut self, text: &str) -> u32 {
            if text.is_empty() {
                return 0;
            }
            let at = u32::try_from(self.strings.len()).expect("small");
            self.strings.extend(text.as_bytes());
            self.strings.push(0);
            at
        }

        fn words(&mut self, words: &[u32]) {
            self.types.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        }

        fn int(mut self) -> Self {
            self.words(&[0, KIND_INT << 24, 8, 64]);
            self
        }

        fn container(mut self, kind: u32, name: &str, bit_fields: bool, members: &[(&str, u32, u32)]) -> Self {
            let name = self.string(name);
            let count = u32::try_from(members.len()).expect("small");
            self.words(&[name, u32::from(bit_fields) << 31 | kind << 24 | count, 64]);
            for &(member, type_id, bits) in members {
                let member = self.string(member);
                self.words(&[member, type_id, bits]);
            }
            self
        }

        fn enumeration(mut self, name: &str, entries: &[(&str, u32)]) -> Self {
            let name = self.string(name);
            let count = u32::try_from(entries.len()).expect("small");
            self.words(&[name, KIND_ENUM << 24 | count, 4]);
            for &(entry, value) in entries {
                let entry = self.string(entry);
                self.words(&[entry, value]);
            }
            self
        }

        fn function(mut self, name: &str) -> Self {
            let name = self.string(name);
            self.words(&[name, KIND_FUNC << 24, 1]);
            self
        }

        fn build(self) -> Vec<u8> {
            let length = |bytes: &Vec<u8>| u32::try_from(bytes.len()).expect("small");
            let mut out = MAGIC.to_ne_bytes().to_vec();
            out.extend([1, 0]);
            for word in [24, 0, length(&self.types), length(&self.types), length(&self.strings)] {
                out.extend(u32::to_ne_bytes(word));
            }
            out.extend(self.types);
            out.extend(self.strings);
            out
        }
    }

    #[test]
    fn members_of_nested_anonymous_containers_add_their_offsets() {
        let bytes = Builder::new()
            .int()
            .container(KIND_STRUCT, "", false, &[("deep", 1, 64)])
            .container(KIND_UNION, "", false, &[("", 2, 0), ("flat", 1, 0)])
            .container(KIND_STRUCT, "task_struct", false, &[("first", 1, 0), ("", 3, 128), ("last", 1, 256)])
            .build();
        let btf = Btf::parse(&bytes).expect("parses");
        for (member, offset) in [("first", 0), ("flat", 16), ("deep", 24), ("last", 32)] {
            assert_eq!(btf.member_offset("task_struct", member), Ok(offset), "{member}");
        }
        assert_eq!(btf.member_offset("task_struct", "las"), Err("no task_struct.las".to_owned()));
    }

    #[test]
    fn a_namesake_without_the_member_is_skipped() {
        let bytes = Builder::new()
            .int()
            .container(KIND_STRUCT, "cgroup", false, &[("other", 1, 0)])
            .container(KIND_STRUCT, "cgroup", false, &[("kn", 1, 64)])
            .build();
        assert_eq!(Btf::parse(&bytes).expect("parses").member_offset("cgroup", "kn"), Ok(8));
    }

    #[test]
    fn bit_fields_are_refused_and_their_neighbours_are_not() {
        let bytes = Builder::new()
            .int()
            .container(KIND_STRUCT, "s", true, &[("plain", 1, 64), ("bits", 1, 3 << 24 | 128)])
            .build();
        let btf = Btf::parse(&bytes).expect("parses");
        assert_eq!(btf.member_offset("s", "plain"), Ok(8));
        assert_eq!(btf.member_offset("s", "bits"), Err("s.bits is a bit field".to_owned()));
    }

    #[test]
    fn a_container_that_contains_itself_is_refused() {
        let bytes = Builder::new().container(KIND_STRUCT, "loop", false, &[("", 1, 0)]).build();
        assert!(Btf::parse(&bytes).expect("parses").member_offset("loop", "x").is_err());
    }

    fn kernel(parent: &str) -> Builder {
        Builder::new()
            .int()
            .enumeration("cgroup_subsys_id", &[("cpuset_cgrp_id", 0), ("memory_cgrp_id", 4)])
            .container(KIND_STRUCT, "task_struct", false, &[("cgroups", 1, 800), ("group_leader", 1, 640)])
            .container(KIND_STRUCT, "css_set", false, &[("subsys", 1, 0)])
            .container(KIND_STRUCT, "cgroup_subsys_state", false, &[("cgroup", 1, 0)])
            .container(KIND_STRUCT, "cgroup", false, &[("kn", 1, 2304)])
            .container(KIND_STRUCT, "kernfs_node", false, &[(parent, 1, 64), ("id", 1, 768)])
    }

    #[test]
    fn the_walk_uses_the_controllers_number() {
        let offsets = kernel_offsets(&kernel("parent").build()).expect("complete");
        assert_eq!(
            (offsets.task_cgroups, offsets.css_set_memory, offsets.cgroup_kn, offsets.kn_id),
            (100, 32, 288, 96)
        );
        assert_eq!(offsets.access, Access::ProbeRead as u32);
    }

    #[test]
    fn missing_members_are_absent_and_not_zero() {
        let offsets = kernel_offsets(&kernel("parent").build()).expect("complete");
        assert_eq!((offsets.kn_parent, offsets.task_leader), (8, 80));
        for absent in
            [offsets.kn_name, offsets.task_start, offsets.oom_memcg, offsets.oom_constraint, offsets.memcg_css]
        {
            assert_eq!(absent, KernelOffsets::ABSENT);
        }
    }

    #[test]
    fn members_and_functions_are_found_under_their_later_names() {
        let offsets =
            kernel_offsets(&kernel("__parent").function("bpf_get_current_task_btf").build()).expect("complete");
        assert_eq!((offsets.kn_parent, offsets.access), (8, Access::Load as u32));
    }

    #[test]
    fn damaged_input_is_an_error_at_every_length() {
        let whole = Builder::new().int().container(KIND_STRUCT, "s", false, &[("m", 1, 0)]).build();
        for length in 0..whole.len() {
            assert!(Btf::parse(&whole[..length]).is_err(), "{length} bytes");
        }
        let mut swapped = whole.clone();
        swapped.swap(0, 1);
        assert_eq!(Btf::parse(&swapped).unwrap_err(), "not BTF of this machine's byte order");
        let unknown = Builder::new().container(31, "s", false, &[]).build();
        let error = Btf::parse(&unknown).unwrap_err();
        assert_eq!(error, "type 1 is of kind 31, which this program does not know");
    }
}
