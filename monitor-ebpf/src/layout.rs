//! Reading tracepoint fields at the offsets that the running kernel has.

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_probe_read_kernel, bpf_probe_read_kernel_str_bytes},
    programs::TracePointContext,
};
use monitor_ebpf::{COMM_LEN, FieldOffsets};

/// A tracepoint's offsets, overwritten by the loader before the programs are verified.
#[repr(transparent)]
pub struct Layout(FieldOffsets);

impl Layout {
    pub const fn new() -> Self {
        Self(FieldOffsets::NONE)
    }

    /// Offset of a field, `None` where this kernel does not have it.
    #[inline(always)]
    fn offset(&'static self, field: usize) -> Option<usize> {
        let slot = self.0.offsets.get(field)?;
        // SAFETY: a reference is valid for reads. Volatile, for the compiler must not fold the value it sees in the source.
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

    /// Reads a `__data_loc char[]` field: the low half of the field is where in the record the text is.
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
