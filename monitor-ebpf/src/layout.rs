//! Reads tracepoint fields at the running kernel's offsets.

use core::arch::asm;

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_probe_read_kernel, bpf_probe_read_kernel_str_bytes},
    programs::TracePointContext,
};
use monitor_ebpf::{COMM_LEN, FieldOffsets};

/// Loads from the context by one instruction. The verifier requires the offset inside the instruction, so there is one instruction for each
/// usual offset. The loader's value selects one, and the verifier drops the others. It is written in assembly because the compiler would
/// merge them into one.
macro_rules! load_at {
    ($size:literal, $offset:literal, $ctx:expr) => {{
        let value: u64;
        // SAFETY: the loader took the offset from this tracepoint's format file, and the verifier checks it.
        unsafe {
            asm!(
                concat!("{value} = *(", $size, " *)({context} + ", $offset, ")"),
                value = out(reg) value,
                context = in(reg) $ctx.as_ptr(),
                options(readonly, nostack)
            );
        }
        value
    }};
}

/// A tracepoint's offsets. The loader overwrites them before the verifier runs.
#[repr(transparent)]
pub struct Layout(FieldOffsets);

impl Layout {
    pub const fn new() -> Self {
        Self(FieldOffsets::NONE)
    }

    /// Returns the offset of a field; `None` where this kernel does not have it.
    #[inline(always)]
    fn offset(&'static self, field: usize) -> Option<usize> {
        let slot = self.0.offsets.get(field)?;
        // SAFETY: a reference is valid for reads. Volatile, because the compiler must not use the value in the source.
        let offset = unsafe { core::ptr::read_volatile(slot) };
        (offset != FieldOffsets::ABSENT).then_some(usize::from(offset))
    }

    /// Reads a fixed-size field.
    #[inline(always)]
    pub fn read<T>(&'static self, ctx: &TracePointContext, field: usize) -> Option<T> {
        let offset = self.offset(field)?;
        // SAFETY: the loader took offset and size from this tracepoint's format file; the helper checks the address.
        unsafe { bpf_probe_read_kernel(ctx.as_ptr().cast::<u8>().wrapping_add(offset).cast::<T>()) }.ok()
    }

    /// Reads a field of 4 bytes, by one instruction at a usual offset, see [`load_at`].
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "four bytes were loaded")]
    pub fn read_u32(&'static self, ctx: &TracePointContext, field: usize) -> Option<u32> {
        match self.offset(field)? {
            8 => Some(load_at!("u32", 8, ctx) as u32),
            12 => Some(load_at!("u32", 12, ctx) as u32),
            16 => Some(load_at!("u32", 16, ctx) as u32),
            _ => self.read(ctx, field),
        }
    }

    /// Reads a field of 8 bytes in the same way as [`Self::read_u32`].
    #[inline(always)]
    pub fn read_u64(&'static self, ctx: &TracePointContext, field: usize) -> Option<u64> {
        match self.offset(field)? {
            8 => Some(load_at!("u64", 8, ctx)),
            16 => Some(load_at!("u64", 16, ctx)),
            24 => Some(load_at!("u64", 24, ctx)),
            _ => self.read(ctx, field),
        }
    }

    /// Reads a `__data_loc char[]` field: its low half is the position of the text in the record.
    #[inline(always)]
    pub fn read_text(&'static self, ctx: &TracePointContext, field: usize) -> Option<[u8; COMM_LEN]> {
        let data_loc: u32 = self.read(ctx, field)?;
        let mut text = [0; COMM_LEN];
        let start = ctx.as_ptr().cast::<u8>().wrapping_add((data_loc & 0xffff) as usize);
        // SAFETY: the helper checks the address, and never writes more than `text` holds.
        unsafe { bpf_probe_read_kernel_str_bytes(start, &mut text) }.ok()?;
        Some(text)
    }
}
